"""The sentences of the benchmark's 0.4.2 grammar, word for word."""

from __future__ import annotations

from stepcredit.environments.household.game import NOTHING, Game, State, members

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
NOTHING_HAPPENS = "Nothing happens."
HELP = (
    "Available commands:\n"
    "  look:                             look around your current location\n"
    "  inventory:                        check your current inventory\n"
    "  go to (receptacle):               move to a receptacle\n"
    "  open (receptacle):                open a receptacle\n"
    "  close (receptacle):               close a receptacle\n"
    "  take (object) from (receptacle):  take an object from a receptacle\n"
    "  move (object) to (receptacle):  place an object in or on a receptacle\n"
    "  examine (something):              examine a receptacle or an object\n"
    "  use (object):                     use an object\n"
    "  heat (object) with (receptacle):  heat an object using a receptacle\n"
    "  clean (object) with (receptacle): clean an object using a receptacle\n"
    "  cool (object) with (receptacle):  cool an object using a receptacle\n"
    "  slice (object) with (object):     slice an object using a sharp object\n"
)


def enumeration(names: list[str]) -> str:
    """``a, b, and c``; the comma before "and" stays for two names, and no name reads "nothing"."""
    if len(names) < 2:
        return names[0] if names else "nothing"
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def first_text(game: Game) -> str:
    """What a game opens with: welcome, room, task."""
    if game.receptacles_at[game.start.place]:
        room = look(game, game.start)
    else:
        names = [f"a {name}" for name, place in zip(game.receptacles, game.places, strict=True) if place != NOTHING]
        room = f"You are in the middle of a room. Looking quickly around you, you see {enumeration(names)}."
    return f"{WELCOME}\n\n{room}\n\nYour task is to: {game.task}"


def look(game: Game, state: State) -> str:
    """The surroundings: the receptacles one faces, and objects that lie here but not where they were taken from."""
    here = game.receptacles_at[state.place]
    if not here:
        return "You are in the middle of a room. Looking quickly around you, you see nothing."
    facing = enumeration([game.receptacles[r] for r in here])
    moved = [f"a {game.objects[o]}" for o, r in state.taken if r in here and state.nearby[state.place] >> o & 1]
    return f"You are facing the {facing}. Next to it, you see {enumeration(moved)}."


def inventory(game: Game, state: State) -> str:
    """What is in hand."""
    if state.held == NOTHING:
        return "You are not carrying anything."
    return f"You are carrying: a {game.objects[state.held]}."


def examine_receptacle(game: Game, state: State, receptacle: int) -> str:
    """A receptacle and what can be seen in or on it."""
    name = game.receptacles[receptacle]
    seen = enumeration([f"a {game.objects[o]}" for o in members(state.contents[receptacle])])
    if not game.traits.openable >> receptacle & 1:
        return f"On the {name}, you see {seen}."
    if state.opened >> receptacle & 1:
        return f"The {name} is open. In it, you see {seen}."
    return f"The {name} is closed."


def examine_object(game: Game, state: State, thing: int) -> str:
    """An object and its condition; a vessel shows what is inside instead of its condition."""
    name = game.objects[thing]
    if game.traits.vessels >> thing & 1:
        inside = enumeration([f"a {game.objects[o]}" for o in members(game.inner.get(thing, 0))])
        return f"This is a normal {name}. In it, you see {inside}."
    temperature = "hot" if state.hot >> thing & 1 else "cool" if state.cool >> thing & 1 else ""
    condition = " and ".join(filter(None, (temperature, "clean" if state.clean >> thing & 1 else "")))
    sliced = state.sliced >> thing & 1
    if condition and sliced:
        return f"This is a {condition} sliced {name}."
    if condition:
        return f"This is a {'cold' if condition == 'cool' else condition} {name}."
    if (game.traits.toggleable & state.toggled) >> thing & 1:
        return f"This {name} is on."
    if sliced and game.traits.sliceable >> thing & 1:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."
