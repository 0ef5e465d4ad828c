"""The Branch side of the allocator: chooses states and suffixes, and learns which states suffixes convert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepcredit.allocation.calibration import Calibration
from stepcredit.allocation.grid import Evidence, mixture_grid
from stepcredit.allocation.memory import NOT_REMEMBERED, Outcomes, RowArray, StateMemory, TaskMemory, VectorArray
from stepcredit.allocation.mixture import Group, Mixture, MixtureFit
from stepcredit.allocation.particles import ClusterCounts, conversion_curves, draw_particles, success_probabilities
from stepcredit.allocation.semantic import branch_masses, encode, state_donors
from stepcredit.allocation.settings import AllocationSettings, Suffixes, SuffixOutcome
from stepcredit.allocation.states import StateGroup, identity
from stepcredit.allocation.suffixes import best_suffixes, random_suffixes
from stepcredit.core.credit import FloatArray
from stepcredit.core.encoder import Encoder
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import InputError


class _Choice(NamedTuple):
    """Suffixes whose outcomes are awaited."""

    task: str
    quota: int
    evidence: Evidence
    succeeded: bool  # the factual outcomes
    prediction: float  # of at least one opposite outcome


class BranchAllocation:
    """See the module docstring.

    Args:
        settings: see ``AllocationSettings``.
        seed: fixes every draw together with the round.
        tasks: memory of tasks, kept by the Root side; gives the goals' vectors.
        encoder: sentence encoder of states, or None for no semantic evidence.
    """

    def __init__(self, settings: AllocationSettings, seed: int, tasks: TaskMemory, encoder: Encoder | None) -> None:
        self._settings = settings
        self._seed = seed
        self._tasks = tasks
        self._encoder = encoder
        self._states = StateMemory(settings.branch_decay, settings.memory)
        self._fit = MixtureFit(mixture_grid(semantic=encoder is not None), settings.branch_decay)
        self._calibration = Calibration()
        self._means: dict[str, float] = {}
        self._vectors: dict[str, VectorArray] = {}  # of this round's states that are not remembered yet
        self.pending: dict[Parent, _Choice] = {}

    @property
    def remembered(self) -> int:
        """Number of states held in memory."""
        return len(self._states)

    def choose(
        self, round_: int, groups: Sequence[StateGroup], budget: int, rng: np.random.Generator
    ) -> list[Suffixes]:
        """See ``Allocator.choose_branches``."""
        settings = self._settings
        self.pending = {}
        if settings.branch == "none":
            return []
        candidates = sorted(
            (group for group in groups if group.branchable and self._capacity(group) >= settings.opening),
            key=lambda group: identity(self._seed, round_, group.task, group.state),
        )
        if not candidates or budget < settings.opening:
            return []
        evidence, curves = self._conversion(round_, candidates)
        capacity = np.array([self._capacity(group) for group in candidates], dtype=np.int64)
        if settings.branch == "fitted":
            suffixes = best_suffixes(curves, capacity, budget, settings.opening)
        else:
            suffixes = random_suffixes(capacity, budget, settings.opening, rng)
        chosen = np.flatnonzero(suffixes).tolist()
        for position in chosen:
            group, count = candidates[position], int(suffixes[position])
            assert group.occurrence is not None  # branchable
            prediction = float(curves[position, count])
            self.pending[group.occurrence] = _Choice(
                group.task, count, evidence[position], group.successes > 0, prediction
            )
        opened = curves[:, settings.opening]
        self._means = {"candidates": float(opened.mean()), "selected": float(opened[chosen].mean())}
        return [Suffixes(occurrence, choice.quota) for occurrence, choice in self.pending.items()]

    def observe(self, round_: int, outcomes: Sequence[SuffixOutcome], visited: Sequence[StateGroup]) -> None:
        """See ``Allocator.observe_branches``."""
        groups, predictions = [], []
        for occurrence, successes, failures in outcomes:
            choice = self.pending.pop(occurrence, None)
            if choice is None:
                raise InputError(
                    f"Outcomes of suffixes from turn {occurrence.turn} of {occurrence.episode!r}, "
                    f"which was not chosen in this round or was reported before."
                )
            if successes + failures == choice.quota:
                groups.append(Group(choice.task, choice.evidence, successes, failures))
                predictions.append((choice.prediction, (failures if choice.succeeded else successes) > 0))
        self.pending = {}
        self._fit.observe(round_, groups)
        self._calibration.add(predictions)
        vectors = self._texts(visited, self._states.rows(visited))
        self._states.remember(round_, visited, self._task_rows(visited).tolist(), vectors)
        self._vectors = {}

    def diagnostics(self) -> dict[str, Any]:
        """Calibration of F at the assigned suffixes, and the mean of F at the opening over candidates and choice."""
        return {**self._calibration.summary(), "probability": dict(self._means)}

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values, and arrays."""
        fit, fit_arrays = self._fit.state()
        states, state_arrays = self._states.state()
        values = {"fit": fit, "states": states, "means": dict(self._means)}
        return values, {**fit_arrays, **state_arrays, **self._calibration.state()}

    def load(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` described."""
        self._fit.load(values["fit"], arrays)
        self._states.load(values["states"], arrays)
        self._calibration.load(arrays)
        self._means = dict(values["means"])
        self._vectors = {}
        self.pending = {}

    def _capacity(self, group: StateGroup) -> int:
        most = self._settings.max_suffixes
        return most if group.capacity is None else min(most, group.capacity)

    def _task_rows(self, groups: Sequence[StateGroup]) -> RowArray:
        try:
            return np.array([self._tasks.row(group.task) for group in groups], dtype=np.int64)
        except KeyError as error:
            raise InputError(
                f"A state of task {error.args[0]!r}, which choose_roots never considered; pass its task there first."
            ) from error

    def _conversion(self, round_: int, candidates: Sequence[StateGroup]) -> tuple[list[Evidence], FloatArray]:
        """Evidence of every candidate, and its curve F: ``[C, max_suffixes + 1]``."""
        rows = self._states.rows(candidates)
        masses = self._semantic(round_, candidates, rows)
        members: dict[str, list[int]] = {}
        for position, group in enumerate(candidates):
            members.setdefault(group.task, []).append(position)
        evidence: dict[int, Evidence] = {}
        curves = np.zeros((len(candidates), self._settings.max_suffixes + 1))
        for (task, positions), mixture in zip(members.items(), self._fit.mixtures(round_, list(members)), strict=True):
            past = self._states.outcomes(rows[positions], round_)
            local = [candidates[position] for position in positions]
            rng = np.random.default_rng([self._seed, round_, int.from_bytes(identity(task))])
            curves[positions] = self._task_curves(mixture, local, past, masses[positions], rng)
            for position, seen in zip(positions, _evidence(local, past, masses[positions]), strict=True):
                evidence[position] = seen
        return [evidence[position] for position in range(len(candidates))], curves

    def _task_curves(
        self,
        mixture: Mixture,
        candidates: Sequence[StateGroup],
        past: Outcomes,
        masses: FloatArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        particles = draw_particles(mixture, self._settings.particles, rng)
        success = success_probabilities(particles, _cluster_counts(candidates, past), masses, rng)
        succeeded = np.array([group.successes > 0 for group in candidates])
        opposite = np.where(succeeded[:, None], 1 - success, success)
        return conversion_curves(opposite, self._settings.max_suffixes)

    def _semantic(self, round_: int, candidates: Sequence[StateGroup], rows: RowArray) -> FloatArray:
        """``[C, 2]`` masses borrowed from similar states."""
        if self._encoder is None or not len(self._states):
            return np.zeros((len(candidates), 2))
        tasks, inverse = np.unique(self._task_rows(candidates), return_inverse=True)
        goals = self._tasks.goals
        query, row, weight = state_donors(
            self._states,
            self._texts(candidates, rows),
            depth=np.array([group.depth for group in candidates]),
            horizon=np.array([group.horizon for group in candidates]),
            own_row=rows,
            goal_cosine=(goals[tasks] @ goals.T).astype(np.float64)[inverse],
        )
        lent, own = self._states.outcomes(row, round_), self._states.outcomes(rows, round_)
        return branch_masses(len(candidates), (query, weight), lent, own)

    def _texts(self, groups: Sequence[StateGroup], rows: RowArray) -> VectorArray:
        """``[n, d]`` vectors of the states' texts; those not remembered are encoded once a round."""
        if self._encoder is None or not groups:
            return np.zeros((len(groups), 0), dtype=np.float32)
        new = [group.state for group, row in zip(groups, rows, strict=True) if row == NOT_REMEMBERED]
        missing = [text for text in dict.fromkeys(new) if text not in self._vectors]
        self._vectors.update(zip(missing, encode(self._encoder, missing), strict=True))
        remembered = iter(self._states.vectors(rows[rows != NOT_REMEMBERED]))
        return np.stack(
            [
                self._vectors[group.state] if row == NOT_REMEMBERED else next(remembered)
                for group, row in zip(groups, rows, strict=True)
            ]
        )


def _evidence(candidates: Sequence[StateGroup], past: Outcomes, masses: FloatArray) -> list[Evidence]:
    """What is known of each candidate: decayed history, this round's factual outcomes, borrowed masses."""
    count = len(candidates)
    success = np.bincount(past.owner, weights=past.weight * past.successes, minlength=count)
    failure = np.bincount(past.owner, weights=past.weight * past.failures, minlength=count)
    return [
        Evidence(float(success[c]), float(failure[c]), group.successes, group.failures, *masses[c].tolist())
        for c, group in enumerate(candidates)
    ]


def _cluster_counts(candidates: Sequence[StateGroup], past: Outcomes) -> ClusterCounts:
    """Earlier clusters keep their numbers (from 0 up); this round's are numbered from −1 down."""
    number: dict[str, int] = {}
    now = np.array(
        [
            (position, -1 - number.setdefault(visit.cluster, len(number)), visit.successes, visit.failures)
            for position, group in enumerate(candidates)
            for visit in group.visits
        ],
        dtype=np.int64,
    ).T
    return ClusterCounts(
        candidate=np.concatenate([past.owner, now[0]]),
        cluster=np.concatenate([past.cluster, now[1]]),
        successes=np.concatenate([past.successes, now[2]]),
        failures=np.concatenate([past.failures, now[3]]),
        weight=np.concatenate([past.weight, np.ones(now.shape[1])]),
        current=np.concatenate([np.zeros(len(past.owner), dtype=np.bool_), np.ones(now.shape[1], dtype=np.bool_)]),
    )
