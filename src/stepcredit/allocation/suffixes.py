"""How many suffixes leave each candidate: the best split of a budget over concave-after-opening curves, and a control.

Source: TSBPO §4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray

IntegerArray = NDArray[np.int64]


def best_suffixes(curves: FloatArray, capacity: IntegerArray, budget: int, opening: int) -> IntegerArray:
    """Maximise Σ F_a(k_a) over k_a ∈ {0} ∪ {opening, …, capacity_a} with Σ k_a ≤ budget, exactly.

    An integer dynamic program over candidates and budgets. Among equally good answers, later candidates take fewer.

    Args:
        curves: ``[C, K + 1]`` F(0) … F(K).
        capacity: ``[C]`` most suffixes each candidate can take; at most K counts.

    Returns:
        ``[C]`` suffixes per candidate.
    """
    count, width = curves.shape
    sizes = np.arange(width)
    allowed = (sizes == 0) | ((sizes >= opening) & (sizes <= capacity[:, None]))
    value = np.where(allowed, curves, -np.inf)
    best = np.zeros(budget + 1)
    choice = np.zeros((count, budget + 1), dtype=np.int64)
    left_over = np.arange(budget + 1)[:, None] - sizes  # [b, k]: what k suffixes out of b leave to earlier candidates
    affordable, left_over = left_over >= 0, np.maximum(left_over, 0)
    for candidate in range(count):
        total = np.where(affordable, best[left_over], -np.inf) + value[candidate]
        choice[candidate] = total.argmax(axis=1)
        best = np.take_along_axis(total, choice[candidate][:, None], axis=1)[:, 0]
    suffixes = np.zeros(count, dtype=np.int64)
    left = budget
    for candidate in reversed(range(count)):
        suffixes[candidate] = choice[candidate, left]
        left -= suffixes[candidate]
    return suffixes


def random_suffixes(capacity: IntegerArray, budget: int, opening: int, rng: np.random.Generator) -> IntegerArray:
    """The control: open random candidates with the minimum until the budget is spent, then deal out what is left.

    Returns:
        ``[C]`` suffixes per candidate, 0 or ``opening`` … capacity, in all at most ``budget``.
    """
    suffixes = np.zeros(len(capacity), dtype=np.int64)
    able = np.flatnonzero(capacity >= opening)
    opened = rng.permutation(able)[: budget // opening]
    suffixes[opened] = opening
    left = budget - opening * len(opened)
    while left and (room := opened[suffixes[opened] < capacity[opened]]).size:
        suffixes[room[:left]] += 1
        left -= len(room[:left])
    return suffixes
