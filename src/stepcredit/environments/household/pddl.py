"""Reading an ALFWorld problem: the facts it states, checked, and its goal formula."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from stepcredit.core.errors import InputError

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

WITHOUT_EFFECT = (
    *("checked", "distance", "examined", "full", "holdsany", "holdsanyreceptacleobject"),
    *("isreceptacleobjectfull", "ison", "moveable", "total-cost", "wasinreceptacle"),
)
"""Predicates and functions of the domain that no command, text or goal of ours depends on."""


_SECTIONS = ("objects", "init", "goal")


class Problem(NamedTuple):
    """A problem, all in lower case.

    Attributes:
        facts: predicate → the argument tuples it holds for at the start; every predicate is there.
        goal: the goal formula.
    """

    facts: Mapping[str, list[tuple[str, ...]]]
    goal: str


def read_problem(text: str) -> Problem:
    """Read a problem in PDDL.

    Args:
        text: a whole ``(define (problem …) …)``; upper and lower case are one.

    Raises:
        InputError: no such problem; the message says what is wrong, without a file name.
    """
    text = re.sub(r";[^\n]*", "", text).lower()
    starts = [text.find(f"(:{name}") for name in _SECTIONS]
    if -1 in starts or starts != sorted(starts):
        raise InputError("expected the sections (:objects …), (:init …) and (:goal …), in this order")
    objects, init, goal = (_section(text, start, name) for start, name in zip(starts, _SECTIONS, strict=True))
    return Problem(_facts(init, _types(objects)), goal)


def _section(text: str, start: int, name: str) -> str:
    """The inside of the section ``(:name …)`` that begins at ``start``."""
    inside = start + len(f"(:{name}")
    depth = 1
    for match in re.finditer(r"[()]", text[inside:]):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return text[inside : inside + match.start()]
    raise InputError(f"the section (:{name} …) is not closed")


def _types(objects: str) -> dict[str, str]:
    """Object → type, from a typed list ``a b - type c - type``."""
    types: dict[str, str] = {}
    waiting: list[str] = []
    words = iter(objects.split())
    for word in words:
        if word == "-":
            types.update(dict.fromkeys(waiting, next(words, "")))
            waiting = []
        else:
            waiting.append(word)
    if waiting:
        raise InputError(f"object {waiting[0]!r} is declared without a type")
    return types


def _facts(init: str, types: Mapping[str, str]) -> dict[str, list[tuple[str, ...]]]:
    """The facts, with arguments checked against the declared objects."""
    facts: dict[str, list[tuple[str, ...]]] = {predicate: [] for predicate in PREDICATES}
    for atom in re.findall(r"\(([^()]*)\)", init):
        predicate, *arguments = atom.split() or [""]
        if predicate in WITHOUT_EFFECT:
            continue
        expected = PREDICATES.get(predicate)
        if expected is None:
            raise InputError(f"fact ({atom.strip()}) has an unknown predicate")
        if tuple(map(types.get, arguments)) != expected:
            raise InputError(f"fact ({atom.strip()}): expected declared objects of type {', '.join(expected)}")
        facts[predicate].append(tuple(arguments))
    return facts
