"""What generated rooms are made of: the benchmark's four kinds of room, what stands in them, and what may lie where."""

from __future__ import annotations

from typing import Literal, NamedTuple

RoomSize = Literal["small", "medium", "large"]


class Size(NamedTuple):
    """Bounds, both ends included."""

    receptacles: tuple[int, int]
    objects: tuple[int, int]


SIZES: dict[RoomSize, Size] = {
    "small": Size(receptacles=(5, 7), objects=(5, 8)),
    "medium": Size(receptacles=(10, 14), objects=(12, 18)),
    "large": Size(receptacles=(20, 30), objects=(25, 38)),
}


class Room(NamedTuple):
    """One kind of room.

    Attributes:
        always: receptacle classes that every such room has, once.
        furniture: the other receptacle classes, with the largest number of each.
        things: classes of objects that lie about.
        lamps: classes of lamps, of which a ``look`` task needs one.
    """

    always: tuple[str, ...]
    furniture: dict[str, int]
    things: tuple[str, ...]
    lamps: tuple[str, ...] = ()


_FOOD = ("Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato")
_DISHES = ("Bowl", "Cup", "Mug", "Plate")
_CUTLERY = ("ButterKnife", "Fork", "Knife", "Ladle", "Spatula", "Spoon")
_POTS = ("Kettle", "Pan", "Pot")
_SPICES = ("PepperShaker", "SaltShaker")
_SMALL = ("CellPhone", "CreditCard", "KeyChain", "Pen", "Pencil", "RemoteControl", "Watch")
_LEISURE = ("Book", "Box", "Laptop", "Newspaper")
_DECORATION = ("Candle", "Statue", "TissueBox", "Vase")
_BATH = ("Candle", "Cloth", "DishSponge", "HandTowel", "SoapBar", "SoapBottle", "SprayBottle", "ToiletPaper")

ROOMS = {
    "kitchen": Room(
        always=("Fridge", "Microwave", "SinkBasin"),
        furniture={
            "Cabinet": 12, "CoffeeMachine": 1, "CounterTop": 3, "DiningTable": 2, "Drawer": 8, "GarbageCan": 1,
            "Shelf": 3, "SideTable": 1, "StoveBurner": 4,
        },
        things=(*_FOOD, *_DISHES, *_CUTLERY, *_POTS, *_SPICES, "DishSponge", "SoapBottle", "WineBottle", "CreditCard",
                "Statue", "Vase"),
    ),
    "living room": Room(
        always=("Sofa",),
        furniture={
            "ArmChair": 2, "Cabinet": 6, "CoffeeTable": 2, "DiningTable": 1, "Drawer": 8, "Dresser": 1,
            "GarbageCan": 1, "Ottoman": 1, "Shelf": 6, "SideTable": 3,
        },
        things=(*_SMALL, *_LEISURE, *_DECORATION, "Pillow", "Bowl", "Plate"),
        lamps=("DeskLamp", "FloorLamp"),
    ),
    "bedroom": Room(
        always=("Bed",),
        furniture={
            "ArmChair": 2, "Desk": 2, "Drawer": 10, "Dresser": 1, "GarbageCan": 1, "LaundryHamper": 1, "Safe": 1,
            "Shelf": 8, "SideTable": 2,
        },
        things=(*_SMALL, *_LEISURE, "AlarmClock", "Bowl", "CD", "Cloth", "Mug", "Pillow", "Statue", "TissueBox"),
        lamps=("DeskLamp",),
    ),
    "bathroom": Room(
        always=("SinkBasin", "Toilet"),
        furniture={
            "BathtubBasin": 1, "Cabinet": 8, "Cart": 1, "CounterTop": 2, "Drawer": 6, "GarbageCan": 1,
            "HandTowelHolder": 2, "Shelf": 4, "ToiletPaperHanger": 1, "TowelHolder": 2,
        },
        things=(*_BATH, "Towel"),
    ),
}  # fmt: skip

ROOMS_OF_FAMILY = {
    "pick": ("kitchen", "living room", "bedroom", "bathroom"),
    "look": ("living room", "bedroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "pick2": ("kitchen", "living room", "bedroom", "bathroom"),
}
"""Where the benchmark sets tasks of each family."""

LAMP_STANDS = ("CoffeeTable", "Desk", "DiningTable", "Dresser", "SideTable", "Shelf")
"""Receptacles a lamp can stand on; it cannot be taken away."""

OPENABLE = ("Cabinet", "Drawer", "Fridge", "Microwave", "Safe")

CAPABILITIES = {
    "cleanable": (
        "Apple", "Bowl", "ButterKnife", "Cloth", "Cup", "DishSponge", "Egg", "Fork", "Kettle", "Knife", "Ladle",
        "Lettuce", "Mug", "Pan", "Plate", "Pot", "Potato", "SoapBar", "Spatula", "Spoon", "Tomato",
    ),
    "heatable": ("Apple", "Bread", "Cup", "Egg", "Mug", "Plate", "Potato", "Tomato"),
    "coolable": (
        "Apple", "Bowl", "Bread", "Cup", "Egg", "Lettuce", "Mug", "Pan", "Plate", "Pot", "Potato", "Tomato",
        "WineBottle",
    ),
    "sliceable": ("Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato"),
    "isReceptacleObject": ("Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"),
}  # fmt: skip
"""Predicate → the object classes it holds for."""

CONTAINMENT: dict[str, tuple[str, ...]] = {
    "ArmChair": ("Book", "Box", "CellPhone", "Cloth", "CreditCard", "KeyChain", "Laptop", "Newspaper", "Pillow",
                 "RemoteControl"),
    "BathtubBasin": ("Cloth", "DishSponge", "HandTowel", "SoapBar"),
    "Bed": ("Book", "CellPhone", "Laptop", "Pillow"),
    "Cabinet": ("Book", *_DISHES, "Box", "CD", *_POTS, *_SPICES, *_BATH, "Ladle", "WineBottle", "Vase"),
    "Cart": _BATH,
    "CoffeeMachine": ("Mug",),
    "CoffeeTable": (*_LEISURE, *_SMALL, *_DECORATION, "Bowl", "Plate"),
    "CounterTop": (*_FOOD, *_DISHES, *_CUTLERY, *_POTS, *_SPICES, *_BATH, "WineBottle"),
    "Desk": ("AlarmClock", "Bowl", "CD", "Mug", *_SMALL, *_LEISURE[:3], "Statue"),
    "DiningTable": (*_FOOD, *_DISHES, *_CUTLERY, *_POTS, *_SPICES, *_SMALL, *_LEISURE, *_DECORATION),
    "Drawer": ("Book", "CD", "Cloth", "DishSponge", "HandTowel", "SoapBar", "SoapBottle", "SprayBottle", *_CUTLERY,
               *_SPICES, *_SMALL),
    "Dresser": ("AlarmClock", "CD", "Bowl", "Mug", *_SMALL, *_LEISURE, *_DECORATION),
    "Fridge": (*_FOOD, *_DISHES, "Pan", "Pot", "WineBottle"),
    "GarbageCan": ("Apple", "CD", "Cloth", "DishSponge", "Egg", "Newspaper", "Pen", "Pencil", "Potato", "SoapBar",
                   "SoapBottle", "SprayBottle", "ToiletPaper", "Tomato"),
    "HandTowelHolder": ("HandTowel",),
    "LaundryHamper": ("Cloth",),
    "Microwave": ("Apple", "Bowl", "Bread", "Cup", "Egg", "Mug", "Plate", "Potato", "Tomato"),
    "Ottoman": ("Book", "Box", "CellPhone", "CreditCard", "KeyChain", "Laptop", "Newspaper", "Pillow",
                "RemoteControl"),
    "Safe": ("CD", "CellPhone", "CreditCard", "KeyChain", "Statue", "Vase"),
    "Shelf": ("AlarmClock", "Book", "CD", *_DISHES, *_SPICES, *_BATH, *_SMALL, "Statue", "Vase"),
    "SideTable": ("AlarmClock", "Book", "CD", *_FOOD, *_DISHES, *_SPICES, *_SMALL, *_DECORATION),
    "SinkBasin": ("Apple", "Bowl", "Cloth", "Cup", "DishSponge", "Egg", "Lettuce", "Mug", "Plate", "Potato",
                  "SoapBar", "Tomato", *_CUTLERY, *_POTS),
    "Sofa": ("Book", "Box", "CellPhone", "CreditCard", "KeyChain", "Laptop", "Newspaper", "Pillow", "RemoteControl"),
    "StoveBurner": _POTS,
    "Toilet": _BATH,
    "ToiletPaperHanger": ("ToiletPaper",),
    "TowelHolder": ("Towel",),
}  # fmt: skip
"""Receptacle class → the object classes it may hold."""
