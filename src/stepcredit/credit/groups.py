"""Statistics over groups of rows, and the returns every family starts from. All float64.

A *group column* is an ``[N]`` integer array; rows with equal numbers are one group.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.core.turns import Turns

EPSILON = 1e-6
"""Added to every standard deviation that is divided by, in the unit of the values."""

Normalize = Literal["mean_std", "mean"]


def joint_groups(*columns: NDArray[np.integer]) -> IntArray:
    """Number the distinct combinations of several columns: ``[N]``, values 0 … groups − 1."""
    group = np.unique(columns[0], return_inverse=True)[1].astype(np.int64)
    for column in columns[1:]:
        dense = np.unique(column, return_inverse=True)[1]
        width = int(dense.max(initial=0)) + 1
        group = np.unique(group * width + dense, return_inverse=True)[1].astype(np.int64)
    joint: IntArray = group.astype(np.int32)
    return joint


def group_sizes(group: IntArray, count: int | None = None) -> NDArray[np.int64]:
    """``[G]`` number of rows in each group."""
    return np.bincount(group, minlength=count or 0)


def group_means(values: FloatArray, group: IntArray, count: int | None = None) -> FloatArray:
    """``[G]`` mean of the rows of each group; 0 for a group without rows."""
    size = group_sizes(group, count)
    total = np.bincount(group, weights=values, minlength=len(size))
    return total / np.maximum(size, 1)


def group_extremes(values: FloatArray, group: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """``[G]`` smallest and largest value of each group (+inf, −inf for a group without rows)."""
    low = np.full(count, np.inf)
    high = np.full(count, -np.inf)
    np.minimum.at(low, group, values)
    np.maximum.at(high, group, values)
    return low, high


def normalize_groups(values: FloatArray, group: IntArray, *, normalize: Normalize, ddof: int = 1) -> FloatArray:
    """``[N]`` (x − μ) or (x − μ)/(σ + ε) within each group, σ with divisor n − ``ddof``.

    A group whose values are all equal (a singleton is one) gives exactly 0, never a rounding residue.
    """
    if len(values) == 0:
        return np.zeros(0)
    size = group_sizes(group)
    low, high = group_extremes(values, group, len(size))
    centred = values - group_means(values, group, len(size))[group]
    if normalize == "mean_std":
        variance = np.bincount(group, weights=centred**2, minlength=len(size)) / np.maximum(size - ddof, 1)
        centred = centred / (np.sqrt(variance) + EPSILON)[group]
    return np.where((low == high)[group], 0.0, centred)


def step_returns(turns: Turns, gamma: float) -> FloatArray:
    """``[N]`` discounted step return ĝ_t = Σ_{k≥t} γ^{k−t} r_k along the episode's own turns, by turn index.

    Penalties never enter: they are local to their turn.
    """
    returns = turns.reward.copy()
    length = np.diff(turns.start)
    last = turns.last
    by_length = np.argsort(-length, kind="stable")
    descending = length[by_length]
    for back in range(1, int(length.max(initial=0))):
        active = by_length[: np.searchsorted(-descending, -back, side="left")]
        row = last[active] - back
        returns[row] += gamma * returns[row + 1]
    return returns


def episode_sums(turns: Turns, values: FloatArray) -> FloatArray:
    """``[E]`` sum of a per-turn column over each episode's own turns."""
    return np.bincount(turns.episode, weights=values, minlength=len(turns.episode_task)).astype(np.float64)


def path_sums(turns: Turns, values: FloatArray) -> FloatArray:
    """``[N]`` sum of a per-turn column along the physical path from the root's start up to and including the row.

    Added turn by turn in path order, so that equal paths give equal numbers wherever they stand in the batch.
    """
    total = values.copy()
    by_depth = np.argsort(turns.depth, kind="stable")
    bound = np.searchsorted(turns.depth[by_depth], np.arange(int(turns.depth.max(initial=0)) + 2))
    for depth in range(1, len(bound) - 1):
        rows = by_depth[bound[depth] : bound[depth + 1]]
        total[rows] += total[turns.previous[rows]]
    return total


def episode_returns(turns: Turns) -> FloatArray:
    """``[E]`` return R of each episode: the sum of rewards along its whole physical path."""
    return path_sums(turns, turns.reward)[turns.last]
