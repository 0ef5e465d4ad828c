"""Values and exact gradients of the linear policy, on choices laid out flat.

A response is one token, the command, so the objectives of ``policy.losses`` become functions of one ratio a turn. Their
derivatives are written out here; the tests hold them against finite differences and against ``policy.losses``.

Letters: ``D`` decisions (turns), ``C`` commands of all decisions, ``F`` feature indices of all commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import BoolArray, FloatArray, IntArray
from stepcredit.policy.settings import Objective

_LOG_RATIO_LIMIT = 20.0
_K3_LIMIT = 10.0

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice among commands, as an update needs it.

    Attributes:
        indices: ``[F]`` feature indices, command after command.
        lengths: ``[C]`` how many of them each command has, ≥ 1.
        chosen: which command was chosen.
        temperature: what it was drawn at.
    """

    indices: IntArray
    lengths: IntArray
    chosen: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Decisions laid out flat.

    Attributes:
        indices: ``[F]`` feature indices.
        lengths: ``[C]`` features per command.
        first_feature: ``[C]`` where each command's features begin.
        first_command: ``[D]`` where each decision's commands begin.
        decision: ``[C]`` the decision each command belongs to.
        chosen: ``[D]`` the chosen command, an index into ``[C]``.
        temperature: ``[D]``.
    """

    indices: IntArray
    lengths: IntArray
    first_feature: Places
    first_command: Places
    decision: Places
    chosen: Places
    temperature: FloatArray

    @classmethod
    def of(cls, decisions: Sequence[Decision]) -> Batch:
        """Lay out at least one decision."""
        lengths = np.concatenate([decision.lengths for decision in decisions])
        commands = np.array([len(decision.lengths) for decision in decisions])
        first_command = _starts(commands)
        return cls(
            indices=np.concatenate([decision.indices for decision in decisions]),
            lengths=lengths,
            first_feature=_starts(lengths),
            first_command=first_command,
            decision=np.repeat(np.arange(len(decisions)), commands),
            chosen=first_command + np.array([decision.chosen for decision in decisions]),
            temperature=np.array([decision.temperature for decision in decisions]),
        )

    def log_probs(self, weights: FloatArray) -> FloatArray:
        """``[C]`` log π of every command."""
        scores: FloatArray = np.add.reduceat(weights[self.indices], self.first_feature)
        scores /= self.temperature[self.decision]
        scores -= np.maximum.reduceat(scores, self.first_command)[self.decision]
        scores -= np.log(np.add.reduceat(np.exp(scores), self.first_command))[self.decision]
        return scores

    def gradient(self, by_score: FloatArray, size: int) -> FloatArray:
        """``[size]`` ∂L/∂w, given ``[C]`` ∂L/∂(score/T)."""
        by_feature = np.repeat(by_score / self.temperature[self.decision], self.lengths)
        return np.asarray(np.bincount(self.indices, weights=by_feature, minlength=size), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """Loss and gradient of one optimiser minibatch, and means over its turns before the step."""

    loss: float
    gradient: FloatArray
    turns: int
    clip_share: float
    approx_kl: float
    entropy: float
    ratio_deviation: float


def policy_step(
    batch: Batch,
    weights: FloatArray,
    *,
    old: FloatArray,
    advantage: FloatArray,
    objective: Objective,
    reference: FloatArray | None = None,
) -> PolicyStep:
    """Loss −Σ scale·(J + entropy_coef·H − penalty_coef·k(δ)) and its gradient.

    ``scale`` is 1/D: with one token a turn all aggregations agree, except ``seq-mean-token-sum-norm``, which divides by
    ``norm_length`` as well. With s_c the score of command c over the temperature, ∂log π(a)/∂s_c = [c = a] − π(c) and
    ∂H/∂s_c = −π(c)(log π(c) + H).

    Args:
        batch: ``[D]`` decisions.
        weights: of the policy.
        old: ``[D]`` log-probability of the choice under the behaviour policy.
        advantage: ``[D]``, finite.
        objective: which J and k.
        reference: weights of the reference policy; needed where ``objective.penalty_coef`` > 0.
    """
    log_probs = batch.log_probs(weights)
    probs = np.exp(log_probs)
    shift = np.clip(log_probs[batch.chosen] - old, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    ratio = np.exp(shift)
    gain, slope, clipped = surrogate(ratio, advantage, objective)
    entropy = -np.add.reduceat(probs * log_probs, batch.first_command)
    gain = gain + objective.entropy_coef * entropy
    if objective.penalty_coef and reference is not None:
        delta = batch.log_probs(reference)[batch.chosen] - log_probs[batch.chosen]
        cost, cost_slope = reference_penalty(delta, objective)
        gain = gain - objective.penalty_coef * cost
        slope = slope + objective.penalty_coef * cost_slope
    by_score = -objective.entropy_coef * probs * (log_probs + entropy[batch.decision])
    by_score -= probs * slope[batch.decision]
    by_score[batch.chosen] += slope
    scale = 1.0 / len(old)
    if objective.surrogate == "clip" and objective.aggregation == "seq-mean-token-sum-norm":
        scale /= objective.norm_length
    return PolicyStep(
        loss=float(-scale * gain.sum()),
        gradient=batch.gradient(-scale * by_score, len(weights)),
        turns=len(old),
        clip_share=float(clipped.mean()),
        approx_kl=float((ratio - 1 - shift).mean()),
        entropy=float(entropy.mean()),
        ratio_deviation=float(np.abs(ratio - 1).max()),
    )


def likelihood_step(batch: Batch, weights: FloatArray, weight: FloatArray) -> tuple[float, FloatArray]:
    """Σ weight·(−log π) / Σ weight over the decisions, and its gradient.

    Args:
        batch: ``[D]`` decisions.
        weights: of the policy.
        weight: ``[D]`` > 0.
    """
    share = weight / weight.sum()
    log_probs = batch.log_probs(weights)
    by_score = np.exp(log_probs) * share[batch.decision]
    by_score[batch.chosen] -= share
    return float(-(share @ log_probs[batch.chosen])), batch.gradient(by_score, len(weights))


def surrogate(
    ratio: FloatArray, advantage: FloatArray, objective: Objective
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """J = min(ρA, clip(ρ, 1 − ε_l, 1 + ε_h)A), for A < 0 at least cA (dual clip); ∂J/∂log π; where J is at a bound.

    Args:
        ratio: ``[D]`` ρ.
        advantage: ``[D]`` A.
        objective: ε_l, ε_h and c.
    """
    plain = ratio * advantage
    bounded = np.clip(ratio, 1.0 - objective.clip_low, 1.0 + objective.clip_high) * advantage
    gain = np.minimum(plain, bounded)
    at_bound = bounded < plain
    if objective.dual_clip is not None:
        floor = objective.dual_clip * advantage
        below = (advantage < 0) & (gain < floor)
        gain = np.where(below, floor, gain)
        at_bound |= below
    return gain, np.where(at_bound, 0.0, plain), at_bound


def reference_penalty(delta: FloatArray, objective: Objective) -> tuple[FloatArray, FloatArray]:
    """k(δ) and k'(δ) of δ = log π_ref − log π, ``[D]`` each; the forms are those of ``policy.losses``."""
    match objective.penalty:
        case "k1":
            return -delta, -np.ones_like(delta)
        case "abs":
            return np.abs(delta), np.sign(delta)
        case "k2":
            return delta * delta / 2, delta
        case "k3":
            clamped = np.clip(delta, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
            cost = np.expm1(clamped) - clamped
            inside = (clamped == delta) & (cost < _K3_LIMIT)
            return np.minimum(cost, _K3_LIMIT), np.where(inside, np.expm1(clamped), 0.0)
        case "tangent":
            below = np.minimum(delta, np.log1p(objective.tangent_bound))
            cost = np.expm1(below) - below + objective.tangent_bound * (delta - below)
            return cost, np.expm1(below)


def _starts(lengths: NDArray[np.integer]) -> Places:
    """Where segments of these lengths begin when laid out one after the other."""
    starts: Places = np.cumsum(lengths, dtype=np.int64) - lengths
    return starts
