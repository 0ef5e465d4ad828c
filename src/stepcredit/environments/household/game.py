"""What a household game is made of: the facts that never change, and the state that does.

Objects and receptacles are numbered 0, 1, … in the order of their identifiers, so that walking a set from its lowest
member visits them in the order in which the reference engine lists them. A set of objects or of receptacles is an
integer bit mask: bit i stands for number i.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from stepcredit.environments.household.goals import Goal

NOTHING = -1
"""Stands for no object in hand, and for the place of a receptacle that cannot be reached."""


class State(NamedTuple):
    """Everything that changes while a game is played. Immutable, so a snapshot is the state itself.

    An object can be in two receptacles at once, so containment is kept as pairs and not as one place per object.

    Attributes:
        place: number of the agent's location.
        held: the object in hand, or ``NOTHING``.
        opened: receptacles that are open.
        contents: per receptacle, the objects in or on it.
        nearby: per location, the objects that are there; those in closed receptacles count.
        taken: pairs (object, receptacle) from which the object was taken and not put back, sorted.
        clean, hot, cool, toggled, sliced: objects in that condition.
    """

    place: int
    held: int
    opened: int
    contents: tuple[int, ...]
    nearby: tuple[int, ...]
    taken: tuple[tuple[int, int], ...]
    clean: int
    hot: int
    cool: int
    toggled: int
    sliced: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What objects and receptacles are good for, as masks that never change.

    Attributes:
        pickupable, cleanable, heatable, coolable, sliceable, toggleable: objects that allow it.
        knives: objects that slice others.
        vessels: objects that contain others (a mug).
        openable: receptacles with a door or lid.
        sinks, microwaves, fridges: receptacles that clean, heat and cool.
    """

    pickupable: int
    cleanable: int
    heatable: int
    coolable: int
    sliceable: int
    toggleable: int
    knives: int
    vessels: int
    openable: int
    sinks: int
    microwaves: int
    fridges: int


@dataclass(frozen=True, slots=True)
class Game:
    """One game: the facts that never change, the state it starts in, and the goal.

    Attributes:
        objects, receptacles: names ("mug 2", "cabinet 3") by number.
        object_numbers, receptacle_numbers: the inverse.
        places: per receptacle its location, or ``NOTHING``.
        receptacles_at: per location the receptacles there.
        accepts: per receptacle, the objects that may be put there.
        inner: per vessel the objects inside it; nothing in the domain changes them.
        traits: what objects and receptacles are good for.
        goto: per location the sorted ``go to …`` commands it offers.
        start: the first state.
        goal: what wins.
        task: the sentence that states the goal.
    """

    objects: tuple[str, ...]
    receptacles: tuple[str, ...]
    object_numbers: dict[str, int]
    receptacle_numbers: dict[str, int]
    places: tuple[int, ...]
    receptacles_at: tuple[tuple[int, ...], ...]
    accepts: tuple[int, ...]
    inner: dict[int, int]
    traits: Traits
    goto: tuple[tuple[str, ...], ...]
    start: State
    goal: Goal
    task: str

    def accessible(self, state: State, receptacle: int) -> bool:
        """Whether things can be put into and taken out of a receptacle: it has no door, or the door is open."""
        return not (self.traits.openable & ~state.opened) >> receptacle & 1

    def won(self, state: State) -> bool:
        """Whether the goal holds. It can cease to hold when play goes on."""
        goal = self.goal
        if goal.family == "look":
            here = self.receptacles_at[state.place]
            lit = goal.lamps & state.toggled
            return state.held >= 0 and bool(
                goal.targets >> state.held & 1 and any(state.contents[r] & lit for r in here)
            )
        if goal.family == "pick2":
            return any((state.contents[r] & goal.targets).bit_count() > 1 for r in goal.destinations)
        ready = self.ready(state)
        return any(state.contents[r] & ready for r in goal.destinations)

    def ready(self, state: State) -> int:
        """The goal's objects that are already as clean, hot or cool as it asks for."""
        match self.goal.family:
            case "clean":
                return self.goal.targets & state.clean
            case "heat":
                return self.goal.targets & state.hot
            case "cool":
                return self.goal.targets & state.cool
        return self.goal.targets


@lru_cache(maxsize=1 << 16)
def members(mask: int) -> tuple[int, ...]:
    """The members of a set, in ascending order."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
