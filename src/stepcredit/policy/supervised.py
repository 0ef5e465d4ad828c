"""Supervised learning on demonstrations: cross-entropy of responses, and a little of what is observed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.core.errors import InputError
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.model import PackedModel
from stepcredit.policy.optimizer import Optimizer
from stepcredit.policy.packing import micro_batches, pack, prefix_order
from stepcredit.policy.sequences import ImitationSequence, imitation_sequences
from stepcredit.policy.settings import ImitateSettings
from stepcredit.policy.workers import accumulate, loss_gradients
from stepcredit.rollouts.types import Rollout


def rollout_rows(rollouts: Sequence[Rollout], values: FloatArray, name: str) -> list[slice]:
    """The rows of each rollout's turns in a per-turn column.

    Raises:
        InputError: the column's length is not the number of turns.
    """
    ends = np.cumsum([0, *(len(rollout.responses) for rollout in rollouts)]).tolist()
    if len(values) != ends[-1]:
        raise InputError(f"Got {len(values)} values of {name} for {ends[-1]} turns; expected one each.")
    return [slice(start, end) for start, end in pairwise(ends)]


def minibatches(count: int, size: int, seed: Sequence[int]) -> Iterator[IntArray]:
    """A seeded permutation of 0 … count − 1 in runs of ``size``."""
    order = np.random.default_rng(tuple(seed)).permutation(count).astype(np.int32)
    for start in range(0, count, size):
        yield order[start : start + size]


def imitation_loss(model: PackedModel, sequences: Sequence[ImitationSequence]) -> tuple[Tensor, Tensor]:
    """Σ weight·(−log π) of some sequences, and the part of it that falls on responses.

    Full vocabulary, temperature 1: what is learnt holds with and without constraint.
    """
    packed = pack(sequences)
    weight = torch.from_numpy(np.concatenate([sequence.weight for sequence in sequences]))
    response = torch.from_numpy(np.concatenate([sequence.response for sequence in sequences]))
    target = torch.from_numpy(np.concatenate([sequence.target for sequence in sequences]).astype(np.int64))
    (weighty,) = torch.nonzero(weight, as_tuple=True)
    # Sequences that begin alike share places, each with its own weight and perhaps its own successor.
    place, row = torch.unique(torch.from_numpy(np.concatenate(packed.where))[weighty], return_inverse=True)
    logits = model.logits(packed.tokens, packed.positions, packed.layout, place)
    device = logits.device
    scores = logits.float() if logits.dtype == torch.bfloat16 else logits
    loss = -torch.log_softmax(scores, dim=-1)[row.to(device), target[weighty].to(device)]
    weighted = loss * weight[weighty].to(device, loss.dtype)
    return weighted.sum(), weighted.detach()[response[weighty].to(device)].sum()


def backward_imitation(
    model: PackedModel, sequences: Sequence[ImitationSequence], *, micro_batch_tokens: int, scale: float = 1.0
) -> tuple[float, float]:
    """Add the gradient of scale·Σ weight·(−log π)/Σ weight, micro-batches in parallel.

    Returns:
        The loss (without ``scale``), and the mean −log π of response tokens, nats; zeros where nothing has a weight.
    """
    total = sum(float(sequence.weight.sum()) for sequence in sequences)
    on_responses = sum(float(sequence.weight[sequence.response].sum()) for sequence in sequences)
    ordered = [sequences[index] for index in prefix_order(sequences)]

    def differentiate(own: slice) -> tuple[tuple[float, float], list[Tensor | None]]:
        loss, response_loss = imitation_loss(model, ordered[own])
        gradients = loss_gradients(loss * (scale / total), model.parameters)
        return (float(loss.detach()), float(response_loss)), gradients

    parts = accumulate(model.workers, model.parameters, micro_batches(ordered, micro_batch_tokens), differentiate)
    loss, response_loss = sum(part for part, _ in parts), sum(part for _, part in parts)
    return (loss / total if total else 0.0), (response_loss / on_responses if on_responses else 0.0)


def response_nll(
    model: PackedModel, conversation: Conversation, rollouts: Sequence[Rollout], weight: FloatArray
) -> float:
    """Mean −log π per response token, nats, weighted by turn; 0 where nothing has a weight."""
    rows = rollout_rows(rollouts, weight, "weight")
    sequences = [
        sequence
        for rollout, own in zip(rollouts, rows, strict=True)
        for sequence in imitation_sequences(rollout, weight[own], 0.0, conversation)
    ]
    ordered = [sequences[index] for index in prefix_order(sequences)]
    total = sum(float(sequence.weight.sum()) for sequence in ordered)

    def read(own: slice) -> float:
        with torch.no_grad():
            return float(imitation_loss(model, ordered[own])[0])

    parts = micro_batches(ordered, ImitateSettings().micro_batch_tokens)
    return sum(model.workers.map(read, parts)) / total if total else 0.0


def imitate(
    model: PackedModel,
    optimizer: Optimizer,
    conversation: Conversation,
    rollouts: Sequence[Rollout],
    weight: FloatArray,
    settings: ImitateSettings,
    seed: Sequence[int],
) -> dict[str, float]:
    """One epoch; see ``TransformerPolicy.imitate``."""
    rows = rollout_rows(rollouts, weight, "weight")
    losses: list[float] = []
    norms: list[float] = []
    response_losses: list[float] = []
    tokens = skipped = 0
    for chosen in minibatches(len(rollouts), settings.minibatch, seed):
        sequences = [
            sequence
            for index in chosen
            for sequence in imitation_sequences(
                rollouts[index], weight[rows[index]], settings.observation_weight, conversation
            )
        ]
        if not sequences:
            continue
        loss, response_loss = backward_imitation(model, sequences, micro_batch_tokens=settings.micro_batch_tokens)
        step = partial(optimizer.step, loss, lr=settings.lr, max_grad_norm=settings.max_grad_norm)
        norm = model.workers.call(step)
        tokens += sum(len(sequence.tokens) for sequence in sequences)
        if norm is None:
            skipped += 1
            continue
        losses.append(loss)
        response_losses.append(response_loss)
        norms.append(norm)
    return {
        "imitation_loss": mean(losses),
        "response_nll": mean(response_losses),
        "grad_norm": mean(norms),
        "tokens": float(tokens),
        "skipped_steps": float(skipped),
    }


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0
