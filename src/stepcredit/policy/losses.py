"""Policy objectives as pure functions of flat token tensors.

``L`` response tokens of ``N`` active turns, no padding anywhere. ``turn`` is the index of each token's turn, 0 … N − 1.
With ρ = exp(log π − log π_old):

* ``clip``: J = min(ρA, clip(ρ, 1 − ε_l, 1 + ε_h)·A), and for A < 0 the dual clip J = max(J, cA).
  ε_l = ε_h is PPO (Schulman et al. 2017, eq. 7); the dual clip is Ye et al. 2020, eq. 5; ε_h > ε_l is DAPO.
* ``turn-clip``: the same with one ratio a turn, w = (π(y)/π_old(y))^{1/|y|}, y the whole response (GSPO; GRPO-C of
  GRAFT, eq. 4).

The loss of a batch is −Σ_t weight_t·J_t, with the weights of ``token_weights``. Because the weights hold every divisor,
the sum over micro-batches equals the loss of the whole optimiser minibatch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stepcredit.policy.settings import Aggregation, Objective, Penalty

_LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to ± this before exp, far outside every clip range, so that no infinity meets a zero."""
_K3_LIMIT = 10.0


def token_weights(turn: Tensor, turns: int, aggregation: Aggregation, norm_length: int = 1) -> Tensor:
    """Weight of each token's loss, ``[L]`` float64.

    * ``token-mean``: 1/L, every token counts alike.
    * ``seq-mean-token-mean``: 1/(N·L_i), every turn counts alike, whatever its length L_i.
    * ``seq-mean-token-sum``: 1/N, the complete turn (TSBPO): at π = π_old the gradient is that of
      (1/N) Σ_i A_i log π(y_i|H_i).
    * ``seq-mean-token-sum-norm``: 1/(N·``norm_length``) (Dr. GRPO's constant divisor).
    """
    ones = torch.ones(len(turn), dtype=torch.float64, device=turn.device)
    match aggregation:
        case "token-mean":
            return ones / max(len(turn), 1)
        case "seq-mean-token-mean":
            return ones / (turns * torch.bincount(turn, minlength=turns)[turn])
        case "seq-mean-token-sum":
            return ones / max(turns, 1)
        case "seq-mean-token-sum-norm":
            return ones / (max(turns, 1) * norm_length)


def log_ratio(logprob: Tensor, old: Tensor) -> Tensor:
    """log π − log π_old per token, ``[L]``, clamped to ±20."""
    return (logprob - old).clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)


def turn_log_ratio(logprob: Tensor, old: Tensor, turn: Tensor, turns: int) -> Tensor:
    """(1/|y|) log π(y)/π_old(y) of each token's turn, repeated for all its tokens, ``[L]``, clamped to ±20."""
    total = torch.zeros(turns, dtype=logprob.dtype, device=logprob.device).index_add(0, turn, logprob - old)
    mean = total / torch.bincount(turn, minlength=turns).clamp_min(1)
    return mean.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)[turn]


def clipped_surrogate(
    ratio: Tensor, advantage: Tensor, *, low: float, high: float, dual: float | None
) -> tuple[Tensor, Tensor]:
    """J per token, ``[L]``, and which tokens were clipped (their gradient is zero), ``[L]`` bool.

    Args:
        ratio: ``[L]`` ρ.
        advantage: ``[L]`` A of each token's turn.
        low: ε_l.
        high: ε_h.
        dual: c > 1, or None for no dual clip.
    """
    plain = ratio * advantage
    clipped = ratio.clamp(1 - low, 1 + high) * advantage
    surrogate = torch.minimum(plain, clipped)
    at_bound = clipped < plain
    if dual is not None:
        floor = dual * advantage
        bounded = (advantage < 0) & (surrogate < floor)
        surrogate = torch.where(bounded, floor, surrogate)
        at_bound = at_bound | bounded
    return surrogate, at_bound


def reference_penalty(logprob: Tensor, reference: Tensor, form: Penalty, bound: float = 10.0) -> Tensor:
    """Penalty per token, ``[L]``, of δ = log π_ref − log π.

    * ``k1``: −δ. ``abs``: |δ|. ``k2``: δ²/2. ``k3``: e^δ − δ − 1, clamped to ±10 (J. Schulman's estimators).
    * ``tangent`` (TSBPO): e^δ − δ − 1 up to δ* = ln(1 + M), beyond it the tangent there, M − δ* + M(δ − δ*); value and
      slope are continuous, and the gradient never exceeds M = ``bound``.
    """
    delta = reference - logprob
    match form:
        case "k1":
            return -delta
        case "abs":
            return delta.abs()
        case "k2":
            return delta.square() / 2
        case "k3":
            delta = delta.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
            return (delta.exp() - delta - 1).clamp(-_K3_LIMIT, _K3_LIMIT)
        case "tangent":
            knee = math.log1p(bound)
            below = delta.clamp_max(knee)
            return below.exp() - below - 1 + bound * (delta - below)


def policy_loss(
    objective: Objective,
    *,
    logprob: Tensor,
    old: Tensor,
    advantage: Tensor,
    turn: Tensor,
    turns: int,
    weight: Tensor,
    entropy: Tensor,
    reference: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Loss of some whole turns, a scalar, and which tokens were clipped, ``[L]``.

    −Σ weight·(J + entropy_coef·H − penalty_coef·D), D the reference penalty.

    Args:
        objective: which J and D.
        logprob: ``[L]`` log π, with gradient.
        old: ``[L]`` log π_old.
        advantage: ``[L]`` of each token's turn.
        turn: ``[L]`` 0 … ``turns`` − 1.
        turns: number of turns here.
        weight: ``[L]`` from ``token_weights`` over the whole optimiser minibatch; ``turn-clip`` needs those of
            ``seq-mean-token-mean``, which make it the mean over turns.
        entropy: ``[L]`` entropy of each token's distribution, nats.
        reference: ``[L]`` log π_ref; needed where ``objective.penalty_coef`` > 0.
    """
    shift = turn_log_ratio(logprob, old, turn, turns) if objective.surrogate == "turn-clip" else log_ratio(logprob, old)
    gain, clipped = clipped_surrogate(
        shift.exp(), advantage, low=objective.clip_low, high=objective.clip_high, dual=objective.dual_clip
    )
    if objective.entropy_coef:
        gain = gain + objective.entropy_coef * entropy
    if objective.penalty_coef and reference is not None:
        cost = reference_penalty(logprob, reference, objective.penalty, objective.tangent_bound)
        gain = gain - objective.penalty_coef * cost
    return -(weight.to(gain.dtype) * gain).sum(), clipped


def value_loss(value: Tensor, before: Tensor, target: Tensor, clip: float) -> Tensor:
    """½ Σ max((V − R)², (V_c − R)²), V_c = V_old + clip(V − V_old, ±``clip``): a scalar.

    A value that left V_old by more than ``clip`` on the way to R has no gradient (the clipped value loss of PPO's
    reference implementation; Engstrom et al. 2020, eq. 1).

    Args:
        value: ``[n]`` V, with gradient.
        before: ``[n]`` V_old, before the update.
        target: ``[n]`` R.
        clip: reward units; infinite for the plain squared error.
    """
    held = before + (value - before).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (held - target).square()).sum() / 2
