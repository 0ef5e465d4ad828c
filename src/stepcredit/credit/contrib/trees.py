"""Tree credit after TreePO and AT²PO, on the physical trees of ``tree``."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import Credit, FloatArray
from stepcredit.core.turns import NO_EPISODE, NO_ROW, Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.episode_level import NormalizeOption
from stepcredit.credit.groups import episode_returns, group_extremes, group_means, normalize_groups
from stepcredit.credit.method import Range, required_column
from stepcredit.credit.tree import Segments, back_up, terminal_values


def treepo(turns: Turns) -> Credit:
    """A turn's score against every subtree it lies in: A_i = mean over its ancestors z of (score_i − mean R under z).

    score_i is the mean return R over the leaves under the turn. Its ancestors are the splits at or above it, and the
    task where two or more roots share it, whose mean runs over all leaves of the task. A turn without ancestors gets 0.
    On chains A = R − mean R. Equal returns give exact zeros. Penalties do not enter.

    Components: ``score``, ``baseline`` (mean of the subtree means; the score itself without ancestors).

    Source: TreePO (arXiv 2508.17445), tree-based advantage, without its division by a deviation. Chosen: a turn that
    several paths share is scored by all of them; runs of turns without a split between them are one subtree.
    """
    segments = Segments.from_turns(turns)
    returns = episode_returns(turns)
    score, at_split = terminal_values(turns, segments, returns)
    baseline = _ancestor_means(turns, segments, at_split, returns, score)
    parts = {"score": score[segments.of_turn], "baseline": baseline[segments.of_turn]}
    advantage = parts["score"] - parts["baseline"]
    return build_credit(turns, advantage, parts, groups=describe_groups(turns.task, parts["score"]))


def _ancestor_means(
    turns: Turns, segments: Segments, at_split: FloatArray, returns: FloatArray, score: FloatArray
) -> FloatArray:
    """``[S]`` mean over a segment's ancestors of the mean return under each, held between the smallest and largest."""
    roots = np.bincount(turns.episode_task[turns.episode_parent == NO_EPISODE], minlength=len(turns.task_names))
    smallest, largest = group_extremes(returns, turns.episode_task, len(roots))
    of_task = np.clip(group_means(returns, turns.episode_task, len(roots)), smallest, largest)
    count, total = np.zeros(len(score)), np.zeros(len(score))
    low, high = np.full(len(score), np.inf), np.full(len(score), -np.inf)

    def include(segment: NDArray[np.int64], mean: FloatArray) -> None:
        count[segment] += 1
        total[segment] += mean
        low[segment], high[segment] = np.minimum(low[segment], mean), np.maximum(high[segment], mean)

    before, task = turns.previous[segments.head], turns.task[segments.head]
    for segment, _ in reversed(list(segments.levels())):
        inner = segment[before[segment] != NO_ROW]
        for column in (count, total, low, high):
            column[inner] = column[segments.of_turn[before[inner]]]
        top = segment[(before[segment] == NO_ROW) & (roots[task[segment]] >= 2)]
        include(top, of_task[task[top]])
        split = segment[~segments.above_splits[segment]]
        include(split, at_split[segments.siblings[split]])
    return np.where(count > 0, np.clip(total / np.maximum(count, 1), low, high), score)


def at2po(
    turns: Turns,
    *,
    temperature: Annotated[float, Range(0, low_open=True), "nats of entropy that weigh a sibling e times more"] = 1.0,
    normalize: NormalizeOption = "mean_std",
) -> Credit:
    """Values backed up with entropy weights, each turn's value normalised over its task group.

    V(leaf) = R of its path; V(h) = Σ_c w_c·V(occurrence c reaches) over the child turns c of h, w = softmax of their
    mean token entropies over ``temperature``. A is the value of the occurrence a turn reaches, normalised over the
    turns of the task group, divisor n − 1. On chains that is ``grpo`` without penalties.

    Components: ``value``.

    Raises:
        InputError: a turn without ``entropy``.

    Source: AT²PO (arXiv 2601.04767), turn-wise credit, values as advantages. Chosen: the softmax runs over siblings.
    """
    segments = Segments.from_turns(turns)
    entropy = required_column(turns, "entropy", "at2po")[segments.head] / temperature
    _, high = group_extremes(entropy, segments.siblings, segments.groups)
    share = np.exp(entropy - high[segments.siblings])
    share /= np.bincount(segments.siblings, weights=share)[segments.siblings]
    value, _ = back_up(turns, segments, episode_returns(turns), share)
    advantage = normalize_groups(value, turns.task, normalize=normalize)
    return build_credit(turns, advantage, {"value": value}, groups=describe_groups(turns.task, value))
