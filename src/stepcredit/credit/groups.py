"""Statistics over groups of rows, and the returns every family starts from. All float64.

A *group column* is an ``[N]`` integer array; rows with equal numbers are one group.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import BoolArray, FloatArray, IntArray
from stepcredit.core.turns import Turns

EPSILON = 1e-6
"""Added to every standard deviation that is divided by, in the unit of the values."""

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Relative spread up to which values count as equal: the same rewards added in another order differ by as much."""

GroupColumn = NDArray[np.integer]
"""``[N]`` group of each row."""

Normalize = Literal["mean_std", "mean"]

_LARGEST_KEY = np.iinfo(np.int64).max


def joint_groups(*columns: NDArray[np.integer]) -> IntArray:
    """Number the distinct combinations of several columns of non-negative integers: ``[N]``, 0 … groups − 1."""
    key = columns[0].astype(np.int64)
    width = int(key.max(initial=0)) + 1
    for column in columns[1:]:
        size = int(column.max(initial=0)) + 1
        if width * size > _LARGEST_KEY:
            key, width = _dense(key), len(key)  # two 32-bit columns always fit
        key, width = key * size + column, width * size
    return _dense(key).astype(np.int32)


def _dense(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber non-negative keys 0 … distinct − 1 in increasing order, in time linear in their number.

    Digit by digit from the lowest: a stable sort of 16-bit numbers is a radix sort in numpy, and ``np.unique`` is not.
    """
    largest = int(key.max(initial=0))
    order = np.argsort(key.astype(np.uint16), kind="stable")
    for shift in range(16, largest.bit_length(), 16):
        digit = (key >> shift).astype(np.uint16)[order]
        order = order[np.argsort(digit, kind="stable")]
    ordered = key[order]
    dense = np.zeros(len(key), dtype=np.int64)
    dense[order[1:]] = np.cumsum(ordered[1:] != ordered[:-1])
    return dense


def group_sizes(group: GroupColumn, count: int | None = None) -> NDArray[np.int64]:
    """``[G]`` number of rows in each group."""
    return np.bincount(group, minlength=count or 0)


def group_means(values: FloatArray, group: GroupColumn, count: int | None = None) -> FloatArray:
    """``[G]`` mean of the rows of each group; 0 for a group without rows."""
    size = group_sizes(group, count)
    total = np.bincount(group, weights=values, minlength=len(size))
    return total / np.maximum(size, 1)


def group_extremes(values: FloatArray, group: GroupColumn, count: int) -> tuple[FloatArray, FloatArray]:
    """``[G]`` smallest and largest value of each group (+inf, −inf for a group without rows)."""
    low = np.full(count, np.inf)
    high = np.full(count, -np.inf)
    np.minimum.at(low, group, values)
    np.maximum.at(high, group, values)
    return low, high


def equal_groups(values: FloatArray, group: GroupColumn, count: int) -> BoolArray:
    """``[G]`` whether all values of a group are equal up to the rounding of a sum (a group without rows counts)."""
    low, high = group_extremes(values, group, count)
    equal: BoolArray = high - low <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return equal


def normalize_groups(values: FloatArray, group: GroupColumn, *, normalize: Normalize, ddof: int = 1) -> FloatArray:
    """``[N]`` (x − μ) or (x − μ)/(σ + ε) within each group, σ with divisor n − ``ddof``.

    A group whose values are all equal (a singleton is one) gives exactly 0, never a rounding residue.
    """
    index = group.astype(np.intp)  # once, instead of inside every call below
    size = group_sizes(index)
    centred = values - group_means(values, index, len(size))[index]
    scale = np.where(equal_groups(values, index, len(size)), 0.0, 1.0)
    if normalize == "mean_std":
        variance = np.bincount(index, weights=np.square(centred), minlength=len(size)) / np.maximum(size - ddof, 1)
        variance[np.isinf(variance)] = np.nan  # dividing by a deviation that overflowed would pass for no credit
        scale /= np.sqrt(variance) + EPSILON
    centred *= scale[index]
    centred += 0.0  # -0.0 becomes 0.0
    return centred


def step_returns(turns: Turns, gamma: float) -> FloatArray:
    """``[N]`` discounted step return ĝ_t = Σ_{k≥t} γ^{k−t} r_k along the episode's own turns, by turn index.

    Penalties never enter: they are local to their turn.
    """
    return discounted_sums(turns, turns.reward, gamma)


def discounted_sums(turns: Turns, values: FloatArray, gamma: float) -> FloatArray:
    """``[N]`` Σ_{k≥t} γ^{k−t} x_k of a per-turn column along the episode's own turns, by turn index.

    What each addition rounds off is carried along, so that the same rewards in another order give the same sum even
    where they cancel.
    """
    sums = values.copy()
    length = np.diff(turns.start)
    by_length = np.argsort(-length, kind="stable")
    descending, last = length[by_length], turns.last[by_length]
    total, lost = values[last], np.zeros(len(last))
    for back in range(1, int(length.max(initial=0))):
        active = int(np.searchsorted(-descending, -back, side="left"))
        row = last[:active] - back
        total, error = _two_sum(values[row], gamma * total[:active])
        lost = gamma * lost[:active] + error
        sums[row] = total + lost
    return sums


def _two_sum(left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The rounded sum and what rounding took from it: left + right = sum + error exactly (Knuth, TAOCP 2, §4.2.2)."""
    total = left + right
    added = total - left
    return total, (left - (total - added)) + (right - added)


def episode_sums(turns: Turns, values: FloatArray) -> FloatArray:
    """``[E]`` sum of a per-turn column over each episode's own turns."""
    return discounted_sums(turns, values, 1.0)[turns.start[:-1]]


def path_sums(turns: Turns, values: FloatArray) -> FloatArray:
    """``[N]`` sum of a per-turn column along the physical path from the root's start up to and including the row.

    Added turn by turn with the rounding of each addition carried along, as in ``discounted_sums``.
    """
    total, lost = values.copy(), np.zeros(len(values))
    by_depth = np.argsort(turns.depth, kind="stable")
    bound = np.searchsorted(turns.depth[by_depth], np.arange(int(turns.depth.max(initial=0)) + 2))
    for depth in range(1, len(bound) - 1):
        rows = by_depth[bound[depth] : bound[depth + 1]]
        before = turns.previous[rows]
        total[rows], error = _two_sum(total[before], values[rows])
        lost[rows] = lost[before] + error
    return total + lost


def path_totals(turns: Turns, values: FloatArray) -> FloatArray:
    """``[E]`` sum of a per-turn column along each episode's whole physical path."""
    return path_sums(turns, values)[turns.last] if turns.is_forest else episode_sums(turns, values)


def episode_returns(turns: Turns) -> FloatArray:
    """``[E]`` return R of each episode: the sum of rewards along its whole physical path."""
    return path_totals(turns, turns.reward)
