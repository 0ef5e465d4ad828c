"""Policy losses for verl, on its padded ``[b, T]`` tensors with one row a turn; the formulas are ``policy.losses``'.

verl aggregates, so that micro-batches and ranks change nothing: a loss gives its token losses and names the only
aggregation that it means something with.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo import core_algos

from stepcredit.core.errors import OptionError
from stepcredit.policy.losses import clipped_surrogate, log_ratio, reference_penalty, turn_log_ratio

TURN_CLIP = "stepcredit_turn_clip"
COMPLETE_TURN = "stepcredit_complete_turn"
TANGENT = "stepcredit_tangent"
"""Value of ``actor.kl_loss_type`` for the tangent penalty with the paper's M = 10."""

_AGGREGATION = {TURN_CLIP: "seq-mean-token-mean", COMPLETE_TURN: "seq-mean-token-sum"}


def turn_clip(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "seq-mean-token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """min(wA, clip(w, 1 − ε_l, 1 + ε_h)·A), one length-normalised ratio w a turn, mean over turns (GRAFT, eq. 4).

    Args:
        old_log_prob: ``[b, T]`` log π_old.
        log_prob: ``[b, T]`` log π, with gradient.
        advantages: ``[b, T]``, constant within a row.
        response_mask: ``[b, T]`` tokens that count.
        loss_agg_mode: must be ``seq-mean-token-mean``.
        config: the actor's, for ``clip_ratio_low`` and ``clip_ratio_high``.
        rollout_is_weights: ``[b, T]`` importance weights of verl's rollout correction.

    Raises:
        OptionError: another aggregation.
    """
    mask = response_mask.bool()
    row = mask.nonzero()[:, 0]
    ratio = turn_log_ratio(log_prob[mask], old_log_prob[mask], row, len(mask)).exp()
    return _loss(TURN_CLIP, ratio, None, old_log_prob, log_prob, advantages, mask, loss_agg_mode, config,
                 rollout_is_weights)  # fmt: skip


def complete_turn(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "seq-mean-token-sum",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Dual-clip PPO summed over a turn's tokens, mean over turns (TSBPO): long turns weigh what they say.

    Args:
        old_log_prob, log_prob, advantages, response_mask, rollout_is_weights: as for ``turn_clip``.
        loss_agg_mode: must be ``seq-mean-token-sum``.
        config: the actor's, for ``clip_ratio_low``, ``clip_ratio_high`` and ``clip_ratio_c``.

    Raises:
        OptionError: another aggregation.
    """
    mask = response_mask.bool()
    ratio = log_ratio(log_prob[mask], old_log_prob[mask]).exp()
    dual = config.clip_ratio_c
    return _loss(COMPLETE_TURN, ratio, dual, old_log_prob, log_prob, advantages, mask, loss_agg_mode, config,
                 rollout_is_weights)  # fmt: skip


def _loss(
    name: str,
    ratio: Tensor,
    dual: float | None,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    mask: Tensor,
    loss_agg_mode: str,
    config: Any,
    rollout_is_weights: Tensor | None,
) -> tuple[Tensor, dict[str, Any]]:
    if loss_agg_mode != _AGGREGATION[name]:
        raise OptionError(
            f"Policy loss {name!r} with loss_agg_mode {loss_agg_mode!r}; "
            f"expected actor_rollout_ref.actor.loss_agg_mode={_AGGREGATION[name]}."
        )
    gain, clipped = clipped_surrogate(
        ratio, advantages[mask], low=_clip(config, "low"), high=_clip(config, "high"), dual=dual
    )
    if rollout_is_weights is not None:
        gain = gain * rollout_is_weights[mask]
    losses = torch.zeros_like(log_prob).masked_scatter(mask, -gain)
    loss = core_algos.agg_loss(loss_mat=losses, loss_mask=mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info)
    tokens = max(int(mask.sum()), 1)
    return loss, {
        "actor/pg_clipfrac": float(clipped.sum()) / tokens,
        "actor/ppo_kl": float((old_log_prob - log_prob)[mask].detach().sum()) / tokens,
    }


def _clip(config: Any, side: str) -> float:
    bound = config.get(f"clip_ratio_{side}")
    return float(config.clip_ratio if bound is None else bound)


def kl_penalty_with_tangent(stock: Any) -> Any:
    """verl's reference penalty, which also knows ``stepcredit_tangent``."""

    def kl_penalty(logprob: Tensor, ref_logprob: Tensor, kl_penalty: str) -> Tensor:
        if kl_penalty == TANGENT:
            return reference_penalty(logprob, ref_logprob, "tangent")
        penalty: Tensor = stock(logprob, ref_logprob, kl_penalty)
        return penalty

    return kl_penalty
