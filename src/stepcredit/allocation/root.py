"""The Root side of the allocator: chooses tasks and quotas, and learns which tasks give mixed outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepcredit.allocation.calibration import Calibration
from stepcredit.allocation.contrast import (
    affordable,
    contrast_gains,
    contrast_probability,
    draw_pool,
    draw_without_replacement,
    fitted_quotas,
    selection_weights,
    uniform_quotas,
)
from stepcredit.allocation.grid import Evidence, mixture_grid
from stepcredit.allocation.memory import RowArray, TaskMemory
from stepcredit.allocation.mixture import Group, Mixture, MixtureFit
from stepcredit.allocation.semantic import encode, root_masses
from stepcredit.allocation.settings import AllocationSettings, Quota, RootOutcome, TaskInfo
from stepcredit.core.credit import FloatArray
from stepcredit.core.encoder import Encoder
from stepcredit.core.errors import InputError


class _Choice(NamedTuple):
    """A quota whose outcomes are awaited."""

    quota: int
    evidence: Evidence
    prediction: float  # of mixed outcomes


class RootAllocation:
    """See the module docstring.

    Args:
        settings: see ``AllocationSettings``.
        tasks: memory of tasks; this side adds tasks and their outcomes to it.
        encoder: sentence encoder of goals, or None for no semantic evidence.
    """

    def __init__(self, settings: AllocationSettings, tasks: TaskMemory, encoder: Encoder | None) -> None:
        self._settings = settings
        self._tasks = tasks
        self._encoder = encoder
        self._fit = MixtureFit(mixture_grid(semantic=encoder is not None), settings.root_decay)
        self._calibration = Calibration()
        self._means: dict[str, float] = {}
        self.pending: dict[str, _Choice] = {}

    def choose(self, round_: int, tasks: Sequence[TaskInfo], budget: int, rng: np.random.Generator) -> list[Quota]:
        """See ``Allocator.choose_roots``."""
        settings = self._settings
        drawn = draw_pool(self._tasks.revisited([task.id for task in tasks]), settings.pool, rng)
        pool = [tasks[position] for position in drawn]
        self.pending = {}
        size = affordable(min(settings.tasks, len(pool)), budget)
        if not size:
            return []
        self._remember(pool)
        names = [task.id for task in pool]
        mixtures = list(self._fit.mixtures(round_, names))
        evidence = self._evidence(round_, names)
        utility = self._utilities(mixtures, evidence)
        if settings.root == "fitted":
            weight = selection_weights(utility, exploration=settings.exploration, temperature=settings.temperature)
            chosen = draw_without_replacement(weight, size, rng).tolist()
            quotas = fitted_quotas([contrast_gains(mixtures[task], evidence[task]) for task in chosen], budget)
        else:
            chosen = rng.permutation(len(pool))[:size].tolist()
            quotas = uniform_quotas(size, budget)
        for task, count in zip(chosen, quotas, strict=True):
            prediction = contrast_probability(mixtures[task], evidence[task], count)
            self.pending[names[task]] = _Choice(count, evidence[task], prediction)
        self._means = {"pool": float(utility.mean()), "selected": float(utility[chosen].mean())}
        return [Quota(names[task], count) for task, count in zip(chosen, quotas, strict=True)]

    def observe(self, round_: int, outcomes: Sequence[RootOutcome]) -> None:
        """See ``Allocator.observe_roots``."""
        groups, predictions = [], []
        for task, successes, failures in outcomes:
            choice = self.pending.pop(task, None)
            if choice is None:
                raise InputError(f"Outcomes of task {task!r}, which has no quota in this round or was reported before.")
            if successes + failures == choice.quota:
                groups.append(Group(task, choice.evidence, successes, failures))
                predictions.append((choice.prediction, successes > 0 and failures > 0))
                self._tasks.observe(round_, self._tasks.row(task), successes, failures)
        self.pending = {}
        self._fit.observe(round_, groups)
        self._calibration.add(predictions)

    def diagnostics(self) -> dict[str, Any]:
        """Calibration of U at the quotas, and the mean of U at ``reference_rollouts`` over the last pool and choice."""
        return {**self._calibration.summary(), "probability": dict(self._means)}

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values, and arrays."""
        values, arrays = self._fit.state()
        return {"fit": values, "means": dict(self._means)}, {**arrays, **self._calibration.state()}

    def load(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` described."""
        self._fit.load(values["fit"], arrays)
        self._calibration.load(arrays)
        self._means = dict(values["means"])
        self.pending = {}

    def _remember(self, pool: Sequence[TaskInfo]) -> None:
        """Give new tasks of the pool their row."""
        new = [pool[position] for position in self._tasks.unknown([task.id for task in pool])]
        if new:
            self._tasks.add([task.id for task in new], encode(self._encoder, [task.goal for task in new]))

    def _evidence(self, round_: int, names: Sequence[str]) -> list[Evidence]:
        rows: RowArray = np.array([self._tasks.row(name) for name in names], dtype=np.int64)
        history = self._tasks.history(round_)
        masses = np.zeros((len(rows), 2))
        if self._encoder is not None:
            cosine = (self._tasks.goals[rows] @ self._tasks.goals.T).astype(np.float64)
            cosine[np.arange(len(rows)), rows] = -1
            masses = root_masses(cosine, history)
        return [
            Evidence(won, lost, semantic_success=lent_won, semantic_failure=lent_lost)
            for (won, lost), (lent_won, lent_lost) in zip(history[rows].tolist(), masses.tolist(), strict=True)
        ]

    def _utilities(self, mixtures: Sequence[Mixture], evidence: Sequence[Evidence]) -> FloatArray:
        """``[M]`` U at ``reference_rollouts``; tasks that share mixture and evidence are computed once."""
        known: dict[tuple[int, Evidence], float] = {}
        utility = np.zeros(len(mixtures))
        for task, (mixture, seen) in enumerate(zip(mixtures, evidence, strict=True)):
            key = (id(mixture), seen)
            if key not in known:
                known[key] = sum(islice(contrast_gains(mixture, seen), self._settings.reference_rollouts - 1))
            utility[task] = known[key]
        return utility
