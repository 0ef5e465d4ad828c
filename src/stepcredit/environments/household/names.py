"""The names things have in household games."""

from __future__ import annotations

_LARGEST_NUMBERS = """
    alarmclock 4, apple 4, armchair 3, baseballbat 2, basketball 1, bathtub 1, bathtubbasin 1, bed 2, blinds 4,
    book 4, boots 1, bowl 4, box 3, bread 3, butterknife 4, cabinet 27, candle 4, cart 1, cd 4, cellphone 4,
    chair 8, cloth 4, coffeemachine 1, coffeetable 2, countertop 4, creditcard 4, cup 4, curtains 3, desk 2,
    desklamp 2, diningtable 3, dishsponge 4, drawer 27, dresser 2, egg 4, floorlamp 2, footstool 1, fork 4,
    fridge 1, garbagecan 1, glassbottle 4, handtowel 3, handtowelholder 4, houseplant 2, kettle 3, keychain 4,
    knife 4, ladle 4, laptop 3, laundryhamper 1, laundryhamperlid 1, lettuce 4, lightswitch 1, microwave 1,
    mirror 2, mug 4, newspaper 3, ottoman 1, painting 4, pan 3, papertowelroll 1, pen 3, pencil 4, peppershaker 4,
    pillow 4, plate 4, plunger 1, poster 4, pot 3, potato 4, remotecontrol 4, safe 1, saltshaker 3, scrubbrush 1,
    shelf 14, showerdoor 1, showerglass 1, sidetable 5, sink 2, sinkbasin 2, soapbar 4, soapbottle 4, sofa 2,
    spatula 3, spoon 3, spraybottle 4, statue 7, stoveburner 6, stoveknob 6, teddybear 1, television 1,
    tennisracket 1, tissuebox 4, toaster 1, toilet 1, toiletpaper 4, toiletpaperhanger 1, tomato 4, towel 3,
    towelholder 2, tvstand 2, vase 6, watch 3, wateringcan 2, window 8, winebottle 3
"""


def known_names() -> tuple[str, ...]:
    """``alarmclock 1`` … ``winebottle 3``: all names of 394 official games and of all generated ones."""
    names = []
    for entry in _LARGEST_NUMBERS.split(","):
        kind, largest = entry.split()
        names += [f"{kind} {number}" for number in range(1, int(largest) + 1)]
    return tuple(names)
