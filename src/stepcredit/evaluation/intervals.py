"""Intervals: whole tasks are resampled, because episodes of one task are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import InputError, OptionError

RESAMPLES = 10_000
MOST_RESAMPLES = 10_000_000
_AT_ONCE = 1 << 22
"""Counts drawn at once: bounds memory where there are many tasks."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % percentile-bootstrap interval."""

    mean: float
    low: float
    high: float


def cluster_bootstrap(values: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Mean over all episodes, with a 95 % interval from resampling whole tasks with replacement.

    Statistic of one resample: Σ (values of the drawn tasks) / Σ (their episode counts).

    Args:
        values: one sequence per task: the outcome of each of its episodes.
        seed: fixes the resamples.
        resamples: number of bootstrap draws.

    Raises:
        InputError: no task, or a task without an episode.
        OptionError: no resample, or more than ``MOST_RESAMPLES``.
    """
    if not 1 <= resamples <= MOST_RESAMPLES:
        raise OptionError(f"resamples is {resamples}; expected a number from 1 to {MOST_RESAMPLES:,}.")
    if not values or any(len(episodes) == 0 for episodes in values):
        raise InputError("An interval needs at least one task, and at least one episode in each.")
    totals = np.array([np.sum(episodes) for episodes in values], dtype=np.float64)
    counts = np.array([len(episodes) for episodes in values], dtype=np.float64)
    means = _resampled_ratio(totals, counts, seed, resamples)
    return _interval(float(totals.sum() / counts.sum()), means)


def paired_bootstrap(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Difference of two means over the same tasks, second − first; a resample draws both sides of a task together.

    Statistic of one resample: Σ (second − first totals of the drawn tasks) / Σ (their episode counts).

    Args:
        first: one sequence per task, as for ``cluster_bootstrap``.
        second: the same tasks in the same order, as many episodes of each.
        seed: fixes the resamples.
        resamples: number of bootstrap draws.

    Raises:
        InputError: no task, or the two sides differ in tasks or in episodes of a task.
    """
    if [len(episodes) for episodes in first] != [len(episodes) for episodes in second]:
        raise InputError("A paired difference needs the same tasks and as many episodes of each on both sides.")
    pairs = [zip(*pair, strict=True) for pair in zip(first, second, strict=True)]
    return cluster_bootstrap([[b - a for a, b in pair] for pair in pairs], seed=seed, resamples=resamples)


def _resampled_ratio(totals: FloatArray, counts: FloatArray, seed: int, resamples: int) -> FloatArray:
    """Σ drawn totals / Σ drawn counts, ``[resamples]``."""
    rng = np.random.default_rng(seed)
    tasks = len(totals)
    shares = np.full(tasks, 1 / tasks)
    means = np.empty(resamples)
    step = max(_AT_ONCE // tasks, 1)
    for start in range(0, resamples, step):
        drawn = rng.multinomial(tasks, shares, size=min(step, resamples - start))
        means[start : start + step] = (drawn @ totals) / (drawn @ counts)
    return means


def _interval(mean: float, means: FloatArray) -> Interval:
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(mean, float(low), float(high))
