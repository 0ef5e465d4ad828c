"""From the facts of an ALFWorld problem to a ``Game``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from sys import intern

from stepcredit.core.errors import InputError
from stepcredit.environments.household.game import NOTHING, Game, State, Traits, members
from stepcredit.environments.household.goals import NEEDED_CAPABILITY, Goal, recognise
from stepcredit.environments.household.pddl import PREDICATES, Problem, read_problem

_MOST_ENTITIES = 1_000
"""Objects, and receptacles; official rooms have some hundred. Commands grow with the square of their number."""


def parse_problem(text: str, task: str) -> Game:
    """A game from a problem in PDDL.

    Args:
        text: the problem.
        task: the sentence that states the goal.

    Raises:
        InputError: the text is no problem of ALFWorld's domain, or its goal none of the six families'; the message
            says what is wrong, without a file name.
    """
    return _Builder(read_problem(text)).game(task)


class _Numbering:
    """Numbers for the entities of one kind, in the order of their identifiers."""

    def __init__(self, identifiers: Iterable[str]) -> None:
        self.identifiers = sorted(set(identifiers))
        self.number = {identifier: number for number, identifier in enumerate(self.identifiers)}

    def mask(self, identifiers: Iterable[str]) -> int:
        """The set of the given entities."""
        mask = 0
        for identifier in identifiers:
            mask |= 1 << self.number[identifier]
        return mask

    def masks(self, pairs: Iterable[tuple[str, ...]]) -> dict[str, int]:
        """Pairs (member, group) → group to the set of its members."""
        groups: dict[str, list[str]] = defaultdict(list)
        for member, group in pairs:
            groups[group].append(member)
        return {group: self.mask(group_members) for group, group_members in groups.items()}


class _Builder:
    """Numbers everything and translates facts into masks."""

    def __init__(self, problem: Problem) -> None:
        self._facts = problem.facts
        self._formula = problem.goal
        start = [location for _, location in self._facts["atlocation"]]
        if len(start) != 1:
            raise InputError(f"the agent is at {len(start)} locations, expected one")
        # Nobody can go where no receptacle is, so other locations do not count.
        self._locations = _Numbering([*start, *(location for _, location in self._facts["receptacleatlocation"])])
        self._objects = _Numbering(self._mentioned("object"))
        self._receptacles = _Numbering(self._mentioned("receptacle"))
        for kind, entities in (("objects", self._objects), ("receptacles", self._receptacles)):
            if len(entities.identifiers) > _MOST_ENTITIES:
                raise InputError(f"{len(entities.identifiers):,} {kind}, expected at most {_MOST_ENTITIES:,}")
        self._object_types = self._objects.masks(self._facts["objecttype"])
        self._receptacle_types = self._receptacles.masks(self._facts["receptacletype"])

    def game(self, task: str) -> Game:
        """The whole game."""
        names = _names([*self._objects.identifiers, *self._receptacles.identifiers])
        objects = tuple(names[identifier] for identifier in self._objects.identifiers)
        receptacles = tuple(names[identifier] for identifier in self._receptacles.identifiers)
        locations = range(len(self._locations.identifiers))
        vessels = self._objects.masks(self._facts["inreceptacleobject"])
        return Game(
            objects=objects,
            receptacles=receptacles,
            object_numbers={name: number for number, name in enumerate(objects)},
            receptacle_numbers={name: number for number, name in enumerate(receptacles)},
            places=self._places,
            receptacles_at=tuple(
                tuple(receptacle for receptacle, place in enumerate(self._places) if place == location)
                for location in locations
            ),
            accepts=self._accepts(),
            inner={self._objects.number[vessel]: inside for vessel, inside in vessels.items()},
            traits=self._traits(),
            goto=_goto(receptacles, self._places, locations),
            start=self._start(),
            goal=self._goal(),
            task=task,
        )

    def _mentioned(self, kind: str) -> Iterable[str]:
        """Identifiers of one type that occur in some fact; those merely declared are not part of the game."""
        for predicate, atoms in self._facts.items():
            for position, type_ in enumerate(PREDICATES[predicate]):
                if type_ == kind:
                    yield from (atom[position] for atom in atoms)

    def _objects_with(self, predicate: str) -> int:
        return self._objects.mask(atom[0] for atom in self._facts[predicate])

    def _receptacles_with(self, predicate: str) -> int:
        return self._receptacles.mask(atom[0] for atom in self._facts[predicate])

    @cached_property
    def _places(self) -> tuple[int, ...]:
        places = [NOTHING] * len(self._receptacles.identifiers)
        for receptacle, location in self._facts["receptacleatlocation"]:
            number, place = self._receptacles.number[receptacle], self._locations.number[location]
            if places[number] not in (NOTHING, place):
                raise InputError(f"receptacle {receptacle!r} is at two locations")
            places[number] = place
        return tuple(places)

    def _accepts(self) -> tuple[int, ...]:
        accepted: dict[str, int] = defaultdict(int)
        for receptacle_type, object_type in self._facts["cancontain"]:
            accepted[receptacle_type] |= self._object_types.get(object_type, 0)
        accepts = [0] * len(self._receptacles.identifiers)
        for receptacle, receptacle_type in self._facts["receptacletype"]:
            accepts[self._receptacles.number[receptacle]] |= accepted[receptacle_type]
        return tuple(accepts)

    def _traits(self) -> Traits:
        return Traits(
            pickupable=self._objects_with("pickupable"),
            cleanable=self._objects_with("cleanable"),
            heatable=self._objects_with("heatable"),
            coolable=self._objects_with("coolable"),
            sliceable=self._objects_with("sliceable"),
            toggleable=self._objects_with("toggleable"),
            knives=self._object_types.get("knifetype", 0) | self._object_types.get("butterknifetype", 0),
            vessels=self._objects_with("isreceptacleobject"),
            openable=self._receptacles_with("openable"),
            sinks=self._receptacle_types.get("sinkbasintype", 0),
            microwaves=self._receptacle_types.get("microwavetype", 0),
            fridges=self._receptacle_types.get("fridgetype", 0),
        )

    def _start(self) -> State:
        held = [self._objects.number[thing] for _, thing in self._facts["holds"]]
        if len(held) > 1:
            raise InputError(f"the agent holds {len(held)} objects, expected one at most")
        contents = self._objects.masks(self._facts["inreceptacle"])
        nearby = self._objects.masks(self._facts["objectatlocation"])
        return State(
            place=self._locations.number[self._facts["atlocation"][0][1]],
            held=held[0] if held else NOTHING,
            opened=self._receptacles_with("opened"),
            contents=tuple(contents.get(identifier, 0) for identifier in self._receptacles.identifiers),
            nearby=tuple(nearby.get(identifier, 0) for identifier in self._locations.identifiers),
            taken=(),
            clean=self._objects_with("isclean"),
            hot=self._objects_with("ishot"),
            cool=self._objects_with("iscool"),
            toggled=self._objects_with("istoggled"),
            sliced=self._objects_with("issliced"),
        )

    def _goal(self) -> Goal:
        family, target, destination = recognise(self._formula)
        targets = self._object_types.get(target, 0)
        if family == "look":
            lamps = self._object_types.get(destination, 0) & self._objects_with("toggleable")
            return Goal(family, targets, (), lamps)
        if family in NEEDED_CAPABILITY:
            targets &= self._objects_with(NEEDED_CAPABILITY[family])
        return Goal(family, targets, members(self._receptacle_types.get(destination, 0)), 0)


def _names(identifiers: Iterable[str]) -> dict[str, str]:
    """Identifier → name, "mug 2": its class, and a number that falls in the order of the identifiers."""
    classes: dict[str, str] = {}
    for identifier in sorted(identifiers):
        name, bar, _ = identifier.partition("_bar_")
        if not bar:
            raise InputError(f"identifier {identifier!r} does not have the form CLASS_bar_…")
        classes[identifier] = f"{name}basin" if "basin" in identifier else name
    left = Counter(classes.values())
    names: dict[str, str] = {}
    for identifier, name in classes.items():
        names[identifier] = intern(f"{name} {left[name]}")
        left[name] -= 1
    return names


def _goto(names: Sequence[str], places: Sequence[int], locations: Iterable[int]) -> tuple[tuple[str, ...], ...]:
    commands = sorted((intern(f"go to {name}"), place) for name, place in zip(names, places, strict=True))
    return tuple(tuple(command for command, place in commands if place not in (here, NOTHING)) for here in locations)
