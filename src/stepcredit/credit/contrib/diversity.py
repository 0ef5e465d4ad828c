"""Diversity credit after DPEPO: what other episodes of the task did not do is worth a bonus."""

from __future__ import annotations

import numpy as np

from stepcredit.core.credit import Credit, FloatArray, IntArray
from stepcredit.core.turns import Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.episode_level import NormalizeOption, episode_credit
from stepcredit.credit.groups import joint_groups, normalize_groups
from stepcredit.credit.method import Weight


def dpepo(
    turns: Turns,
    *,
    action_weight: Weight = 0.1,
    transition_weight: Weight = 0.1,
    normalize: NormalizeOption = "mean_std",
) -> Credit:
    """Episode credit plus novelty: A = A^E + centred(w_a·novelty(s, a) + w_s·novelty(s, s')).

    novelty(x) = 1 − share of the *other* episodes of the task group in which x occurs. The bonus is centred over the
    turns of the task group, so it moves credit within a group and adds none. A^E is ``grpo`` over turns. A lone episode
    has nothing to differ from and a bonus of 0; so has a group whose turns are all equally novel.

    Components: ``episode`` (A^E), ``step`` (the centred bonus).

    Source: DPEPO (arXiv 2604.24320), its action and state-transition diversity rewards. Chosen: shares of episodes,
    which no order of lines can change, and weights of 0.1.
    """
    action = _novelty(turns, joint_groups(turns.state, turns.action))
    transition = _novelty(turns, joint_groups(turns.state, turns.next_state))
    bonus = action_weight * action + transition_weight * transition
    step = normalize_groups(bonus, turns.task, normalize="mean")
    episode = episode_credit(turns, normalize)
    return build_credit(
        turns, episode + step, {"episode": episode, "step": step}, groups=describe_groups(turns.task, bonus)
    )


def _novelty(turns: Turns, kind: IntArray) -> FloatArray:
    """``[N]`` 1 − share of the other episodes of the task in which a turn's kind occurs; 0 for a lone episode."""
    _, first = np.unique(joint_groups(kind, turns.episode), return_index=True)
    holders = np.bincount(kind[first], minlength=int(kind.max(initial=-1)) + 1)[kind]
    others = np.bincount(turns.episode_task, minlength=len(turns.task_names))[turns.task] - 1
    return np.where(others > 0, 1 - (holders - 1) / np.maximum(others, 1), 0.0)
