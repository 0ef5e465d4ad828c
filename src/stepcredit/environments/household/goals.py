"""The six families of household tasks: what each asks for, as PDDL and as a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepcredit.core.errors import InputError

TASK_TYPES = {
    "pick": "pick_and_place_simple",
    "look": "look_at_obj_in_light",
    "clean": "pick_clean_then_place_in_recep",
    "heat": "pick_heat_then_place_in_recep",
    "cool": "pick_cool_then_place_in_recep",
    "pick2": "pick_two_obj_and_place",
}
"""Family, as the papers' tables call it → task type, as the official data calls it."""

FAMILIES = tuple(TASK_TYPES)

NEEDED_CAPABILITY = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
"""Family → the predicate its target must satisfy to be treated; the other families ask for none."""

SENTENCES = {
    "pick": ("put a {target} in {destination}.", "put some {target} on {destination}."),
    "look": ("look at {target} under the {destination}.", "examine the {target} with the {destination}."),
    "clean": ("put a clean {target} in {destination}.", "clean some {target} and put it in {destination}."),
    "heat": ("put a hot {target} in {destination}.", "heat some {target} and put it in {destination}."),
    "cool": ("put a cool {target} in {destination}.", "cool some {target} and put it in {destination}."),
    "pick2": ("put two {target} in {destination}.", "find two {target} and put them in {destination}."),
}
"""The benchmark's two sentences for each family."""


def _treated(able: str, done: str) -> str:
    return (
        f"(and (exists (?r - receptacle) (exists (?o - object) (and ({able} ?o) (objectType ?o {{target}}Type) "
        f"(receptacleType ?r {{destination}}Type) ({done} ?o) (inReceptacle ?o ?r)))))"
    )


FORMULAS = {
    "pick": (
        "(and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) "
        "(objectType ?o {target}Type) (receptacleType ?r {destination}Type)))))"
    ),
    "look": (
        "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
        "(objectType ?ot {destination}Type) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) "
        "(atLocation ?a ?l) (inReceptacle ?ot ?r))) "
        "(exists (?o - object ?a - agent) (and (objectType ?o {target}Type) (holds ?a ?o))))"
    ),
    "clean": _treated("cleanable", "isClean"),
    "heat": _treated("heatable", "isHot"),
    "cool": _treated("coolable", "isCool"),
    "pick2": (
        "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {target}Type) "
        "(receptacleType ?r {destination}Type) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and "
        "(not (= ?o1 ?o2)) (objectType ?o2 {target}Type) (receptacleType ?r {destination}Type) "
        "(inReceptacle ?o2 ?r)))))))"
    ),
}
"""The goal formula of each family, in the official order of its atoms. ``destination`` is the lamp for ``look``."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What wins a game.

    Attributes:
        family: one of ``FAMILIES``.
        targets: objects of the asked kind that can be treated as the family demands (bit mask).
        destinations: receptacles of the asked kind; empty for ``look``.
        lamps: objects that must shine on the target; empty except for ``look`` (bit mask).
    """

    family: str
    targets: int
    destinations: tuple[int, ...]
    lamps: int


def recognise(formula: str) -> tuple[str, str, str]:
    """Family, target type and destination type of a goal formula, types in lower case ("mugtype").

    Raises:
        InputError: the formula is none of the six.
    """
    normal = _normalise(formula)
    for family, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(normal):
            return family, match["target"], match["destination"]
    raise InputError(f"the goal is none of the six families' formulas: {normal[:200]}")


def _normalise(formula: str) -> str:
    return re.sub(r"\s*([()])\s*", r"\1", " ".join(formula.lower().split()))


def _pattern(formula: str) -> re.Pattern[str]:
    """The formula with its two types left open; a type's second occurrence must repeat the first."""
    pattern = re.escape(_normalise(formula))
    for name in ("target", "destination"):
        hole = re.escape(f"{{{name}}}type")
        pattern = pattern.replace(hole, rf"(?P<{name}>[^\s()]+)", 1).replace(hole, f"(?P={name})")
    return re.compile(pattern)


_PATTERNS = {family: _pattern(formula) for family, formula in FORMULAS.items()}
