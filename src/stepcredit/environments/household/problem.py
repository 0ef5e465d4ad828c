"""From an ALFWorld problem in PDDL to a ``Game``."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from sys import intern

from stepcredit.core.errors import InputError
from stepcredit.environments.household.game import NOTHING, Game, State, Traits, members
from stepcredit.environments.household.goals import Goal, recognise

PREDICATES: dict[str, tuple[str, ...]] = {
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "objectatlocation": ("object", "location"),
    "inreceptacle": ("object", "receptacle"),
    "inreceptacleobject": ("object", "object"),
    "objecttype": ("object", "otype"),
    "receptacletype": ("receptacle", "rtype"),
    "cancontain": ("rtype", "otype"),
    "holds": ("agent", "object"),
    "openable": ("receptacle",),
    "opened": ("receptacle",),
    "isreceptacleobject": ("object",),
    "pickupable": ("object",),
    "cleanable": ("object",),
    "heatable": ("object",),
    "coolable": ("object",),
    "sliceable": ("object",),
    "toggleable": ("object",),
    "isclean": ("object",),
    "ishot": ("object",),
    "iscool": ("object",),
    "istoggled": ("object",),
    "issliced": ("object",),
}
"""The predicates that matter to play, with the types of their arguments."""

IGNORED = frozenset(
    "checked distance examined full holdsany holdsanyreceptacleobject isreceptacleobjectfull ison moveable total-cost "
    "wasinreceptacle".split()
)
"""Predicates of the domain that no command, text or goal depends on."""

Facts = Mapping[str, list[tuple[str, ...]]]


def parse_problem(problem: str, task: str) -> Game:
    """Read one problem.

    Args:
        problem: PDDL text; upper and lower case are one.
        task: the sentence that states the goal.

    Raises:
        InputError: the text is no ALFWorld problem; the message says what is wrong, without a file name.
    """
    text = re.sub(r";[^\n]*", "", problem).lower()
    objects, init, goal = _sections(text)
    facts = _facts(init, _kinds(objects))
    return _game(facts, recognise(goal), task)


def _sections(text: str) -> tuple[str, str, str]:
    """The insides of ``(:objects …)``, ``(:init …)`` and ``(:goal …)``."""
    starts = [text.find(f"(:{name}") for name in ("objects", "init", "goal")]
    if -1 in starts or starts != sorted(starts):
        raise InputError("expected the sections (:objects …), (:init …) and (:goal …), in this order")
    if text.count("(") != text.count(")"):
        raise InputError(f"{text.count('(')} opening but {text.count(')')} closing parentheses")
    objects, init, goal = starts
    return text[objects + 9 : init], text[init + 6 : goal], _balanced(text[goal + 6 :])


def _balanced(text: str) -> str:
    """The first parenthesised expression of a text."""
    depth = 0
    for match in re.finditer(r"[()]", text):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return text[text.index("(") : match.end()]
    raise InputError("the goal is empty")


def _kinds(objects: str) -> dict[str, str]:
    """Object → type, from a typed list ``a b - type c - type``."""
    kinds: dict[str, str] = {}
    waiting: list[str] = []
    words = iter(objects.replace(")", " ").split())
    for word in words:
        if word == "-":
            kind = next(words, "")
            kinds.update((name, kind) for name in waiting)
            waiting = []
        else:
            waiting.append(intern(word))
    if waiting:
        raise InputError(f"object {waiting[0]!r} is declared without a type")
    return kinds


def _facts(init: str, kinds: Mapping[str, str]) -> Facts:
    """Predicate → argument tuples, each checked against the declared objects."""
    facts: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for atom in re.findall(r"\(([^()]+)\)", init):
        name, *arguments = atom.split()
        expected = PREDICATES.get(name)
        if expected is None:
            if name in IGNORED:
                continue
            raise InputError(f"unknown predicate {name!r} in (:init …)")
        if tuple(kinds.get(argument) for argument in arguments) != expected:
            raise InputError(f"fact ({atom.strip()}): expected arguments of type {' '.join(expected)}, declared before")
        facts[name].append(tuple(arguments))
    return facts


class _Numbering:
    """Numbers for the entities of one kind, in the order of their identifiers."""

    def __init__(self, identifiers: Iterable[str]) -> None:
        self.identifiers = sorted(set(identifiers))
        self.number = {identifier: number for number, identifier in enumerate(self.identifiers)}

    def mask(self, identifiers: Iterable[str]) -> int:
        """The set of the given entities; those that are not numbered are left out."""
        mask = 0
        for identifier in identifiers:
            if (number := self.number.get(identifier)) is not None:
                mask |= 1 << number
        return mask

    def masks(self, pairs: Iterable[tuple[str, str]]) -> dict[str, int]:
        """Pairs (member, group) → group to the set of its members."""
        groups: dict[str, list[str]] = defaultdict(list)
        for member, group in pairs:
            groups[group].append(member)
        return {group: self.mask(members) for group, members in groups.items()}


def _game(facts: Facts, goal: tuple[str, str, str], task: str) -> Game:
    identifiers: dict[str, set[str]] = defaultdict(set)
    for predicate, atoms in facts.items():
        for position, kind in enumerate(PREDICATES[predicate]):
            identifiers[kind].update(atom[position] for atom in atoms)
    objects, receptacles = _Numbering(identifiers["object"]), _Numbering(identifiers["receptacle"])
    here = [atom[1] for atom in facts["atlocation"]]
    if len(here) != 1:
        raise InputError(f"{len(here)} facts (atLocation AGENT …), expected one")
    locations = _Numbering([*here, *(atom[1] for atom in facts["receptacleatlocation"])])

    names = _names([*objects.identifiers, *receptacles.identifiers])
    object_names = tuple(names[identifier] for identifier in objects.identifiers)
    receptacle_names = tuple(names[identifier] for identifier in receptacles.identifiers)
    places = _places(facts, receptacles, locations)
    receptacles_at = tuple(
        tuple(r for r, place in enumerate(places) if place == number) for number in range(len(locations.identifiers))
    )
    kinds_of_objects, kinds_of_receptacles = (
        objects.masks(facts["objecttype"]),
        receptacles.masks(facts["receptacletype"]),
    )
    return Game(
        objects=object_names,
        receptacles=receptacle_names,
        object_numbers={name: number for number, name in enumerate(object_names)},
        receptacle_numbers={name: number for number, name in enumerate(receptacle_names)},
        places=places,
        receptacles_at=receptacles_at,
        accepts=_accepts(facts, objects, receptacles),
        inner={objects.number[outer]: mask for outer, mask in objects.masks(facts["inreceptacleobject"]).items()},
        traits=_traits(facts, objects, kinds_of_objects, receptacles, kinds_of_receptacles),
        goto=_goto(receptacle_names, places, len(receptacles_at)),
        start=_start(facts, objects, receptacles, locations),
        goal=_goal(facts, goal, objects, kinds_of_objects, kinds_of_receptacles),
        task=task,
    )


def _names(identifiers: Sequence[str]) -> dict[str, str]:
    """Identifier → name: class and number, numbers falling in the order of the identifiers."""
    classes = {}
    for identifier in identifiers:
        name, bar, _ = identifier.partition("_bar_")
        if not bar:
            raise InputError(f"identifier {identifier!r} has no '_bar_' after its class")
        classes[identifier] = f"{name}basin" if "basin" in identifier else name
    left = Counter(classes.values())
    names = {}
    for identifier in sorted(classes):
        name = classes[identifier]
        names[identifier] = intern(f"{name} {left[name]}")
        left[name] -= 1
    return names


def _places(facts: Facts, receptacles: _Numbering, locations: _Numbering) -> tuple[int, ...]:
    places = [NOTHING] * len(receptacles.identifiers)
    for receptacle, location in facts["receptacleatlocation"]:
        number = receptacles.number[receptacle]
        if places[number] not in (NOTHING, locations.number[location]):
            raise InputError(f"receptacle {receptacle!r} is at two locations")
        places[number] = locations.number[location]
    return tuple(places)


def _accepts(facts: Facts, objects: _Numbering, receptacles: _Numbering) -> tuple[int, ...]:
    kinds_of_objects = objects.masks(facts["objecttype"])
    accepted: dict[str, int] = defaultdict(int)
    for kind, content in facts["cancontain"]:
        accepted[kind] |= kinds_of_objects.get(content, 0)
    accepts = [0] * len(receptacles.identifiers)
    for receptacle, kind in facts["receptacletype"]:
        accepts[receptacles.number[receptacle]] |= accepted[kind]
    return tuple(accepts)


def _traits(
    facts: Facts,
    objects: _Numbering,
    kinds_of_objects: Mapping[str, int],
    receptacles: _Numbering,
    kinds_of_receptacles: Mapping[str, int],
) -> Traits:
    def objects_with(predicate: str) -> int:
        return objects.mask(atom[0] for atom in facts[predicate])

    return Traits(
        pickupable=objects_with("pickupable"),
        cleanable=objects_with("cleanable"),
        heatable=objects_with("heatable"),
        coolable=objects_with("coolable"),
        sliceable=objects_with("sliceable"),
        toggleable=objects_with("toggleable"),
        knives=kinds_of_objects.get("knifetype", 0) | kinds_of_objects.get("butterknifetype", 0),
        vessels=objects_with("isreceptacleobject"),
        openable=receptacles.mask(atom[0] for atom in facts["openable"]),
        sinks=kinds_of_receptacles.get("sinkbasintype", 0),
        microwaves=kinds_of_receptacles.get("microwavetype", 0),
        fridges=kinds_of_receptacles.get("fridgetype", 0),
    )


def _goto(names: Sequence[str], places: Sequence[int], locations: int) -> tuple[tuple[str, ...], ...]:
    everywhere = sorted(
        (intern(f"go to {name}"), place) for name, place in zip(names, places, strict=True) if place != NOTHING
    )
    return tuple(tuple(command for command, place in everywhere if place != here) for here in range(locations))


def _start(facts: Facts, objects: _Numbering, receptacles: _Numbering, locations: _Numbering) -> State:
    contents = objects.masks(facts["inreceptacle"])
    nearby = objects.masks(facts["objectatlocation"])

    def objects_with(predicate: str) -> int:
        return objects.mask(atom[0] for atom in facts[predicate])

    held = [objects.number[atom[1]] for atom in facts["holds"]]
    if len(held) > 1:
        raise InputError(f"{len(held)} objects in hand, expected one at most")
    return State(
        place=locations.number[facts["atlocation"][0][1]],
        held=held[0] if held else NOTHING,
        opened=receptacles.mask(atom[0] for atom in facts["opened"]),
        contents=tuple(contents.get(identifier, 0) for identifier in receptacles.identifiers),
        nearby=tuple(nearby.get(identifier, 0) for identifier in locations.identifiers),
        taken=(),
        clean=objects_with("isclean"),
        hot=objects_with("ishot"),
        cool=objects_with("iscool"),
        toggled=objects_with("istoggled"),
        sliced=objects_with("issliced"),
    )


def _goal(
    facts: Facts,
    recognised: tuple[str, str, str],
    objects: _Numbering,
    kinds_of_objects: Mapping[str, int],
    kinds_of_receptacles: Mapping[str, int],
) -> Goal:
    family, target, destination = recognised
    targets = kinds_of_objects.get(target, 0)
    if able := {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}.get(family):
        targets &= objects.mask(atom[0] for atom in facts[able])
    if family != "look":
        return Goal(family, targets, members(kinds_of_receptacles.get(destination, 0)), 0)
    lamps = kinds_of_objects.get(destination, 0) & objects.mask(atom[0] for atom in facts["toggleable"])
    return Goal(family, targets, (), lamps)
