"""How likely root rollouts are to disagree, and from that: which tasks a round plays with how many rollouts.

A task is worth playing when its rollouts are likely to disagree. With success probability p ~ Beta(A, B), n rollouts
are mixed with probability

    u(n; A, B) = 1 − B(A+n, B)/B(A, B) − B(A, B+n)/B(A, B),      U(n) = Σ w·u(n; A, B)

Source: TSBPO §4.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

from stepcredit.allocation.grid import Evidence
from stepcredit.allocation.mixture import Mixture
from stepcredit.core.credit import BoolArray, FloatArray

OPENING_ROLLOUTS = 2
"""Root rollouts every chosen task gets: the fewest that can disagree."""


def contrast_gains(mixture: Mixture, evidence: Evidence) -> Iterator[float]:
    """The marginal gains U(n+1) − U(n) for n = 1, 2, …; positive and decreasing. U(1) = 0.

    Each is E[pⁿ(1−p) + (1−p)ⁿp], summed without cancellation: the next rollout is the first to disagree.
    """
    a, b, total = mixture.grid.posterior(evidence)
    weight = mixture.weight_along(np.broadcast_shapes(a.shape, b.shape))
    all_succeeded = weight * (a / total)  # weight × E[pⁿ]
    all_failed = weight * (b / total)
    for n in count(1):
        scale = 1 / (total + n)
        yield float((all_succeeded * b * scale).sum() + (all_failed * a * scale).sum())
        all_succeeded *= (a + n) * scale
        all_failed *= (b + n) * scale


def contrast_probability(mixture: Mixture, evidence: Evidence, rollouts: int) -> float:
    """U(n): the probability that ``rollouts`` outcomes are mixed; 0 for fewer than two."""
    return sum(islice(contrast_gains(mixture, evidence), max(rollouts - 1, 0)))


def draw_pool(revisited: BoolArray, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the candidates of a round uniformly: at most half of them revisited while fresh tasks last.

    Args:
        revisited: ``[T]`` whether each task was played before.
        size: number of candidates wanted; fewer where there are fewer tasks.

    Returns:
        Indices of the candidates, ascending.
    """
    known, fresh = np.flatnonzero(revisited), np.flatnonzero(~revisited)
    size = min(size, len(revisited))
    from_known = max(min(len(known), size // 2), size - len(fresh))
    return np.sort(
        np.concatenate(
            [
                rng.choice(known, from_known, replace=False),
                rng.choice(fresh, size - from_known, replace=False),
            ]
        )
    )


def selection_weights(utility: FloatArray, *, exploration: float, temperature: float) -> FloatArray:
    """``[M]`` ε/M + (1 − ε)·softmax(U/T); sums to 1."""
    raised = np.exp((utility - utility.max()) / temperature)
    weight: FloatArray = exploration / len(utility) + (1 - exploration) * raised / raised.sum()
    return weight


def draw_without_replacement(weight: FloatArray, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``size`` indices one after the other, each with probability ∝ weight among those left, in order drawn.

    The largest ``size`` of log(weight) + Gumbel noise have exactly this distribution.
    """
    keys = np.log(weight) + rng.gumbel(size=len(weight))
    return np.argsort(-keys, kind="stable")[:size]


def fitted_quotas(gains: Sequence[Iterator[float]], budget: int) -> list[int]:
    """Two rollouts for every task, then one by one to the largest marginal gain; ties to the earlier task.

    U is concave in n, so that this greedy rule is optimal.

    Args:
        gains: per task, U(n+1) − U(n) for n = 1, 2, …
        budget: rollouts in all, at least two per task.
    """
    quotas = [OPENING_ROLLOUTS] * len(gains)
    streams = [islice(stream, OPENING_ROLLOUTS - 1, None) for stream in gains]
    heap = [(-next(stream), task) for task, stream in enumerate(streams)]
    heapq.heapify(heap)
    for _ in range(budget - sum(quotas)):
        task = heap[0][1]
        quotas[task] += 1
        heapq.heapreplace(heap, (-next(streams[task]), task))
    return quotas


def uniform_quotas(tasks: int, budget: int) -> list[int]:
    """The budget split as evenly as possible, the earlier tasks getting the odd ones."""
    share, odd = divmod(budget, tasks)
    return [share + (task < odd) for task in range(tasks)]


def affordable(tasks: int, budget: int) -> int:
    """How many of ``tasks`` the budget can open."""
    return min(tasks, budget // OPENING_ROLLOUTS)
