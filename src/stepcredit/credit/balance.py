"""Segment balance: factors that keep long segments from drowning out their short siblings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.credit.groups import group_extremes, group_means

_BISECTIONS = 60
"""Halvings of the bracket of λ: for C up to 1e6 they leave 1e-12 of it."""


def balance_weights(mass: NDArray[np.int64], siblings: IntArray, cap: float) -> FloatArray:
    """``[S]`` w_c = clip(λ_h·m̄/m_c, 1/C, C), λ_h such that Σ m_c w_c = Σ m_c over the siblings at h.

    Unclipped, every segment of a group would weigh the same in total; the clip lets no credit grow or shrink by more
    than C, and λ_h keeps the total mass of the group. It is found by bisection on [0, C/min(m̄/m_c)]. C = 1, equal
    masses and a lone segment give w = 1.

    Args:
        mass: ``[S]`` turns of each segment, all ≥ 1; m̄ is their mean among siblings.
        siblings: ``[S]`` group of each segment, numbered from 0 without gaps.
        cap: C in [1, 1e6].

    Source: TSBPO, segment balance.
    """
    share = group_means(mass.astype(np.float64), siblings)[siblings] / mass
    smallest, _ = group_extremes(share, siblings, int(siblings.max(initial=-1)) + 1)
    low, high = np.zeros(len(smallest)), cap / smallest
    total = np.bincount(siblings, weights=mass)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        weight = np.clip(middle[siblings] * share, 1 / cap, cap)
        too_heavy = np.bincount(siblings, weights=mass * weight) > total
        low, high = np.where(too_heavy, low, middle), np.where(too_heavy, middle, high)
    return np.clip((low + high)[siblings] / 2 * share, 1 / cap, cap)


def worst_gap(mass: FloatArray, siblings: IntArray) -> float:
    """Largest ratio of the heaviest to the lightest segment among siblings; 1 where no segment has a sibling."""
    low, high = group_extremes(mass, siblings, int(siblings.max(initial=-1)) + 1)
    return float((high / low).max(initial=1.0))
