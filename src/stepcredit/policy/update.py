"""One policy update: rollouts and advantages in, optimiser steps out; it never asks who made the advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
from stepcredit.policy.supervised import backward_imitation, minibatches, rollout_rows
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


@dataclass(slots=True)
class _Tally:
    """Sums over the optimiser steps of one update."""

    loss: float = 0.0
    grad_norm: float = 0.0
    imitation_loss: float = 0.0
    steps: int = 0
    skipped: int = 0
    tokens: int = 0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    first_deviation: float | None = None
    deviations: list[float] = field(default_factory=list)

    def metrics(self) -> dict[str, float]:
        steps, tokens = max(self.steps, 1), max(self.tokens, 1)
        return {
            "loss": self.loss / steps,
            "clip_share": self.clipped / tokens,
            "approx_kl": self.kl / tokens,
            "entropy": self.entropy / tokens,
            "grad_norm": self.grad_norm / steps,
            "ratio_deviation": self.first_deviation or 0.0,
            "imitation_loss": self.imitation_loss / steps,
            "skipped_steps": float(self.skipped),
        }


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One rollout's sequences and, per sequence, its tokens' log-probabilities under the reference policy."""

    sequences: list[PolicySequence]
    reference: list[Tensor]


class Updater:
    """One update of one model; see ``TransformerPolicy.update``."""

    def __init__(
        self,
        model: PackedModel,
        optimizer: Optimizer,
        conversation: Conversation,
        settings: UpdateSettings,
        reference: PackedModel | None,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._conversation = conversation
        self._settings = settings
        self._reference = reference if settings.objective.penalty_coef else None

    def run(
        self, rollouts: Sequence[Rollout], advantage: FloatArray, seed: Sequence[int], replay: Replay | None
    ) -> dict[str, float]:
        """All epochs."""
        rows = rollout_rows(rollouts, advantage, "advantage")
        scored = ~np.isnan(advantage)
        prepared = [
            self._prepare(policy_sequences(rollout, own.start, scored[own], self._conversation))
            for rollout, own in zip(rollouts, rows, strict=True)
        ]
        demonstrations = self._replayed(replay)
        tally = _Tally()
        values = torch.from_numpy(advantage)
        for epoch in range(self._settings.epochs):
            batches = list(minibatches(len(rollouts), self._settings.minibatch, (*seed, epoch)))
            shares = np.array_split(
                np.random.default_rng((*seed, epoch, 1)).permutation(len(demonstrations)), len(batches)
            )
            for chosen, share in zip(batches, shares, strict=True):
                replayed = [sequence for index in share for sequence in demonstrations[index]]
                self._step([prepared[index] for index in chosen], values, replayed, tally)
        active = [sequence for one in prepared for sequence in one.sequences]
        return {
            **tally.metrics(),
            "turns": float(sum(len(np.unique(sequence.turn)) for sequence in active)),
            "tokens": float(sum(len(sequence.target) for sequence in active)),
        }

    def _prepare(self, sequences: list[PolicySequence]) -> _Prepared:
        if self._reference is None:
            return _Prepared(sequences, [])
        with torch.no_grad():
            return _Prepared(sequences, [response_logprobs(self._reference, [one])[0] for one in sequences])

    def _replayed(self, replay: Replay | None) -> list[list[ImitationSequence]]:
        if replay is None or not self._settings.imitation_coef:
            return []
        rows = rollout_rows(replay.rollouts, replay.weight, "replay weight")
        return [
            imitation_sequences(rollout, replay.weight[own], 0.0, self._conversation)
            for rollout, own in zip(replay.rollouts, rows, strict=True)
        ]

    def _step(
        self, chosen: Sequence[_Prepared], advantage: Tensor, replayed: Sequence[ImitationSequence], tally: _Tally
    ) -> None:
        """One optimiser step on one minibatch."""
        settings = self._settings
        loss = self._backward(chosen, advantage, tally)
        if replayed:
            imitation, _ = backward_imitation(
                self._model, replayed, micro_batch_tokens=settings.micro_batch_tokens, scale=settings.imitation_coef
            )
            tally.imitation_loss += imitation
            loss += settings.imitation_coef * imitation
        norm = self._optimizer.step(loss, lr=settings.lr, max_grad_norm=settings.max_grad_norm)
        if norm is None:
            tally.skipped += 1
            return
        tally.steps += 1
        tally.loss += loss
        tally.grad_norm += norm

    def _backward(self, chosen: Sequence[_Prepared], advantage: Tensor, tally: _Tally) -> float:
        """Gradient of the policy loss over micro-batches; every divisor is that of the whole minibatch."""
        sequences = [sequence for one in chosen for sequence in one.sequences]
        if not sequences:
            return 0.0
        references = [values for one in chosen for values in one.reference]
        weights = _minibatch_weights(self._settings.objective, sequences)
        loss, at, deviation = 0.0, 0, 0.0
        for micro in micro_batches(sequences, self._settings.micro_batch_tokens):
            own = slice(at, at + len(micro))
            at += len(micro)
            reference = torch.cat(references[own]) if references else None
            part, shift = self._micro_loss(micro, advantage, torch.cat(weights[own]), reference, tally)
            if part.requires_grad:
                part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
            deviation = max(deviation, float(shift.exp().sub(1).abs().max()))
        if tally.first_deviation is None:
            tally.first_deviation = deviation
        return loss

    def _micro_loss(
        self,
        micro: Sequence[PolicySequence],
        advantage: Tensor,
        weight: Tensor,
        reference: Tensor | None,
        tally: _Tally,
    ) -> tuple[Tensor, Tensor]:
        logprob, entropy = response_logprobs(self._model, micro)
        device, dtype = logprob.device, logprob.dtype
        rows, turn = np.unique(np.concatenate([sequence.turn for sequence in micro]), return_inverse=True)
        local = torch.from_numpy(turn).to(device)
        old = torch.from_numpy(np.concatenate([sequence.logprob for sequence in micro])).to(device, dtype)
        loss, clipped = policy_loss(
            self._settings.objective,
            logprob=logprob,
            old=old,
            advantage=advantage[torch.from_numpy(rows).long()].to(device, dtype)[local],
            turn=local,
            turns=len(rows),
            weight=weight.to(device),
            entropy=entropy,
            reference=reference,
        )
        shift = (logprob - old).detach()
        tally.tokens += len(shift)
        tally.clipped += float(clipped.sum())
        tally.kl += float((shift.exp() - 1 - shift).sum())
        tally.entropy += float(entropy.detach().sum())
        return loss, shift


def _minibatch_weights(objective: Objective, sequences: Sequence[PolicySequence]) -> list[Tensor]:
    """Token weights of a whole optimiser minibatch, cut by sequence."""
    turns, turn = np.unique(np.concatenate([sequence.turn for sequence in sequences]), return_inverse=True)
    aggregation = "seq-mean-token-mean" if objective.surrogate == "turn-clip" else objective.aggregation
    weights = token_weights(torch.from_numpy(turn), len(turns), aggregation, objective.norm_length)
    return list(torch.split(weights, [len(sequence.target) for sequence in sequences]))
