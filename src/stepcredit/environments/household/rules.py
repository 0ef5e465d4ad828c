"""The household's rules: which commands do something, and what they do.

The domain is ALFWorld's; these are the rules that surprise:

* ``go to`` is offered for every receptacle except those at the agent's own location, near or far: going costs one step.
* ``examine`` an object needs it in hand, lying in view does not suffice.
* ``use`` a lamp needs neither an open receptacle nor the lamp to be off, and always turns it on.
* Putting needs no free space. Taking an object from one receptacle leaves it in any other it is also in.
* Cleaning, heating and cooling need the object in hand and the right receptacle at the location, open or not; heat
  drives out cold and the reverse.
* ``slice`` reaches any object at the location, one in a closed receptacle too.
* A ``look`` lists beside the receptacles only what was taken from one of them and now lies at the same location.
"""

from __future__ import annotations

from collections.abc import Callable

from stepcredit.environments.household import texts
from stepcredit.environments.household.game import NOTHING, Game, State, members

HELP = "help"
"""Always does something, but tells nothing about the task."""


def commands(game: Game, state: State, *, show_help: bool = False) -> tuple[str, ...]:
    """The commands that do something in a state, sorted; ``help`` only where it is wanted."""
    offered = ["inventory", "look", *game.goto[state.place]]
    if show_help:
        offered.append(HELP)
    here = game.receptacles_at[state.place]
    traits, objects = game.traits, game.objects
    held = state.held
    if held != NOTHING:
        offered.append(f"examine {objects[held]}")
        offered += _with_held(game, state, here)
    for receptacle in here:
        name = game.receptacles[receptacle]
        offered.append(f"examine {name}")
        inside = state.contents[receptacle]
        if traits.openable >> receptacle & 1:
            if not state.opened >> receptacle & 1:
                offered.append(f"open {name}")
                continue
            offered.append(f"close {name}")
        if held == NOTHING:
            offered += [f"take {objects[o]} from {name}" for o in members(inside & traits.pickupable)]
        elif game.accepts[receptacle] >> held & 1:
            offered.append(f"move {objects[held]} to {name}")
    lamps = 0
    for receptacle in here:
        lamps |= state.contents[receptacle] & traits.toggleable
    offered += [f"use {objects[o]}" for o in members(lamps)]
    offered.sort()
    return tuple(offered)


def _with_held(game: Game, state: State, here: tuple[int, ...]) -> list[str]:
    """What the object in hand can be cleaned, heated or cooled with, and what it slices."""
    traits, held = game.traits, state.held
    name = game.objects[held]
    offered = [
        f"{verb} {name} with {game.receptacles[r]}"
        for verb, able, appliances in (
            ("clean", traits.cleanable, traits.sinks),
            ("heat", traits.heatable, traits.microwaves),
            ("cool", traits.coolable, traits.fridges),
        )
        if able >> held & 1
        for r in here
        if appliances >> r & 1
    ]
    if traits.knives >> held & 1:
        offered += [
            f"slice {game.objects[o]} with {name}" for o in members(state.nearby[state.place] & traits.sliceable)
        ]
    return offered


def execute(game: Game, state: State, command: str) -> tuple[State, str]:
    """The next state and what is shown.

    Args:
        game: the game.
        state: the present state.
        command: one of ``commands(game, state)``, or ``help``.
    """
    verb, _, rest = command.partition(" ")
    return _EXECUTE[verb](game, state, rest)


def _go(game: Game, state: State, rest: str) -> tuple[State, str]:
    receptacle = game.receptacle_numbers[rest.removeprefix("to ")]
    state = state._replace(place=game.places[receptacle])
    return state, f"You arrive at {game.receptacles[receptacle]}. {texts.examine_receptacle(game, state, receptacle)}"


def _open(game: Game, state: State, rest: str) -> tuple[State, str]:
    receptacle = game.receptacle_numbers[rest]
    state = state._replace(opened=state.opened | 1 << receptacle)
    return state, f"You open the {rest}. {texts.examine_receptacle(game, state, receptacle)}"


def _close(game: Game, state: State, rest: str) -> tuple[State, str]:
    return state._replace(opened=state.opened & ~(1 << game.receptacle_numbers[rest])), f"You close the {rest}."


def _take(game: Game, state: State, rest: str) -> tuple[State, str]:
    thing, _, source = rest.partition(" from ")
    number, receptacle = game.object_numbers[thing], game.receptacle_numbers[source]
    bit = 1 << number
    after = state._replace(
        held=number,
        contents=_replaced(state.contents, receptacle, state.contents[receptacle] & ~bit),
        nearby=_replaced(state.nearby, state.place, state.nearby[state.place] & ~bit),
        taken=tuple(sorted({*state.taken, (number, receptacle)})),
    )
    return after, f"You pick up the {thing} from the {source}."


def _move(game: Game, state: State, rest: str) -> tuple[State, str]:
    thing, _, target = rest.partition(" to ")
    number, receptacle = state.held, game.receptacle_numbers[target]
    bit = 1 << number
    after = state._replace(
        held=NOTHING,
        contents=_replaced(state.contents, receptacle, state.contents[receptacle] | bit),
        nearby=_replaced(state.nearby, state.place, state.nearby[state.place] | bit),
        taken=tuple(pair for pair in state.taken if pair != (number, receptacle)),
    )
    return after, f"You move the {thing} to the {target}."


def _clean(game: Game, state: State, rest: str) -> tuple[State, str]:
    thing, _, sink = rest.partition(" with ")
    return state._replace(clean=state.clean | 1 << state.held), f"You clean the {thing} using the {sink}."


def _heat(game: Game, state: State, rest: str) -> tuple[State, str]:
    thing, _, microwave = rest.partition(" with ")
    bit = 1 << state.held
    return state._replace(hot=state.hot | bit, cool=state.cool & ~bit), f"You heat the {thing} using the {microwave}."


def _cool(game: Game, state: State, rest: str) -> tuple[State, str]:
    thing, _, fridge = rest.partition(" with ")
    bit = 1 << state.held
    return state._replace(cool=state.cool | bit, hot=state.hot & ~bit), f"You cool the {thing} using the {fridge}."


def _use(game: Game, state: State, rest: str) -> tuple[State, str]:
    return state._replace(toggled=state.toggled | 1 << game.object_numbers[rest]), f"You turn on the {rest}."


def _slice(game: Game, state: State, rest: str) -> tuple[State, str]:
    thing, _, knife = rest.partition(" with ")
    after = state._replace(sliced=state.sliced | 1 << game.object_numbers[thing])
    return after, f"You sliced the {thing} with the {knife}."


def _examine(game: Game, state: State, rest: str) -> tuple[State, str]:
    if (receptacle := game.receptacle_numbers.get(rest)) is not None:
        return state, texts.examine_receptacle(game, state, receptacle)
    return state, texts.examine_object(game, state, game.object_numbers[rest])


def _look(game: Game, state: State, rest: str) -> tuple[State, str]:
    return state, texts.look(game, state)


def _inventory(game: Game, state: State, rest: str) -> tuple[State, str]:
    return state, texts.inventory(game, state)


def _help(game: Game, state: State, rest: str) -> tuple[State, str]:
    return state, texts.HELP


def _replaced(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


_EXECUTE: dict[str, Callable[[Game, State, str], tuple[State, str]]] = {
    "go": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "move": _move,
    "clean": _clean,
    "heat": _heat,
    "cool": _cool,
    "use": _use,
    "slice": _slice,
    "examine": _examine,
    "look": _look,
    "inventory": _inventory,
    "help": _help,
}
