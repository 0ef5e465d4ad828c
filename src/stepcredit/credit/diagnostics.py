"""Diagnostics every method reports alike: plain numbers that fit a log line or a table.

Keys of ``Credit.diagnostics`` written here:

* ``groups``: over the groups whose statistics the method used — ``count``; ``singletons`` (groups of one row);
  ``shared`` (share of rows in groups of two or more); ``all_equal`` (groups of two or more whose values are all equal,
  which therefore say nothing); ``mean_size``; ``sizes`` (number of groups by size: 1, 2, 3-4, 5-8, …).
* ``mean_abs``: mean absolute value of the advantage and of every component, over scored rows.
* ``sign_conflicts``: share of scored rows where episode and step credit have opposite signs.
* ``warnings``: sentences worth showing to a person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import BoolArray, Credit, FloatArray, IntArray
from stepcredit.core.turns import Turns
from stepcredit.credit.groups import episode_returns, equal_groups, group_sizes


def build_credit(
    turns: Turns,
    advantage: FloatArray,
    components: Mapping[str, FloatArray],
    *,
    groups: Mapping[str, Any],
    warnings: Sequence[str] = (),
    **more: Any,
) -> Credit:
    """A ``Credit`` with the common diagnostics, ``groups`` from ``describe_groups`` and the method's own ``more``."""
    diagnostics: dict[str, Any] = {"groups": dict(groups), "mean_abs": mean_abs(advantage, components)}
    if "episode" in components and "step" in components:
        diagnostics["sign_conflicts"] = sign_conflicts(components["episode"], components["step"])
    diagnostics |= more
    diagnostics["warnings"] = [*lone_episodes(turns), *warnings]
    return Credit(advantage, components, diagnostics)


def describe_groups(group: IntArray, values: FloatArray) -> dict[str, Any]:
    """Size distribution and degeneracy of a group column ``[N]``, its statistics taken over ``values`` ``[N]``."""
    index = group.astype(np.intp)
    size = group_sizes(index)
    shared = size >= 2
    equal = equal_groups(values, index, len(size)) & shared
    count = int(np.count_nonzero(size))
    return {
        "count": count,
        "singletons": int(np.count_nonzero(size == 1)),
        "shared": _ratio(int(size[shared].sum()), len(group)),
        "all_equal": int(np.count_nonzero(equal)),
        "mean_size": _ratio(len(group), count),
        "sizes": _size_distribution(size[size > 0]),
    }


def mean_abs(advantage: FloatArray, components: Mapping[str, FloatArray]) -> dict[str, float]:
    """Mean absolute value of the advantage and each component over the rows where it is a number."""
    parts = {"advantage": advantage, **components}
    return {name: _mean_abs(part) for name, part in parts.items()}


def sign_conflicts(episode: FloatArray, step: FloatArray) -> float:
    """Share of rows where two components have opposite signs."""
    return _ratio(int(np.count_nonzero(episode * step < 0)), len(episode))


def quantiles(values: FloatArray) -> dict[str, float]:
    """Mean, minimum, 10th, 50th and 90th percentile, maximum; all 0 where there are no rows."""
    if len(values) == 0:
        return dict.fromkeys(("mean", "min", "p10", "p50", "p90", "max"), 0.0)
    low, p10, p50, p90, high = np.quantile(values, (0, 0.1, 0.5, 0.9, 1))
    parts = {"mean": values.mean(), "min": low, "p10": p10, "p50": p50, "p90": p90, "max": high}
    return {name: float(value) for name, value in parts.items()}


def lone_episodes(turns: Turns) -> list[str]:
    """A warning where more than half of the task groups hold one episode: usually every episode got its own task."""
    size = np.bincount(turns.episode_task, minlength=len(turns.task_names))
    alone = int(np.count_nonzero(size == 1))
    if 2 * alone <= len(size):
        return []
    return [
        f"{alone} of {len(size)} task groups hold a single episode, which has nothing to be compared with; "
        "episodes of one task must carry the same task name."
    ]


def mixed_tasks(turns: Turns) -> BoolArray:
    """``[task]`` whether a task group's episodes differ in outcome: the groups worth an update.

    The outcome is the return *before* penalties. A filter on shaped rewards would keep a group in which every episode
    failed but one was also charged for an invalid action, and learn from that noise.
    """
    return ~equal_groups(episode_returns(turns), turns.episode_task, len(turns.task_names))


def _mean_abs(part: FloatArray) -> float:
    size = np.abs(part)
    total = float(size.sum())
    if math.isnan(total):
        size = size[~np.isnan(size)]
        total = float(size.sum())
    return _ratio(total, len(size))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _size_distribution(size: NDArray[np.int64]) -> dict[str, int]:
    """Number of groups in each class 1, 2, 3-4, 5-8, …; each class's upper end is a power of two."""
    power = np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64)
    counts = np.bincount(power)
    names = ["1", "2", *(f"{2 ** (k - 1) + 1}-{2**k}" for k in range(2, len(counts)))]
    return {name: int(count) for name, count in zip(names, counts, strict=False) if count}
