"""Features of the linear policy: what a command looks like in a situation, as hashed indices.

A situation is the task's sentence, the last observation, and what the episode's own history tells: which commands were
tried, what is held, and what was done with it. All of it is read off the texts, so that it works wherever a command is
a verb with its nouns. Numbers are dropped: what is learnt about one cabinet holds for all of them.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from stepcredit.core.credit import IntArray
from stepcredit.rollouts.types import PastTurn

_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = frozenset(
    ("a", "an", "and", "at", "from", "in", "into", "it", "of", "on", "onto", "the", "to", "with")
)
_TAKING = frozenset(("get", "grab", "pick", "take"))
_RELEASING = frozenset(("drop", "give", "insert", "move", "place", "put"))
_LOOKING = frozenset(("close", "enter", "examine", "go", "inspect", "inventory", "look", "open", "wait", "walk"))
"""Verbs that neither move nor change what is held."""

_MANY = 2
"""Counts are told apart up to this."""


@lru_cache(maxsize=100_000)
def content_words(text: str) -> tuple[str, ...]:
    """Distinct words of a text in alphabetical order, lower-cased, without numbers and function words."""
    return tuple(sorted(set(_WORD.findall(text.lower())) - _FUNCTION_WORDS))


@lru_cache(maxsize=100_000)
def verb_and_nouns(command: str) -> tuple[str, tuple[str, ...]]:
    """A command's first word, and its other content words in order; ``("", ())`` for a command without words."""
    verb, *others = _WORD.findall(command.lower()) or [""]
    return verb, tuple(word for word in others if word not in _FUNCTION_WORDS)


class Situation(NamedTuple):
    """What the history comes to, whatever the command.

    Attributes:
        goal: the task's sentence.
        held: first noun of what was taken and not released; empty for nothing.
        done: verbs of other kinds executed since the last taking or releasing, in alphabetical order, joined by spaces.
        released: how many things were released, up to ``_MANY``.
    """

    goal: str
    held: str
    done: str
    released: int


@dataclass(slots=True)
class Memory:
    """What an episode's history tells, kept up to date turn by turn.

    Attributes:
        turns: finished turns taken in.
        tried: how often each command was executed.
        tried_here: (observation, command) pairs executed.
        held, done, released: see ``Situation``.
    """

    turns: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    tried_here: set[tuple[str, str]] = field(default_factory=set)
    held: str = ""
    done: str = ""
    released: int = 0

    def take_in(self, past: PastTurn) -> None:
        """Add one finished turn."""
        self.turns += 1
        self.tried[past.action] += 1
        self.tried_here.add((past.observation, past.action))
        verb, nouns = verb_and_nouns(past.action)
        if verb in _TAKING and nouns:
            self.held, self.done = nouns[0], ""
        elif verb in _RELEASING and self.held:
            self.held, self.done = "", ""
            self.released += 1
        elif verb and verb not in _LOOKING:
            self.done = " ".join(sorted({*self.done.split(), verb}))


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A command as a situation sees it; one object for each, compared by identity, which costs no hashing of words.

    Attributes:
        verb, nouns: of the command.
        in_sight: whether the observation names each noun.
    """

    verb: str
    nouns: tuple[str, ...]
    in_sight: tuple[bool, ...]


class FeatureHasher:
    """Turns commands in a situation into indices below ``size``; every feature has the value 1.

    Args:
        size: number of weights, a power of two.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # By observation, then by command: its shape there, and the features that depend on nothing else.
        self._by_sight: Callable[[str], dict[str, tuple[Shape, IntArray]]] = _tables()
        self._by_situation: Callable[[Situation], dict[tuple[Shape, int, bool], IntArray]] = _tables()
        self._shape = lru_cache(maxsize=100_000)(Shape)
        self._hashed = lru_cache(maxsize=200_000)(self._hash)

    def describe(
        self, goal: str, observation: str, admissible: Sequence[str], memory: Memory
    ) -> tuple[IntArray, IntArray]:
        """Features of all commands one after the other, ``[F]`` indices, and how many each command has, ``[C]``."""
        situation = Situation(goal, memory.held, memory.done, min(memory.released, _MANY))
        by_sight, by_situation = self._by_sight(observation), self._by_situation(situation)
        rows: list[IntArray] = []
        lengths: list[int] = []
        for command in admissible:
            sight = by_sight.get(command)
            if sight is None:
                sight = by_sight[command] = self._describe_sight(command, observation)
            # Asked with ``get``, since a Counter's own default is a call in Python.
            key = sight[0], min(memory.tried.get(command, 0), _MANY), (observation, command) in memory.tried_here
            own = by_situation.get(key)
            if own is None:
                own = by_situation[key] = self._describe_situation(key[0], situation, key[1:])
            rows += (sight[1], own)
            lengths.append(len(sight[1]) + len(own))
        return np.concatenate(rows), np.array(lengths, dtype=np.int32)

    def _describe_sight(self, command: str, observation: str) -> tuple[Shape, IntArray]:
        """Which of the command's nouns are in sight, and its verb with every word in sight."""
        verb, nouns = verb_and_nouns(command)
        seen = content_words(observation)
        return self._shape(verb, nouns, tuple(noun in seen for noun in nouns)), self._hashed("sight", verb, seen)

    def _describe_situation(self, shape: Shape, situation: Situation, tried: tuple[int, bool]) -> IntArray:
        """Three descriptions, from fine to coarse, so that what is learnt in one case helps in others.

        1. The verb, how each noun relates to the goal, to what is in sight and to what is held, what was done and
           tried; alone and with every word of the goal.
        2. Verb and nouns with whether the held thing is wanted; alone and with every word of the goal.
        3. As 1, without the verb: whether the goal names it, and whether it only looks around.
        """
        verb, nouns = shape.verb, shape.nouns
        goal = content_words(situation.goal)
        held = situation.held and ("wanted" if situation.held in goal else "unwanted")
        match = tuple(
            (noun in goal, seen, noun == situation.held) for noun, seen in zip(nouns, shape.in_sight, strict=True)
        )
        fine = f"{verb} {match} {held} {situation.done} {situation.released} {tried}"
        coarse = f"{verb in goal} {verb in _LOOKING} {match} {bool(held)} {bool(situation.done)} {tried}"
        return np.concatenate(
            [
                self._hashed("deed", fine, goal),
                self._hashed("name", f"{verb} {' '.join(nouns)} {held}", goal),
                self._hashed("kind", coarse, ()),
            ]
        )

    def _hash(self, kind: str, text: str, words: tuple[str, ...]) -> IntArray:
        """A text alone, and together with every word."""
        texts = [f"{kind}\0{text}", *(f"{kind}\0{text}\0{word}" for word in words)]
        return np.array([zlib.crc32(one.encode()) & (self._size - 1) for one in texts], dtype=np.int32)


def _tables() -> Callable[[Any], dict[Any, Any]]:
    """An empty dictionary for every new key; those asked for last are kept."""
    return lru_cache(maxsize=20_000)(lambda key: {})
