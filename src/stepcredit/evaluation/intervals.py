"""Intervals: whole tasks are resampled, because episodes of one task are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.core.errors import InputError

RESAMPLES = 10_000


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
    """
    if not values or any(len(episodes) == 0 for episodes in values):
        raise InputError("An interval needs at least one task, and at least one episode in each.")
    totals = np.array([np.sum(episodes) for episodes in values], dtype=np.float64)
    counts = np.array([len(episodes) for episodes in values], dtype=np.float64)
    drawn = np.random.default_rng(seed).multinomial(len(values), np.full(len(values), 1 / len(values)), size=resamples)
    means = (drawn @ totals) / (drawn @ counts)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(totals.sum() / counts.sum()), float(low), float(high))
