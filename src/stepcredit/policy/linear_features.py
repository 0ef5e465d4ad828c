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

import os

SEEN = os.environ.get("SEEN")
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
        self._seen = lru_cache(maxsize=100_000)(self._seen_uncached)
        self._acting = lru_cache(maxsize=100_000)(self._acting_uncached)
        self._hash_cross = lru_cache(maxsize=200_000)(self._hash_cross_uncached)

    def describe(self, goal, observation, admissible, memory: Memory) -> tuple[IntArray, IntArray]:
        """Indices of all admissible commands one after the other ``[F]``, and how many each command has ``[A]``."""
        situation = (goal, memory.held, memory.done, min(memory.released, 2))
        tried, tried_here = memory.tried, memory.tried_here
        rows: list[IntArray] = []
        lengths: list[int] = []
        for command in admissible:
            kind, in_sight, seen_row = self._seen(command, observation)
            often = tried[command]
            row = self._acting(
                kind, in_sight, situation, often if often < 2 else 2, (observation, command) in tried_here
            )
            rows += (seen_row, row)
            lengths.append(len(seen_row) + len(row))
        return np.concatenate(rows), np.array(lengths, dtype=np.int32)

    def _seen_uncached(self, command: str, observation: str):
        verb, nouns = parts(command)
        seen = words(observation)
        V = os.environ.get("V", "1345")
        out = [self._hash_cross("seen", verb, seen)]
        if "8" in V:
            out.append(self._hash_cross("sn", f"{verb} {nouns}", seen))
        return (verb, nouns), "".join("01"[noun in seen] for noun in nouns), np.concatenate(out)

    def _acting_uncached(self, kind, in_sight, situation, tried, here):
        verb, nouns = kind
        goal, held_noun, done, released = situation
        goal = words(goal)
        goal_set = frozenset(goal)
        held = "" if not held_noun else "wanted" if held_noun in goal_set else "other"
        match = "".join(f"{noun in goal_set:d}{seen}{noun == held_noun:d}" for noun, seen in zip(nouns, in_sight))
        situation = f"{held}|{done}|{released}"
        shape = f"{verb}|{match}|{situation}|{tried}{here:d}"
        name = f"{verb} {' '.join(nouns)}"
        V = os.environ.get("V", "1345")
        out = []
        if "1" in V:
            out.append(self._hash_cross("shape", shape, ()))
        if "2" in V:
            out.append(self._hash_cross("shape", shape, goal))
        if "3" in V:
            out.append(self._hash_cross(f"{situation}|{tried}", name, goal))
        if "5" in V:
            out.append(
                self._hash_cross(
                    "any",
                    f"{verb in goal_set:d}{verb in _MOVING:d}|{match}|{bool(held_noun):d}{bool(done):d}|{tried}{here:d}",
                    (),
                )
            )
        if "6" in V:
            out.append(self._hash_cross(f"{held}", name, goal))
        if "7" in V:
            out.append(self._hash_cross("vt", f"{verb}|{tried}{here}", ()))
        if "9" in V:
            out.append(self._hash_cross("hv", f"{verb}|{held}", goal))
        if "b" in V:
            out.append(self._hash_cross("hd", f"{verb}|{bool(done)}|{held}", goal))
        if "c" in V:
            out.append(self._hash_cross("nd", f"{name}|{done}|{held}", ()))
        if "d" in V:
            out.append(
                self._hash_cross(
                    "s2",
                    f"{verb}|{match}|{situation}|{tried}{here:d}|{len(nouns)}|{released}",
                    tuple(w for w in goal if w in GW),
                )
            )
        return np.concatenate(out)

    def _hash_cross_uncached(self, kind: str, left: str, right: tuple[str, ...]) -> IntArray:
        """``left`` alone and together with every word of ``right``."""
        texts = [f"{kind}\0{left}", *(f"{kind}\0{left}\0{word}" for word in right)]
        return np.array([zlib.crc32(text.encode()) & (self.size - 1) for text in texts], dtype=np.int32)


GW = {"clean", "hot", "heat", "cool", "two", "examine", "look"}
