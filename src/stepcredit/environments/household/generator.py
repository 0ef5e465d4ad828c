"""Unlimited games in the benchmark's own format: a room, things lying about, and a task that can be done there."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepcredit.environments.household.goals import FORMULAS, NEEDED_CAPABILITY, SENTENCES
from stepcredit.environments.household.rooms import (
    CAPABILITIES,
    CONTAINMENT,
    LAMP_STANDS,
    OPENABLE,
    ROOMS,
    ROOMS_OF_FAMILY,
    SIZES,
    RoomSize,
)

SPLITS = ("train", "valid_seen", "valid_unseen")

LARGEST_CLASS = 3
"""Objects of one class that a generated room has at most."""

SHARED_LOCATION = 0.1
"""Probability that a receptacle stands at the location of the one before it."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """A game before it is written down: classes instead of identifiers.

    Attributes:
        family: task family.
        target, destination: classes of the object and of the receptacle (of the lamp, for ``look``).
        receptacles: class of each receptacle.
        places: number of each receptacle's location, from 1; the agent starts at 0.
        objects: (class, receptacle it lies in) of each object.
    """

    family: str
    target: str
    destination: str
    receptacles: tuple[str, ...]
    places: tuple[int, ...]
    objects: tuple[tuple[str, int], ...]

    @property
    def split(self) -> str:
        """The one split this room and task may occur in.

        It is read off the content, so that no two splits share a room and task, whatever their seeds: a fifth of all
        room layouts is kept for ``valid_unseen``; of the tasks in the other layouts, a fifth for ``valid_seen``.
        """
        layout = sorted(Counter(self.receptacles).items())
        if _fifth(layout):
            return "valid_unseen"
        return "valid_seen" if _fifth((layout, self.family, self.target, self.destination)) else "train"


def _fifth(content: object) -> bool:
    """True for one in five contents, for the same ones everywhere."""
    return int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:8], "big") % 5 == 0


def generate(seed: int, room: RoomSize, split: str, family: str, number: int) -> tuple[str, str]:
    """One game of the endless list of games of a seed, room size, split and family.

    Args:
        seed: names the list; the same arguments give the same game in every process.
        room: size of the room.
        split: one of ``SPLITS``.
        family: one of ``goals.FAMILIES``.
        number: position in the list, from 0.

    Returns:
        The problem in PDDL and the task's sentence.
    """
    rng = random.Random(f"stepcredit household {seed} {room} {split} {family} {number}")
    sketch = next(sketch for sketch in _sketches(rng, room, family) if sketch.split == split)
    sentence = rng.choice(SENTENCES[family])
    return _write(sketch, rng), sentence.format(target=sketch.target.lower(), destination=sketch.destination.lower())


def _sketches(rng: random.Random, size: RoomSize, family: str) -> Iterator[Sketch]:
    """Endless feasible sketches."""
    while True:
        room = ROOMS[rng.choice(ROOMS_OF_FAMILY[family])]
        receptacles = _furnish(rng, room.always, room.furniture, rng.randint(*SIZES[size].receptacles))
        choices = _choices(family, room.things, room.lamps, receptacles)
        if not choices:
            continue
        target = rng.choice(sorted(choices))
        destination = rng.choice(choices[target])
        objects = _place_targets(rng, family, target, destination, receptacles)
        wanted = rng.randint(*SIZES[size].objects)
        objects += _place_others(rng, [name for name in room.things if name != target], receptacles, wanted)
        places = _arrange(rng, len(receptacles))
        yield Sketch(family, target, destination, tuple(receptacles), tuple(places), tuple(objects))


def _furnish(rng: random.Random, always: Sequence[str], furniture: dict[str, int], count: int) -> list[str]:
    """Receptacle classes of a room: those it always has, then others within their largest numbers."""
    pool = [name for name, most in furniture.items() for _ in range(most)]
    chosen = [*always, *rng.sample(pool, min(count - len(always), len(pool)))]
    return sorted(chosen)


def _arrange(rng: random.Random, count: int) -> list[int]:
    """Locations of the receptacles. One in ten stands with the one before it, mostly of its class, as officially."""
    places = [1]
    for _ in range(count - 1):
        places.append(places[-1] + (rng.random() >= SHARED_LOCATION))
    return places


def _choices(
    family: str, things: Sequence[str], lamps: Sequence[str], receptacles: Sequence[str]
) -> dict[str, list[str]]:
    """Target class → destination classes for which the room has a place to start from."""
    classes = sorted(set(receptacles))
    if family == "look":
        stands = [name for name in classes if name in LAMP_STANDS]
        placeable = {name for kind in classes for name in CONTAINMENT[kind]}
        return {name: list(lamps) for name in things if name in placeable} if stands else {}
    able = CAPABILITIES[NEEDED_CAPABILITY[family]] if family in NEEDED_CAPABILITY else things
    choices: dict[str, list[str]] = {}
    for target in things:
        holders = [kind for kind in classes if target in CONTAINMENT[kind]]
        if target in able and len(holders) > 1:
            choices[target] = holders
    return choices


def _place_targets(
    rng: random.Random, family: str, target: str, destination: str, receptacles: Sequence[str]
) -> list[tuple[str, int]]:
    """The task's own objects, none of them where it should go; for ``look``, the lamp too."""
    sources = [number for number, kind in enumerate(receptacles) if kind != destination and target in CONTAINMENT[kind]]
    count = rng.randint(2, LARGEST_CLASS) if family == "pick2" else rng.randint(1, 2)
    placed = [(target, rng.choice(sources)) for _ in range(count)]
    if family == "look":
        stands = [number for number, kind in enumerate(receptacles) if kind in LAMP_STANDS]
        placed.append((destination, rng.choice(stands)))
    return placed


def _place_others(
    rng: random.Random, things: Sequence[str], receptacles: Sequence[str], count: int
) -> list[tuple[str, int]]:
    """Up to ``count`` objects that the task does not need."""
    placed: list[tuple[str, int]] = []
    numbers: Counter[str] = Counter()
    for _ in range(count):
        receptacle = rng.randrange(len(receptacles))
        fitting = [
            name for name in things if name in CONTAINMENT[receptacles[receptacle]] and numbers[name] < LARGEST_CLASS
        ]
        if fitting:
            name = rng.choice(fitting)
            numbers[name] += 1
            placed.append((name, receptacle))
    return placed


def _write(sketch: Sketch, rng: random.Random) -> str:
    """The problem in PDDL. Identifiers are dealt at random, so that numbers tell nothing about places."""
    receptacles = _identifiers(sketch.receptacles, rng)
    objects = _identifiers([kind for kind, _ in sketch.objects], rng)
    locations = [f"loc_bar_{number:02d}" for number in range(sketch.places[-1] + 1)]
    kinds_of_receptacles = sorted({*sketch.receptacles, "Fridge", "Microwave", "SinkBasin"})
    kinds_of_objects = sorted({kind for kind, _ in sketch.objects} | {"ButterKnife", "DeskLamp", "Knife"})

    declared = [("agent1", "agent"), *((location, "location") for location in locations)]
    declared += [(f"{kind}Type", "rtype") for kind in kinds_of_receptacles]
    declared += [(f"{kind}Type", "otype") for kind in kinds_of_objects]
    declared += [(name, "receptacle") for name in receptacles] + [(name, "object") for name in objects]

    facts = [f"atLocation agent1 {locations[0]}"]
    for name, kind, place in zip(receptacles, sketch.receptacles, sketch.places, strict=True):
        facts += [f"receptacleType {name} {kind}Type", f"receptacleAtLocation {name} {locations[place]}"]
        if kind in OPENABLE:
            facts.append(f"openable {name}")
    for name, (kind, receptacle) in zip(objects, sketch.objects, strict=True):
        facts += [
            f"objectType {name} {kind}Type",
            f"inReceptacle {name} {receptacles[receptacle]}",
            f"objectAtLocation {name} {locations[sketch.places[receptacle]]}",
            f"toggleable {name}" if kind in ("DeskLamp", "FloorLamp") else f"pickupable {name}",
            *(f"{capability} {name}" for capability, kinds in CAPABILITIES.items() if kind in kinds),
        ]
    facts += [
        f"canContain {kind}Type {content}Type"
        for kind in sorted(set(sketch.receptacles))
        for content in kinds_of_objects
        if content in CONTAINMENT[kind]
    ]
    goal = FORMULAS[sketch.family].format(target=sketch.target, destination=sketch.destination)
    return "\n".join(
        [
            "(define (problem generated) (:domain alfred)",
            "(:objects",
            *(f" {name} - {kind}" for name, kind in declared),
            ")",
            "(:init",
            *(f" ({fact})" for fact in facts),
            ")",
            f"(:goal {goal}))",
        ]
    )


def _identifiers(kinds: Sequence[str], rng: random.Random) -> list[str]:
    """``Class_bar_07``; a basin's class is named at the end, as the benchmark has it."""
    numbers = rng.sample(range(len(kinds)), len(kinds))
    return [
        f"{kind.removesuffix('Basin')}_bar_{number:02d}" + (f"_bar_{kind}" if kind.endswith("Basin") else "")
        for kind, number in zip(kinds, numbers, strict=True)
    ]
