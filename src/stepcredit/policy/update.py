"""One policy update: rollouts and advantages in, optimiser steps out; it never asks who made the advantages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from stepcredit.core.credit import FloatArray
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.critic import Critic
from stepcredit.policy.gradient import StepSums, backward_policy, read_in_parts
from stepcredit.policy.model import PackedModel
from stepcredit.policy.optimizer import Optimizer
from stepcredit.policy.sequences import ImitationSequence, PolicySequence, imitation_sequences, policy_sequences
from stepcredit.policy.settings import Replay, Returns, UpdateSettings
from stepcredit.policy.supervised import backward_imitation, mean, minibatches, rollout_rows
from stepcredit.rollouts.types import Rollout


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
    critic: Critic | None = None,
    returns: Returns | None = None,
) -> dict[str, float]:
    """One update; see ``TransformerPolicy.update``."""
    rows = rollout_rows(rollouts, advantage, "advantage")
    if returns is not None:
        rollout_rows(rollouts, returns.target, "return")
        rollout_rows(rollouts, returns.value, "value")
    scored = ~np.isnan(advantage)
    prepared = [
        policy_sequences(rollout, own.start, scored[own], conversation)
        for rollout, own in zip(rollouts, rows, strict=True)
    ]
    limit = settings.micro_batch_tokens
    references = _reference_logprobs(reference, prepared, limit) if reference else None
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
                critic=critic,
                returns=returns,
                micro_batch_tokens=limit,
            )
            imitation, _ = backward_imitation(
                model,
                [sequence for index in share for sequence in demonstrations[index]],
                micro_batch_tokens=limit,
                scale=settings.imitation_coef,
            )
            norms.append(_step(model, optimizer, critic, sums.loss + settings.imitation_coef * imitation, settings))
            steps.append(sums)
            imitation_losses.append(imitation)
    metrics = _metrics(prepared, steps, imitation_losses, norms)
    return {**metrics, "value_loss": mean([step.value_loss for step in steps])} if critic else metrics


def turn_values(
    model: PackedModel,
    critic: Critic,
    conversation: Conversation,
    rollouts: Sequence[Rollout],
    micro_batch_tokens: int,
) -> FloatArray:
    """Today's values ``[N]`` of the states before each turn; see ``TransformerPolicy.values``."""
    counts = [len(rollout.responses) for rollout in rollouts]
    values = np.zeros(sum(counts))
    sequences = [
        sequence
        for rollout, end in zip(rollouts, np.cumsum(counts), strict=True)
        for sequence in policy_sequences(
            rollout, int(end) - len(rollout.responses), np.ones(len(rollout.responses), dtype=bool), conversation
        )
    ]
    turns = [np.unique(sequence.turn) for sequence in sequences]
    read = read_in_parts(
        model, sequences, micro_batch_tokens, lambda reading: critic(reading.state), [len(own) for own in turns]
    )
    for own, value in zip(turns, read, strict=True):
        values[own] = value.double().cpu().numpy()
    return values


def _step(
    model: PackedModel, optimizer: Optimizer, critic: Critic | None, loss: float, settings: UpdateSettings
) -> float | None:
    """One step of everything that learns, or of nothing; the norm of the policy's gradient."""

    def step() -> float | None:
        norm = optimizer.step(loss, lr=settings.lr, max_grad_norm=settings.max_grad_norm)
        if critic:
            critic.step(math.nan if norm is None else loss, lr=settings.lr, max_grad_norm=settings.max_grad_norm)
        return norm

    return model.workers.call(step)


def _reference_logprobs(
    reference: PackedModel, prepared: Sequence[Sequence[PolicySequence]], micro_batch_tokens: int
) -> list[list[Tensor]]:
    sequences = [sequence for one in prepared for sequence in one]
    read = iter(
        read_in_parts(
            reference,
            sequences,
            micro_batch_tokens,
            lambda reading: reading.logprob,
            [len(sequence.target) for sequence in sequences],
        )
    )
    return [[next(read) for _ in one] for one in prepared]


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
