"""One policy update: rollouts and advantages in, optimiser steps out; it never asks who made the advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from stepcredit.core.credit import FloatArray
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.generation import pad_choices
from stepcredit.policy.losses import policy_loss, token_weights
from stepcredit.policy.model import PackedModel
from stepcredit.policy.optimizer import Optimizer
from stepcredit.policy.sequences import (
    ImitationSequence,
    PolicySequence,
    imitation_sequences,
    micro_batches,
    pack,
    policy_sequences,
)
from stepcredit.policy.settings import Objective, Replay, UpdateSettings
from stepcredit.policy.supervised import backward_imitation, mean, minibatches, rollout_rows
from stepcredit.policy.workers import add_gradients, loss_gradients
from stepcredit.rollouts.types import Rollout


def response_logprobs(model: PackedModel, sequences: Sequence[PolicySequence]) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of every response token, ``[L]`` each, in nats, under today's weights.

    Constraint and temperature are those each token was drawn with. A token that was the only one allowed has
    log-probability and entropy exactly 0 and costs no output layer.
    """
    packed = pack(sequences)
    place = np.concatenate([sequence.place + at for sequence, at in zip(sequences, packed.offset, strict=True)])
    count = np.concatenate([sequence.allowed_count for sequence in sequences])
    target = np.concatenate([sequence.target for sequence in sequences])
    (drawn,) = np.nonzero(count != 1)
    logits = model.logits(packed.tokens, packed.positions, packed.layout, torch.from_numpy(place[drawn]).long())
    device = logits.device
    scores = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    temperature = np.concatenate([sequence.temperature for sequence in sequences])[drawn]
    scores = scores / torch.from_numpy(temperature).to(device, scores.dtype)[:, None]
    column = torch.from_numpy(target[drawn]).long().to(device)
    if (count[drawn] > 0).any():
        ids = np.concatenate([sequence.allowed for sequence in sequences])
        end = np.cumsum(count)
        columns, inside = pad_choices([ids[end[at] - count[at] : end[at]].tolist() for at in drawn])
        columns, inside = columns.to(device), inside.to(device)
        scores = scores.gather(1, columns).masked_fill(~inside, -torch.inf)
        column = (columns == column[:, None]).int().argmax(1)
    logprobs = torch.log_softmax(scores, dim=-1)
    entropy = -(logprobs.exp() * logprobs.masked_fill(torch.isinf(logprobs), 0.0)).sum(-1)
    where = (torch.from_numpy(drawn).to(device),)
    zeros = torch.zeros(len(count), dtype=scores.dtype, device=device)
    return zeros.index_put(where, logprobs.gather(1, column[:, None])[:, 0]), zeros.index_put(where, entropy)


@dataclass(frozen=True, slots=True)
class StepSums:
    """What one optimiser minibatch gave: the loss, and sums over its response tokens before the step."""

    loss: float = 0.0
    tokens: int = 0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    deviation: float = 0.0

    def plus(self, other: StepSums) -> StepSums:
        """Both together; ``deviation`` is the greater."""
        return StepSums(
            loss=self.loss + other.loss,
            tokens=self.tokens + other.tokens,
            clipped=self.clipped + other.clipped,
            kl=self.kl + other.kl,
            entropy=self.entropy + other.entropy,
            deviation=max(self.deviation, other.deviation),
        )


def backward_policy(
    model: PackedModel,
    sequences: Sequence[PolicySequence],
    advantage: FloatArray,
    objective: Objective,
    *,
    reference: Sequence[Tensor] | None = None,
    micro_batch_tokens: int,
) -> StepSums:
    """Add the gradient of one optimiser minibatch's policy loss, micro-batches in parallel.

    Every divisor is that of the whole minibatch, so the result depends on neither micro-batches nor the order of rows.

    Args:
        model: whose gradient.
        sequences: the minibatch.
        advantage: ``[N]`` by row of the batch; finite for every row the sequences name.
        objective: the loss.
        reference: ``[L]`` per sequence, log π_ref.
        micro_batch_tokens: input tokens in one forward pass.
    """
    if not sequences:
        return StepSums()
    parameters = model.parameters
    weights = _minibatch_weights(objective, sequences)

    def differentiate(own: slice) -> tuple[StepSums, list[Tensor | None]]:
        micro = sequences[own]
        logprob, entropy = response_logprobs(model, micro)
        device, dtype = logprob.device, logprob.dtype
        rows, turn = np.unique(np.concatenate([sequence.turn for sequence in micro]), return_inverse=True)
        local = torch.from_numpy(turn).to(device)
        old = torch.from_numpy(np.concatenate([sequence.logprob for sequence in micro])).to(device, dtype)
        loss, clipped = policy_loss(
            objective,
            logprob=logprob,
            old=old,
            advantage=torch.from_numpy(advantage[rows]).to(device, dtype)[local],
            turn=local,
            turns=len(rows),
            weight=torch.cat(weights[own]).to(device, dtype),
            entropy=entropy,
            reference=torch.cat(list(reference[own])) if reference else None,
        )
        shift = (logprob - old).detach()
        sums = StepSums(
            loss=float(loss.detach()),
            tokens=len(shift),
            clipped=float(clipped.sum()),
            kl=float((shift.exp() - 1 - shift).sum()),
            entropy=float(entropy.detach().sum()),
            deviation=float((shift.exp() - 1).abs().max()),
        )
        return sums, loss_gradients(loss, parameters)

    total = StepSums()
    for sums, gradients in model.workers.map(differentiate, micro_batches(sequences, micro_batch_tokens)):
        add_gradients(parameters, gradients)
        total = total.plus(sums)
    return total


def _minibatch_weights(objective: Objective, sequences: Sequence[PolicySequence]) -> list[Tensor]:
    """Token weights of a whole optimiser minibatch, cut by sequence."""
    turns, turn = np.unique(np.concatenate([sequence.turn for sequence in sequences]), return_inverse=True)
    aggregation = "seq-mean-token-mean" if objective.surrogate == "turn-clip" else objective.aggregation
    weights = token_weights(torch.from_numpy(turn), len(turns), aggregation, objective.norm_length)
    return list(torch.split(weights, [len(sequence.target) for sequence in sequences]))


def update(
    model: PackedModel,
    optimizer: Optimizer,
    conversation: Conversation,
    rollouts: Sequence[Rollout],
    advantage: FloatArray,
    settings: UpdateSettings,
    seed: Sequence[int],
    *,
    replay: Replay | None = None,
    reference: PackedModel | None = None,
) -> dict[str, float]:
    """One update; see ``TransformerPolicy.update``."""
    rows = rollout_rows(rollouts, advantage, "advantage")
    scored = ~np.isnan(advantage)
    prepared = [
        policy_sequences(rollout, own.start, scored[own], conversation)
        for rollout, own in zip(rollouts, rows, strict=True)
    ]
    references = _reference_logprobs(reference, prepared) if reference else None
    demonstrations = _replayed(replay, conversation) if settings.imitation_coef else []
    steps: list[StepSums] = []
    imitation_losses: list[float] = []
    norms: list[float | None] = []
    for epoch in range(settings.epochs):
        batches = list(minibatches(len(rollouts), settings.minibatch, (*seed, epoch)))
        order = np.random.default_rng((*seed, epoch, 1)).permutation(len(demonstrations))
        for chosen, share in zip(batches, np.array_split(order, len(batches)), strict=True):
            sums = backward_policy(
                model,
                [sequence for index in chosen for sequence in prepared[index]],
                advantage,
                settings.objective,
                reference=[one for index in chosen for one in references[index]] if references else None,
                micro_batch_tokens=settings.micro_batch_tokens,
            )
            imitation, _ = backward_imitation(
                model,
                [sequence for index in share for sequence in demonstrations[index]],
                micro_batch_tokens=settings.micro_batch_tokens,
                scale=settings.imitation_coef,
            )
            loss = sums.loss + settings.imitation_coef * imitation
            step = partial(optimizer.step, loss, lr=settings.lr, max_grad_norm=settings.max_grad_norm)
            norms.append(model.workers.call(step))
            steps.append(sums)
            imitation_losses.append(imitation)
    return _metrics(prepared, steps, imitation_losses, norms)


def _reference_logprobs(reference: PackedModel, prepared: Sequence[Sequence[PolicySequence]]) -> list[list[Tensor]]:
    def evaluate(sequences: Sequence[PolicySequence]) -> list[Tensor]:
        with torch.no_grad():
            return [response_logprobs(reference, [sequence])[0] for sequence in sequences]

    return list(reference.workers.map(evaluate, prepared))


def _replayed(replay: Replay | None, conversation: Conversation) -> list[list[ImitationSequence]]:
    if replay is None:
        return []
    rows = rollout_rows(replay.rollouts, replay.weight, "replay weight")
    return [
        imitation_sequences(rollout, replay.weight[own], 0.0, conversation)
        for rollout, own in zip(replay.rollouts, rows, strict=True)
    ]


def _metrics(
    prepared: Sequence[Sequence[PolicySequence]],
    steps: Sequence[StepSums],
    imitation_losses: Sequence[float],
    norms: Sequence[float | None],
) -> dict[str, float]:
    taken = [norm for norm in norms if norm is not None]
    tokens = max(sum(step.tokens for step in steps), 1)
    return {
        "loss": mean([step.loss for step in steps]),
        "imitation_loss": mean(imitation_losses),
        "grad_norm": mean(taken),
        "clip_share": sum(step.clipped for step in steps) / tokens,
        "approx_kl": sum(step.kl for step in steps) / tokens,
        "entropy": sum(step.entropy for step in steps) / tokens,
        "ratio_deviation": steps[0].deviation if steps else 0.0,
        "turns": float(sum(len(np.unique(sequence.turn)) for one in prepared for sequence in one)),
        "tokens": float(sum(len(sequence.target) for one in prepared for sequence in one)),
        "skipped_steps": float(len(norms) - len(taken)),
    }
