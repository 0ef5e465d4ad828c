"""A small world with known success probabilities, to drive whole rounds of the allocator."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.allocation import (
    AllocationSettings,
    Allocator,
    Quota,
    RootOutcome,
    StateGroup,
    Suffixes,
    SuffixOutcome,
    Visits,
)
from stepcredit.core.episodes import Parent

HORIZON = 12
SMALL = AllocationSettings(tasks=5, pool=12, particles=64, max_suffixes=8, memory=200)


@dataclass(frozen=True)
class Task:
    id: str
    goal: str


class NearEncoder:
    """Texts with the same word before "/" lie at cosines around .98, others far apart."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self._vector(text) for text in texts])

    @staticmethod
    def _vector(text: str) -> np.ndarray:
        def draw(word: str) -> np.ndarray:
            return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(32)

        vector = draw(text.partition("/")[0]) + 0.15 * draw(text)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


TASKS = [Task(f"task {number}", f"goal {number % 4}/{number}") for number in range(30)]


@dataclass(frozen=True)
class Round:
    """What one round chose and what came of it."""

    quotas: list[Quota]
    suffixes: list[Suffixes]
    roots: list[RootOutcome]
    branches: list[SuffixOutcome]
    visited: list[StateGroup]


def success_rate(task: str) -> float:
    return (int(task.split()[1]) % 6) / 5


def play_round(allocator: Allocator, number: int, tasks: Sequence[Task] = TASKS) -> Round:
    """Choose, pretend to play, observe, with a budget of 20 + 24. ``number`` seeds the world's luck."""
    rng = np.random.default_rng([99, number])
    quotas = allocator.choose_roots(tasks, 20)
    roots, visited = [], []
    for task, rollouts in quotas:
        won = [bool(x) for x in rng.random(rollouts) < success_rate(task)]
        roots.append(RootOutcome(task, sum(won), rollouts - sum(won)))
        for state in range(8):
            passed = [e for e in range(rollouts) if state == 0 or rng.random() < 0.4]
            visits = tuple(Visits(f"{task} {number} {e}", int(won[e]), int(not won[e])) for e in passed)
            if visits:
                occurrence = Parent(visits[0].cluster, state)
                text = f"room {state}/{task} {rng.integers(2)}"
                visited.append(StateGroup(task, text, state, HORIZON, occurrence, visits))
    suffixes = allocator.choose_branches(visited, 24)
    task_at = {group.occurrence: group.task for group in visited}
    branches = []
    for occurrence, quota in suffixes:
        successes = int(rng.binomial(quota, success_rate(task_at[occurrence])))
        branches.append(SuffixOutcome(occurrence, successes, quota - successes))
    allocator.observe_roots(roots)
    allocator.observe_branches(branches, visited)
    return Round(quotas, suffixes, roots, branches, visited)


def play(allocator: Allocator, rounds: range) -> list[Round]:
    return [play_round(allocator, number) for number in rounds]
