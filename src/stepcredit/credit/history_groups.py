"""Step-level credit by histories: a turn is compared with turns that came through the same last states."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import BoolArray, Credit, FloatArray
from stepcredit.core.turns import NO_ROW, Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.episode_level import NormalizeOption, episode_credit
from stepcredit.credit.groups import EPSILON, group_sizes, joint_groups, normalize_groups, step_returns
from stepcredit.credit.method import Gamma, Range, Weight

_ZERO = 1e-9
"""A level whose advantage is this small is dropped by ``drop_zero``."""


def hgpo(
    turns: Turns,
    *,
    gamma: Gamma = 0.95,
    history: Annotated[int, Range(0), "turns of history K looked back at, beside the current state"] = 2,
    level_power: Annotated[float, Range(0), "exponent α of a level's weight"] = 1.0,
    normalize: NormalizeOption = "mean_std",
    drop_zero: Annotated[bool, "leave levels with zero advantage out of the weighted mean"] = True,
    episode_weight: Weight = 0.0,
) -> Credit:
    """Hierarchy-of-groups credit: a weighted mean of advantages within ever longer shared histories.

    Level k = 1 … min(K + 1, t + 1) groups turns of one task whose last k states, the current one included, are equal
    (t is the time on the physical path, so a branch's history runs through its replayed prefix). In groups of two or
    more, A_k normalises ĝ_i − P_i with divisor n. With w_k = (k + 1)^α over the levels present,

        A = (v·A^E + Σ_k w_k·A_k) / (v + Σ_k w_k + ε),    v = ``episode_weight`` (level 0, A^E as in ``grpo``).

    ``drop_zero`` removes levels (level 0 too) with |A_k| ≤ 1e-9 from both sums, as released code does; that makes the
    credit jump where a level's advantage passes through zero. ``false`` keeps them. No level left: 0.

    Components: ``step`` (levels 1 and up alone), ``episode`` (A^E; present where ``episode_weight`` > 0).

    Source: HGPO (arXiv 2602.22817), context-aware grouping and adaptive weighting; weights and divisor as released.
    """
    values = step_returns(turns, gamma) - turns.penalty
    total, weight, present = _levels(turns, values, history, level_power, normalize, drop_zero)
    parts = {"step": total / (weight + EPSILON)}
    advantage = parts["step"]
    if episode_weight > 0:
        episode = parts["episode"] = episode_credit(turns, normalize)
        used = _kept(episode, drop_zero)
        advantage = (total + episode_weight * np.where(used, episode, 0.0)) / (weight + episode_weight * used + EPSILON)
    groups = describe_groups(turns.state, values)
    return build_credit(turns, advantage, parts, groups=groups, levels=present)


def _levels(
    turns: Turns, values: FloatArray, history: int, level_power: float, normalize: NormalizeOption, drop_zero: bool
) -> tuple[FloatArray, FloatArray, dict[str, float]]:
    """``[N]`` Σ w_k·A_k, ``[N]`` Σ w_k, and the share of turns that have company at each level."""
    total, weight = np.zeros(len(turns)), np.zeros(len(turns))
    present: dict[str, float] = {}
    # A history alone at level k is alone at every later one, so each level looks only at the rows still in company.
    rows: NDArray[np.integer] = np.arange(len(turns))
    oldest = rows
    group: NDArray[np.integer] = turns.state
    longest = min(history, int(turns.depth.max(initial=0)))
    for level in range(1, longest + 2):
        if level > 1:
            oldest = turns.previous[oldest]
            known = oldest != NO_ROW
            rows, oldest, group = rows[known], oldest[known], group[known]
            group = joint_groups(group, turns.state[oldest])
        shared = group_sizes(group) >= 2
        company = shared[group]
        rows, oldest, group = rows[company], oldest[company], (np.cumsum(shared) - 1)[group[company]]
        present[str(level)] = len(rows) / max(len(turns), 1)
        advantage = normalize_groups(values[rows], group, normalize=normalize, ddof=0)
        used = _kept(advantage, drop_zero)
        level_weight = np.float64(level + 1) ** level_power
        total[rows[used]] += level_weight * advantage[used]
        weight[rows[used]] += level_weight
    return total, weight, present


def _kept(advantage: FloatArray, drop_zero: bool) -> BoolArray:
    """``[n]`` whether a level enters the weighted mean. One that overflowed does, so that it is reported."""
    dropped: BoolArray = (np.abs(advantage) <= _ZERO) & drop_zero
    return ~dropped
