"""Advantages of any environment that can copy its state, by playing on from the state before every turn.

V of a state is the share of its suffixes that win, each with the deadline the episode had; the advantage of a turn is V
after it less V before it, the outcome standing after the last turn (moves must be deterministic). Two halves of the
suffixes give two independent estimates, so that products of both carry no sampling noise: what is measured with them is
the error of credit, not that of the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import InputError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.evaluation.fidelity import Truth, best_scale, rank_correlation, relative_error, sign_agreement
from stepcredit.evaluation.intervals import Interval, cluster_bootstrap
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.linear_gradient import Batch, Decision
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import Collected, collect
from stepcredit.rollouts.types import Rollout

NOTICEABLE = 0.125
"""Least |A| in both halves of the turns whose sign is judged."""
_RESAMPLES = 2_000
_PLAY, _SUFFIXES = 1, 2  # random streams


@dataclass(frozen=True, slots=True)
class Sounded:
    """Task groups of a linear policy with estimated truth; a task is a block.

    Attributes:
        rollouts: root episodes, task after task.
        turns: their table.
        truth: two independent estimates of A.
        weights: of the policy that played.
    """

    rollouts: Sequence[Rollout]
    turns: Turns
    truth: Truth
    weights: FloatArray


def sound(
    policy: LinearPolicy,
    suite: TaskSuite,
    tasks: Sequence[Task],
    *,
    group_size: int,
    horizon: int,
    suffixes: int,
    seed: Sequence[int],
) -> Sounded:
    """Play task groups, and find out what every turn was worth.

    Args:
        policy: who plays, suffixes too.
        suite: environments with snapshots and deterministic moves.
        tasks: one group each.
        group_size: episodes a group.
        horizon: turns an episode may take.
        suffixes: from the state before every turn; an even number.
        seed: fixes every draw.

    Raises:
        OptionError: an odd number of suffixes, or less than two.
        InputError: an environment without snapshots, or a suffix that failed.
    """
    if suffixes < 2 or suffixes % 2:
        raise OptionError(f"suffixes is {suffixes}; expected an even number of at least 2, one half for each estimate.")
    rollouts: list[Rollout] = []
    halves: list[FloatArray] = []
    for number, task in enumerate(tasks):
        found = collect(
            policy,
            suite,
            [task],
            group_size=group_size,
            horizon=horizon,
            seed=(*seed, _PLAY, number),
            keep_places=True,
        )
        try:
            halves.extend(_advantages(policy, suite, found, suffixes, horizon, (*seed, _SUFFIXES, number)))
        finally:
            found.close()
        rollouts.extend(found.rollouts)
    turns = Turns.from_episodes(rollout.episode for rollout in rollouts)
    first, second = np.concatenate(halves, axis=1)
    return Sounded(rollouts, turns, Truth(first, second, turns.task, turns.task), policy.weights.copy())


def _advantages(
    policy: LinearPolicy, suite: TaskSuite, found: Collected, suffixes: int, horizon: int, seed: Sequence[int]
) -> list[FloatArray]:
    """``[2, turns]`` of every rollout: two estimates of V after each turn less V before it."""
    openings = [
        Opening(rollout, turn, suffixes) for rollout in found.rollouts for turn in range(len(rollout.episode.turns))
    ]
    branched = branch(policy, suite, openings, horizon=horizon, seed=seed, kept=found.kept)
    won = {rollout.episode.episode: rollout.episode.success for rollout in branched.rollouts}
    value: dict[tuple[str, int], FloatArray] = {}
    for group in branched.groups:
        if not group.complete:
            raise InputError(f"Suffixes of turn {group.turn} of {group.episode!r} failed; expected {group.count}.")
        outcomes = np.array([won[name] for name in group.branches], dtype=np.float64)
        value[group.episode, group.turn] = outcomes.reshape(2, -1).mean(axis=1)
    advantages = []
    for episode in (rollout.episode for rollout in found.rollouts):
        before = [value[episode.episode, turn] for turn in range(len(episode.turns))]
        end = np.full(2, float(episode.success))
        advantages.append(np.diff(np.stack([*before, end], axis=1), axis=1))
    return advantages


def measure_sounded(played: Sounded, estimate: FloatArray) -> dict[str, Interval]:
    """Error, sign, rank and cosine of credit, with intervals over tasks.

    ``error``, ``sign`` and ``rank`` as in ``fidelity.Fidelity``, at one best scale for all tasks; NaN where no turn
    matters. Noise of the truth lowers the rank correlation. ``cosine`` is that of the batch's gradient with the one
    that the true advantages give on the same turns: ⟨ĝ, (g₁ + g₂)/2⟩ / (|ĝ|·√⟨g₁, g₂⟩), one g for each estimate.

    Args:
        played: task groups and their truth.
        estimate: ``[N]`` credit, finite.
    """
    truth = played.truth
    whole = Truth(truth.advantage, truth.second, truth.group, np.zeros(len(estimate), dtype=np.int64))
    scaled = best_scale(estimate, whole)[0] * estimate
    wrong = np.bincount(truth.block, weights=(scaled - truth.advantage) * (scaled - truth.second)).astype(np.float64)
    all_there_is = np.bincount(truth.block, weights=truth.advantage * truth.second).astype(np.float64)
    count = len(wrong)
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
    signs = sign_agreement(estimate, truth, NOTICEABLE)
    return {
        "error": _percentiles(float(relative_error(scaled, whole)[0]), _ratios(drawn @ wrong, drawn @ all_there_is)),
        "sign": _over_tasks(signs[np.isfinite(signs)]),
        "rank": _over_tasks(rank_correlation(estimate, truth)),
        "cosine": _gradient_cosine(played, estimate, drawn),
    }


def _over_tasks(values: FloatArray) -> Interval:
    if not len(values):
        return Interval(np.nan, np.nan, np.nan)
    return cluster_bootstrap([[value] for value in values], resamples=_RESAMPLES)


def _ratios(over: FloatArray, under: FloatArray) -> FloatArray:
    """The quotients that exist; one NaN where none does."""
    there = under > 0
    return over[there] / under[there] if there.any() else np.array([np.nan])


def _percentiles(mean: float, values: FloatArray) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return Interval(mean, float(low), float(high))


def _gradient_cosine(played: Sounded, estimate: FloatArray, drawn: NDArray[np.int64]) -> Interval:
    decisions = [response.record for rollout in played.rollouts for response in rollout.responses]
    truth = played.truth
    ours, first, second = (
        task_gradients(decisions, played.turns.task, played.weights, part)
        for part in (estimate, truth.advantage, truth.second)
    )
    grams = ours @ (first + second).T / 2, ours @ ours.T, first @ second.T
    weights = np.concatenate([np.ones((1, len(ours))), drawn])
    along, own, true = (np.einsum("rk,kl,rl->r", weights, gram, weights) for gram in grams)
    norm = np.sqrt(np.maximum(own * true, 0))
    cosine = np.divide(along, norm, out=np.zeros_like(along), where=norm > 0)
    return _percentiles(float(cosine[0]), cosine[1:])


def task_gradients(
    decisions: Sequence[Decision], task: NDArray[np.integer], weights: FloatArray, estimate: FloatArray
) -> FloatArray:
    """``[G, W]`` Σ_i Â_i·∇log π(a_i) over the turns of each task, by the W weights that the decisions look at.

    Args:
        decisions: of every turn.
        task: ``[N]`` task of every turn, 0 … G − 1.
        weights: of the linear policy.
        estimate: ``[N]`` credit.
    """
    batch = Batch.of(decisions)
    used, place = np.unique(batch.indices, return_inverse=True)
    by_score = -np.exp(batch.log_probs(weights)) * estimate[batch.decision]
    by_score[batch.chosen] += estimate
    by_feature = np.repeat(by_score / batch.temperature[batch.decision], batch.lengths)
    row = np.repeat(task[batch.decision].astype(np.int64), batch.lengths) * len(used) + place
    flat = np.bincount(row, weights=by_feature, minlength=(int(task.max()) + 1) * len(used)).astype(np.float64)
    return flat.reshape(-1, len(used))
