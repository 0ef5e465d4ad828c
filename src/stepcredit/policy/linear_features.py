"""Features of the linear policy: what a command looks like in a situation, as hashed indices.

A situation is the task's sentence, the last observation, and what the episode's own history tells: which commands were
tried, what is held, and what has been done to it. All of it is read off the texts, so that it works in any text
environment whose commands start with a verb.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from stepcredit.core.credit import IntArray
from stepcredit.rollouts.types import PastTurn, Request

_WORD = re.compile(r"[a-z]+")
_FUNCTION_WORDS = frozenset(
    ("a", "an", "the", "to", "from", "in", "into", "on", "onto", "with", "at", "of", "and", "it")
)
_TAKING = frozenset(("take", "get", "pick", "grab"))
_RELEASING = frozenset(("put", "move", "drop", "insert", "place", "give"))
_MOVING = frozenset(("go", "look", "examine", "inventory", "open", "close", "walk", "enter", "inspect", "wait"))


@lru_cache(maxsize=100_000)
def words(text: str) -> tuple[str, ...]:
    """Distinct content words of a text, lower-cased, numbers dropped, in alphabetical order."""
    return tuple(sorted(set(_WORD.findall(text.lower())) - _FUNCTION_WORDS))


@lru_cache(maxsize=100_000)
def parts(command: str) -> tuple[str, tuple[str, ...]]:
    """A command's verb and its nouns in order, numbers and function words dropped."""
    found = _WORD.findall(command.lower())
    if not found:
        return "", ()
    return found[0], tuple(word for word in found[1:] if word not in _FUNCTION_WORDS)


@dataclass(slots=True)
class Memory:
    """What an episode's history tells, kept up to date turn by turn.

    Attributes:
        turns: finished turns taken in.
        tried: how often each command was executed.
        tried_here: (observation, command) pairs executed.
        held: first noun of what was taken and not released; empty for nothing.
        done: verbs applied while holding it, in alphabetical order, joined.
        released: things released.
        found: commands after which a word of the goal was in sight that the command does not name.
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
        verb, nouns = parts(past.action)
        if verb in _TAKING and nouns:
            self.held, self.done = nouns[0], ""
        elif verb in _RELEASING and self.held:
            self.held, self.done = "", ""
            self.released += 1
        elif verb not in _MOVING and verb not in self.done.split():
            self.done = " ".join(sorted([*self.done.split(), verb]))


class FeatureHasher:
    """Turns (command, situation) into indices below ``size``; every feature has the value 1.

    Args:
        size: number of weights, a power of two.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._hash_cross = lru_cache(maxsize=200_000)(self._hash_cross_uncached)

    def describe(self, request: Request, memory: Memory) -> tuple[IntArray, IntArray]:
        """Indices of all admissible commands one after the other ``[F]``, and how many each command has ``[A]``."""
        goal, seen = words(request.goal), words(request.observation)
        goal_set, seen_set = frozenset(goal), frozenset(seen)
        held = "" if not memory.held else "wanted" if memory.held in goal_set else "other"
        situation = f"{held}|{memory.done}|{min(memory.released, 2)}"
        rows: list[IntArray] = []
        lengths: list[int] = []
        for command in request.admissible:
            verb, nouns = parts(command)
            tried = min(memory.tried[command], 2)
            here = (request.observation, command) in memory.tried_here
            match = "".join(f"{noun in goal_set:d}{noun in seen_set:d}{noun == memory.held:d}" for noun in nouns)
            shape = f"{verb}|{match}|{situation}|{tried}{here:d}"
            name = f"{verb} {' '.join(nouns)}"
            crossed = (
                self._hash_cross("shape", shape, goal),
                self._hash_cross(f"{situation}|{tried}", name, goal),
                self._hash_cross("seen", verb, seen),
                *(self._hash_cross("seen", noun, seen) for noun in nouns),
            )
            rows.extend(crossed)
            lengths.append(sum(map(len, crossed)))
        return np.concatenate(rows), np.array(lengths, dtype=np.int32)

    def _hash_cross_uncached(self, kind: str, left: str, right: tuple[str, ...]) -> IntArray:
        """``left`` alone and together with every word of ``right``."""
        texts = [f"{kind}\0{left}", *(f"{kind}\0{left}\0{word}" for word in right)]
        return np.array([zlib.crc32(text.encode()) & (self.size - 1) for text in texts], dtype=np.int32)
