"""The fitted mixture: how much each component of the grid is believed, from the groups of *other* tasks.

    log w = Σ_g c_g · log[ C(s+f, s) · B(A_g+s, B_g+f) / B(A_g, B_g) ] + constant,   c_g = λ^age / n

over complete groups g; n is the number of groups of that task in that round, A_g and B_g come from the evidence as it
was before the group, and the groups of the last finished round have age 0.

Source: TSBPO §4 and appendix C.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stepcredit.allocation.grid import Evidence, Grid, single_component
from stepcredit.core.credit import FloatArray

NEGLIGIBLE = 1e-12
"""Weight below which an old group is no longer recomputed."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Components and their normalised weights.

    Attributes:
        grid: the components.
        weight: ``grid.shape``, sums to 1.
    """

    grid: Grid
    weight: FloatArray

    def weight_along(self, shape: tuple[int, ...]) -> FloatArray:
        """Weights summed over the axes that ``shape`` has collapsed to length 1."""
        axes = tuple(axis for axis, length in enumerate(shape) if length == 1 < self.weight.shape[axis])
        summed: FloatArray = self.weight.sum(axis=axes, keepdims=True)
        return summed


class Group(NamedTuple):
    """One complete group: what was known before it, and its outcomes."""

    task: str
    evidence: Evidence
    successes: int
    failures: int


class _Record(NamedTuple):
    """A group as the fit keeps it; ``weight`` is 1/n."""

    task: int
    round: int
    weight: float
    evidence: Evidence
    successes: int
    failures: int


class MixtureFit:
    """Running sums of weighted log-likelihoods that can leave any one task out.

    Tasks are dealt round-robin, in order of arrival, onto a fixed number of *shelves*; each shelf holds the running
    sum of its tasks' groups. A task is left out by adding up the other shelves and, where tasks share its shelf,
    recomputing those: its own numbers never enter, so excluding it is exact to the bit. A group's log-likelihood is
    computed once when it arrives, a round costs one scaling of the shelves, and neither depends on the history's
    length.

    Args:
        grid: components.
        decay: λ, the factor per round in (0, 1].
        shelves: how many running sums are kept (256 × 19,375 float64 are 40 MB).
    """

    def __init__(self, grid: Grid, decay: float, shelves: int = 256) -> None:
        self.grid = grid
        self.decay = decay
        self._sums = np.zeros((shelves, *grid.shape))
        self._round = 0  # the round in which the sums' newest groups have weight 1/n
        self._tasks: dict[str, int] = {}
        self._with_history: list[int] = []  # per task: groups whose evidence had history
        self._with_semantic: list[int] = []
        self._records: list[deque[_Record]] = [deque() for _ in range(shelves)]

    def observe(self, round_: int, groups: Sequence[Group]) -> None:
        """Add the complete groups of one finished round; rounds come in ascending order."""
        if not groups:
            return
        self._sums[: len(self._tasks)] *= self.decay ** (round_ - self._round)
        self._round = round_
        groups_of = Counter(group.task for group in groups)
        for group in groups:
            task = self._task_index(group.task)
            shelf = task % len(self._sums)
            record = _Record(task, round_, 1 / groups_of[group.task], *group[1:])
            self._sums[shelf] += self._term(record, 1.0)
            self._records[shelf].append(record)
            self._with_history[task] += group.evidence.has_history
            self._with_semantic[task] += group.evidence.has_semantic
        self._forget_negligible()

    def mixtures(self, round_: int, tasks: Sequence[str]) -> Iterator[Mixture]:
        """The mixture each task sees in a round, fitted on all other tasks' groups of earlier rounds.

        With fewer than two other tasks: the single component Beta(½, ½). If none of the others' groups had history,
        only η = 1 remains; if none had semantic evidence, only ρ = 0. Tasks that never had a group share one object.
        """
        scale = self.decay ** (round_ - 1 - self._round)
        index = [self._tasks.get(task) for task in tasks]
        shelves = sorted({task % len(self._sums) for task in index if task is not None})
        sums = self._sums_without(shelves)
        unseen = self._mixture(None, scale * sums[None], round_)
        for task in index:
            if task is None:
                yield unseen
            else:
                yield self._mixture(task, scale * sums[task % len(self._sums)], round_)

    def state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Everything but the grid: plain values, and arrays; the running sums are a view."""
        records = [(shelf, record) for shelf, held in enumerate(self._records) for record in held]
        values = {
            "round": self._round,
            "tasks": list(self._tasks),
            "with_history": self._with_history,
            "with_semantic": self._with_semantic,
        }
        table = [
            (shelf, record.task, record.round, record.weight, *record.evidence, record.successes, record.failures)
            for shelf, record in records
        ]
        used = min(len(self._tasks), len(self._sums))
        return values, {"sums": self._sums[:used], "records": np.array(table, dtype=np.float64).reshape(-1, 12)}

    def load(self, values: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> None:
        """Become what ``state`` described."""
        self._round = values["round"]
        self._tasks = {name: number for number, name in enumerate(values["tasks"])}
        self._with_history = list(values["with_history"])
        self._with_semantic = list(values["with_semantic"])
        used = len(arrays["sums"])
        self._sums[:used], self._sums[used:] = arrays["sums"], 0
        for held in self._records:
            held.clear()
        for shelf, task, round_, weight, *evidence, successes, failures in arrays["records"].tolist():
            record = _Record(int(task), int(round_), weight, Evidence(*evidence), int(successes), int(failures))
            self._records[int(shelf)].append(record)

    def _task_index(self, name: str) -> int:
        task = self._tasks.setdefault(name, len(self._tasks))
        if task == len(self._with_history):
            self._with_history.append(0)
            self._with_semantic.append(0)
        return task

    def _term(self, record: _Record, decayed: float) -> FloatArray:
        likelihood = self.grid.log_likelihood(record.evidence, record.successes, record.failures)
        return likelihood * (record.weight * decayed)

    def _sums_without(self, shelves: Sequence[int]) -> dict[int | None, FloatArray]:
        """The sum of all shelves but one, for each of ``shelves``, and of all of them under None."""
        used = min(len(self._tasks), len(self._sums))
        without: dict[int | None, FloatArray] = {}
        running = np.zeros(self.grid.shape)
        for shelf in range(used):
            if shelf in shelves:
                without[shelf] = running.copy()
            running += self._sums[shelf]
        without[None] = running.copy()
        running[:] = 0
        for shelf in reversed(range(used)):
            if shelf in without:
                without[shelf] += running
            running += self._sums[shelf]
        return without

    def _mixture(self, task: int | None, log_weight: FloatArray, round_: int) -> Mixture:
        """The mixture without one task, given (a scratch copy of) the sum of the shelves it is not on."""
        known = task is not None
        if len(self._tasks) - known < 2:
            grid = single_component(0.5, 0.5)
            return Mixture(grid, np.ones(grid.shape))
        others_history, others_semantic = sum(self._with_history), sum(self._with_semantic)
        if task is not None:
            others_history -= self._with_history[task]
            others_semantic -= self._with_semantic[task]
            for record in self._records[task % len(self._sums)]:
                if record.task != task:
                    log_weight += self._term(record, self.decay ** (round_ - 1 - record.round))
        grid, index = self.grid.narrowed(
            history_trust=None if others_history else 1.0, semantic_trust=None if others_semantic else 0.0
        )
        weight = np.exp(log_weight[index] - log_weight[index].max())
        return Mixture(grid, weight / weight.sum())

    def _forget_negligible(self) -> None:
        if self.decay == 1:
            return
        oldest = self._round - math.log(NEGLIGIBLE) / math.log(self.decay)
        for held in self._records:
            while held and held[0].round < oldest:
                held.popleft()
