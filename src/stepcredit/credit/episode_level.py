"""Episode-level credit A^E: a turn is judged by how its whole episode compares with the others of its task group."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from stepcredit.core.credit import Credit, FloatArray, IntArray
from stepcredit.core.errors import InputError
from stepcredit.core.turns import Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.groups import (
    Normalize,
    episode_returns,
    episode_sums,
    group_sizes,
    normalize_groups,
)

Statistics = Annotated[Literal["turn", "episode"], "what a task group's mean and deviation run over"]
"""``turn``: rows of the group, so that a 50-turn episode counts 50 times; ``episode``: each episode once."""
Singleton = Annotated[Literal["zero", "raw", "error"], "credit of a group that holds one member"]
"""``zero``; ``raw``: the score itself, as some released code gives; ``error``: refuse the batch."""
NormalizeOption = Annotated[Normalize, "divide centred values by their deviation, or not"]
"""``mean_std``: (x − μ)/(σ + ε); ``mean``: x − μ (Dr. GRPO)."""


def outcome_scores(turns: Turns, statistics: Literal["turn", "episode"]) -> tuple[FloatArray, IntArray]:
    """Scores x and their task groups.

    ``turn``: ``[N]`` x_i = R(τ) − P_i. ``episode``: ``[E]`` x_τ = R(τ) − Σ P over the episode's own turns.
    R is the return of the whole physical path, a branch's replayed prefix included.
    """
    returns = episode_returns(turns)
    if statistics == "turn":
        return returns[turns.episode] - turns.penalty, turns.task
    return returns - episode_sums(turns, turns.penalty), turns.episode_task


def episode_credit(turns: Turns, normalize: Normalize, statistics: Literal["turn", "episode"] = "turn") -> FloatArray:
    """``[N]`` A^E as other methods add it: ``grpo`` with zero for singletons."""
    scores, group = outcome_scores(turns, statistics)
    credit = normalize_groups(scores, group, normalize=normalize)
    return credit if statistics == "turn" else credit[turns.episode]


def grpo(
    turns: Turns,
    *,
    normalize: NormalizeOption = "mean_std",
    statistics: Statistics = "turn",
    singleton: Singleton = "zero",
) -> Credit:
    """Group-relative credit: A_i = (x_i − μ)/(σ + ε) within the task group, σ with divisor n − 1.

    x and the meaning of ``statistics`` as in ``outcome_scores``. A group whose scores are all equal gives exact zeros.
    A group of one member gives 0 (``singleton``); the number of such groups is in the diagnostics.

    Components: ``episode`` (the advantage itself).

    Raises:
        InputError: ``singleton="error"`` and a task group with one member.

    Source: DeepSeekMath (arXiv 2402.03300) §4.1.2 for ``statistics="episode"``; GACA's appendix and released agent code
    for ``"turn"``; Dr. GRPO (arXiv 2503.20783) §3.2 for ``normalize="mean"``.
    """
    scores, group = outcome_scores(turns, statistics)
    credit = normalize_groups(scores, group, normalize=normalize)
    alone = group_sizes(group)[group] == 1
    if singleton == "raw":
        credit = np.where(alone, scores, credit)
    elif singleton == "error" and alone.any():
        task = turns.task_names[group[np.argmax(alone)]]
        raise InputError(f"Task group {task!r} holds one {statistics}; singleton=error expects two or more.")
    return _spread(turns, credit, statistics, scores, group)


def rloo(turns: Turns, *, statistics: Statistics = "episode") -> Credit:
    """Leave-one-out credit: A = x − mean of the others' x = n/(n − 1)·(x − mean), n members in the task group.

    ``statistics="episode"`` leaves out a whole episode, as the estimator's independence needs; ``"turn"`` leaves out
    one row, as released agent code does. A lone member and a group of equal scores give exactly 0.

    Components: ``episode`` (the advantage itself).

    Source: Ahmadian et al. (arXiv 2402.14740) §3; Kool et al., "Buy 4 REINFORCE samples, get a baseline for free!".
    """
    scores, group = outcome_scores(turns, statistics)
    size = group_sizes(group)
    scale = size / np.maximum(size - 1, 1)
    credit = scale[group] * normalize_groups(scores, group, normalize="mean")
    return _spread(turns, credit, statistics, scores, group)


def reinforce_pp(turns: Turns) -> Credit:
    """REINFORCE++ with a group baseline: x_i = R(τ) − P_i less its task group's mean, then whitened over all turns.

    Mean and deviation of the groups and of the batch run over turns, σ with divisor N − 1. The whitening couples the
    tasks of a batch: one task's credit depends on the others' spread. A batch without any spread gives exact zeros.

    Components: ``episode`` (the advantage itself).

    Source: REINFORCE++ (arXiv 2501.03262), the baseline variant.
    """
    scores, group = outcome_scores(turns, "turn")
    centred = normalize_groups(scores, group, normalize="mean")
    whole_batch = np.zeros(len(turns), dtype=np.int32)
    return _spread(turns, normalize_groups(centred, whole_batch, normalize="mean_std"), "turn", scores, group)


def _spread(
    turns: Turns, credit: FloatArray, statistics: Literal["turn", "episode"], scores: FloatArray, group: IntArray
) -> Credit:
    """Credit per row from credit per member."""
    advantage = credit if statistics == "turn" else credit[turns.episode]
    return build_credit(turns, advantage, {"episode": advantage}, groups=describe_groups(group, scores))
