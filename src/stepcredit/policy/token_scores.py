"""Log-probability and entropy of tokens from logits, with a backward pass that keeps nothing but the logits.

Written as single operations, the same would keep five arrays as large as the logits until the backward pass, which for
a vocabulary of 50,000 is most of an update's memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def token_scores(logits: Tensor, temperature: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy, ``[L]`` each, nats, of tokens under p = softmax(logits/temperature).

    Args:
        logits: ``[R, V]``; −∞ where a token is not allowed, and not everywhere in a row.
        temperature: ``[R]`` > 0, without gradient.
        row: ``[L]`` distribution each token is drawn from, 0 … R − 1; several tokens may share one.
        column: ``[L]`` which of its V.
    """
    logprob, entropy = _TokenScores.apply(logits, temperature, row, column)  # type: ignore[no-untyped-call]
    return logprob, entropy


class _TokenScores(torch.autograd.Function):
    """With p = softmax(s), s = logits/τ: ∂ log p_y/∂s = 1_y − p and ∂H/∂s = −p·(log p + H)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, temperature: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        logp = torch.log_softmax(logits / temperature[:, None], dim=-1)
        entropy = -_expected(logp.exp(), logp)
        ctx.save_for_backward(logits, temperature, row, column, entropy)
        return logp[row, column], entropy[row]

    @staticmethod
    def backward(ctx: Any, of_logprob: Tensor, of_entropy: Tensor) -> tuple[Tensor, None, None, None]:
        logits, temperature, row, column, entropy = ctx.saved_tensors
        logp = torch.log_softmax(logits / temperature[:, None], dim=-1)
        probability = logp.exp()
        total = torch.zeros_like(entropy)
        by_entropy = total.index_add(0, row, of_entropy)[:, None]
        factor = total.index_add(0, row, of_logprob)[:, None]
        if by_entropy.any():
            factor = factor + by_entropy * (logp.masked_fill_(torch.isneginf(logp), 0.0) + entropy[:, None])
        gradient = probability.mul_(-factor)
        gradient.index_put_((row, column), of_logprob, accumulate=True)
        return gradient.div_(temperature[:, None]), None, None, None


def _expected(probability: Tensor, value: Tensor) -> Tensor:
    """Σ p·value over the last dimension, 0 where p is 0."""
    return torch.where(probability > 0, probability * value, 0.0).sum(-1)
