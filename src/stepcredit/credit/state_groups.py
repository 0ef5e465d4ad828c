"""Step-level credit by state groups: turns taken in one state of one task are compared with each other."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from stepcredit.core.credit import Credit, FloatArray, IntArray
from stepcredit.core.turns import Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.episode_level import NormalizeOption, episode_credit
from stepcredit.credit.groups import (
    equal_groups,
    group_means,
    group_sizes,
    joint_groups,
    normalize_groups,
    step_returns,
)
from stepcredit.credit.matching import CentroidMatcher, Matcher, centroid_groups, match_states
from stepcredit.credit.method import Gamma, Range, Weight

PenaltyInStep = Annotated[bool, "subtract a turn's own penalty from its step return"]


def gigpo(
    turns: Turns,
    *,
    gamma: Gamma = 0.95,
    normalize: NormalizeOption = "mean_std",
    step_weight: Weight = 1.0,
    penalty_in_step: PenaltyInStep = True,
    matcher: Matcher = "exact",
    threshold: Annotated[float, Range(0, 1), "similarity from which two states are one (text, embedding)"] = 0.95,
) -> Credit:
    """Group-in-group credit: A = A^E + w·A^S.

    A^E is ``grpo`` over turns. A^S normalises x_i = ĝ_i − P_i, ĝ_t = Σ_{k≥t} γ^{k−t} r_k, among the turns of one
    (task, state): (x − μ)/(σ + ε), σ with divisor n − 1. A state visited once, or whose visits all have equal x, gives
    exactly 0: nothing is known about the step. ``matcher`` says which states are one: equal keys, or similar ones
    clustered greedily in canonical order (``matching``).

    Components: ``episode`` (A^E), ``step`` (A^S, before its weight).

    Source: GiGPO (arXiv 2505.10978) eq. 3 (A^E), 5 (ĝ), 6 (groups), 7 (A^S), 8 (sum); similarity grouping and the
    penalty inside the step term from the released code.
    """
    values = step_returns(turns, gamma)
    if penalty_in_step:
        values -= turns.penalty
    group = match_states(turns, matcher, threshold)
    step = normalize_groups(values, group, normalize=normalize)
    episode = episode_credit(turns, normalize)
    parts = {"episode": episode, "step": step}
    return build_credit(turns, episode + step_weight * step, parts, groups=describe_groups(group, values))


def rtmc(
    turns: Turns,
    *,
    gamma: Gamma = 0.95,
    shrinkage: Annotated[float, Range(0), "prior visits κ that pull an action's credit to zero"] = 0.0,
) -> Credit:
    """Monte-Carlo credit of an action in a state: A = n/(n + κ)·(mean ĝ over (task, s, a) − mean ĝ over (task, s)).

    n is the number of turns that took action a in s. Every turn of one (task, s, a) gets the same credit. A state where
    one action was taken, or whose returns are all equal, gives exactly 0. Penalties do not enter.

    Components: ``step`` (the advantage itself).

    Source: RTMC (arXiv 2604.11037), the advantage Q(s, a) − V(s) from pooled returns, with its prior smoothing as κ.
    """
    returns = step_returns(turns, gamma)
    choice = joint_groups(turns.state, turns.action)
    advantage = _action_minus_state(returns, choice, turns.state)
    visits = group_sizes(choice)
    advantage *= (visits / (visits + shrinkage))[choice]
    return build_credit(turns, advantage, {"step": advantage}, groups=describe_groups(turns.state, returns))


def bipace(
    turns: Turns,
    *,
    gamma: Gamma = 0.95,
    normalize: NormalizeOption = "mean_std",
    step_weight: Weight = 1.0,
    matcher: CentroidMatcher = "exact",
    radius: Annotated[float, Range(0, 2), "cosine distance up to which a state joins a cluster (embedding)"] = 0.05,
) -> Credit:
    """Action-conditioned peers in behavioural clusters: A = A^E + w·A^S.

    In a state group, a turn whose action was taken two or more times gets A^S = mean ĝ of that action's turns − mean ĝ
    of the group; a turn whose action was taken once gets ĝ_i − mean ĝ of the others; a singleton gets 0. Groups are
    equal keys, or clusters grown greedily to the nearest centroid within ``radius``. Returns that are all equal in a
    group give exactly 0. ``normalize`` concerns A^E (``grpo`` over turns) only; penalties enter A^E only.

    Components: ``episode`` (A^E), ``step`` (A^S, before its weight).

    Source: BiPACE (arXiv 2606.25556), the Q-style instance of its action-conditioned estimator with the leave-one-out
    fallback. The paper clusters the actor's hidden states; here any sentence encoder gives the geometry.
    """
    returns = step_returns(turns, gamma)
    group = centroid_groups(turns, matcher, radius)
    choice = joint_groups(group, turns.action)
    step = _action_minus_state(returns, choice, group)
    # ĝ_i − mean of the others = n/(n − 1)·(ĝ_i − mean), and an action taken once is its own mean.
    size = group_sizes(group)
    once = group_sizes(choice)[choice] == 1
    step = np.where(once, step * (size / np.maximum(size - 1, 1))[group], step)
    episode = episode_credit(turns, normalize)
    parts = {"episode": episode, "step": step}
    return build_credit(turns, episode + step_weight * step, parts, groups=describe_groups(group, returns))


def _action_minus_state(returns: FloatArray, choice: IntArray, state: IntArray) -> FloatArray:
    """``[N]`` mean return of the row's (state, action) less the mean return of its state; exact 0 where all agree."""
    difference = group_means(returns, choice)[choice] - group_means(returns, state)[state]
    settled = equal_groups(returns, state, int(state.max(initial=-1)) + 1)
    return np.where(settled[state], 0.0, difference)
