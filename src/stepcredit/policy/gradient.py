"""The gradient of one optimiser minibatch: rows packed by what they share, logits where a token is learnt, the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stepcredit.core.credit import FloatArray
from stepcredit.policy.critic import Critic
from stepcredit.policy.generation import pad_choices
from stepcredit.policy.losses import policy_loss, token_weights, value_loss
from stepcredit.policy.model import PackedModel
from stepcredit.policy.packing import micro_batches, pack, prefix_order
from stepcredit.policy.sequences import PolicySequence
from stepcredit.policy.settings import Objective, Returns
from stepcredit.policy.token_scores import token_scores
from stepcredit.policy.workers import accumulate, loss_gradients


@dataclass(frozen=True, slots=True)
class Reading:
    """What today's weights say about some sequences of ``L`` response tokens in ``n`` turns.

    Attributes:
        logprob: ``[L]`` of every response token, nats.
        entropy: ``[L]`` of the distribution it was drawn from, nats.
        state: ``[n, width]`` what the output layer reads at the end of each turn's prompt.
    """

    logprob: Tensor
    entropy: Tensor
    state: Tensor


def read_responses(model: PackedModel, sequences: Sequence[PolicySequence]) -> Reading:
    """Run the model on sequences, what they share once.

    Constraint and temperature are those each token was drawn with. A token that was the only one allowed has
    log-probability and entropy exactly 0 and costs no output layer; tokens drawn at the same place share theirs.
    """
    packed = pack(sequences)
    place = np.concatenate([path[sequence.place] for path, sequence in zip(packed.where, sequences, strict=True)])
    begins = np.flatnonzero(np.diff(np.concatenate([sequence.turn for sequence in sequences]), prepend=-1))
    count = np.concatenate([sequence.allowed_count for sequence in sequences])
    target = np.concatenate([sequence.target for sequence in sequences])
    temperature = np.concatenate([sequence.temperature for sequence in sequences])
    (drawn,) = np.nonzero(count != 1)
    wanted, found = np.unique(place[np.concatenate([drawn, begins])], return_inverse=True)
    hidden = model.hidden(packed.tokens, packed.positions, packed.layout, torch.from_numpy(wanted))
    place, state = found[: len(drawn)], found[len(drawn) :]
    device = hidden.device
    degrees, degree = np.unique(temperature[drawn], return_inverse=True)
    kinds, row = np.unique(place.astype(np.int64) * len(degrees) + degree, return_inverse=True)
    logits = model.head(hidden[torch.from_numpy(kinds // max(len(degrees), 1)).to(device)])
    scores = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    at, heat, column = torch.from_numpy(row), degrees[kinds % max(len(degrees), 1)], torch.from_numpy(target[drawn])
    if (count[drawn] > 0).any():
        ids = np.concatenate([sequence.allowed for sequence in sequences])
        end = np.cumsum(count)
        columns, inside = pad_choices([ids[end[at] - count[at] : end[at]].tolist() for at in drawn])
        scores = scores[at[:, None].to(device), columns.to(device)].masked_fill(~inside.to(device), -torch.inf)
        column = (columns == column[:, None]).int().argmax(1)
        at, heat = torch.arange(len(drawn)), temperature[drawn]
    logprob, entropy = token_scores(
        scores, torch.from_numpy(heat).to(device, scores.dtype), at.to(device), column.long().to(device)
    )
    where = (torch.from_numpy(drawn).to(device),)
    zeros = torch.zeros(len(count), dtype=scores.dtype, device=device)
    return Reading(
        logprob=zeros.index_put(where, logprob),
        entropy=zeros.index_put(where, entropy),
        state=hidden[torch.from_numpy(state).to(device)],
    )


def read_in_parts(
    model: PackedModel,
    sequences: Sequence[PolicySequence],
    micro_batch_tokens: int,
    take: Callable[[Reading], Tensor],
    counts: Sequence[int],
) -> list[Tensor]:
    """Something of every sequence's reading, without gradient, micro-batches in parallel.

    Args:
        model: who reads.
        sequences: in any order, which is that of the result.
        micro_batch_tokens: input tokens in one forward pass.
        take: what is wanted, of a length that adds up over the sequences read together.
        counts: that length for each sequence.
    """
    order = prefix_order(sequences)
    ordered = [sequences[index] for index in order]

    def read(own: slice) -> Sequence[Tensor]:
        with torch.no_grad():
            return torch.split(take(read_responses(model, ordered[own])), [counts[index] for index in order[own]])

    results: dict[int, Tensor] = {}
    parts = micro_batches(ordered, micro_batch_tokens)
    for own, found in zip(parts, model.workers.map(read, parts), strict=True):
        results.update(zip(order[own], found, strict=True))
    return [results[index] for index in range(len(sequences))]


@dataclass(frozen=True, slots=True)
class StepSums:
    """What one optimiser minibatch gave: the loss, and sums over its response tokens before the step."""

    loss: float = 0.0
    tokens: int = 0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    deviation: float = 0.0
    value_loss: float = 0.0

    def plus(self, other: StepSums) -> StepSums:
        """Both together; ``deviation`` is the greater."""
        return StepSums(
            loss=self.loss + other.loss,
            tokens=self.tokens + other.tokens,
            clipped=self.clipped + other.clipped,
            kl=self.kl + other.kl,
            entropy=self.entropy + other.entropy,
            deviation=max(self.deviation, other.deviation),
            value_loss=self.value_loss + other.value_loss,
        )


def backward_policy(
    model: PackedModel,
    sequences: Sequence[PolicySequence],
    advantage: FloatArray,
    objective: Objective,
    *,
    reference: Sequence[Tensor] | None = None,
    critic: Critic | None = None,
    returns: Returns | None = None,
    micro_batch_tokens: int,
) -> StepSums:
    """Add the gradient of one optimiser minibatch's loss, micro-batches in parallel.

    Every divisor is that of the whole minibatch, so the result depends on neither micro-batches nor the order of rows.

    Args:
        model: whose gradient.
        sequences: the minibatch.
        advantage: ``[N]`` by row of the batch; finite for every row the sequences name.
        objective: the loss.
        reference: ``[L]`` per sequence, log π_ref.
        critic: whose gradient too; needs ``returns``.
        returns: what the critic learns, by row of the batch.
        micro_batch_tokens: input tokens in one forward pass.
    """
    if not sequences:
        return StepSums()
    order = prefix_order(sequences)
    ordered = [sequences[index] for index in order]
    references = [reference[index] for index in order] if reference else None
    weights = _minibatch_weights(objective, ordered)
    turns = len(np.unique(np.concatenate([sequence.turn for sequence in ordered])))
    parameters = [*model.parameters, *(critic.parameters if critic else ())]

    def differentiate(own: slice) -> tuple[StepSums, list[Tensor | None]]:
        micro = ordered[own]
        reading = read_responses(model, micro)
        device, dtype = reading.logprob.device, reading.logprob.dtype

        def on_device(values: FloatArray) -> Tensor:
            return torch.from_numpy(values).to(device, dtype)

        # Turns in the order they are met, which is that of ``reading.state``.
        row = np.concatenate([sequence.turn for sequence in micro])
        first = np.flatnonzero(np.diff(row, prepend=-1))
        local = torch.from_numpy(np.repeat(np.arange(len(first)), np.diff(first, append=len(row)))).to(device)
        old = on_device(np.concatenate([sequence.logprob for sequence in micro]))
        loss, clipped = policy_loss(
            objective,
            logprob=reading.logprob,
            old=old,
            advantage=on_device(advantage[row]),
            turn=local,
            turns=len(first),
            weight=torch.cat(weights[own]).to(device, dtype),
            entropy=reading.entropy,
            reference=torch.cat(references[own]) if references else None,
        )
        error = torch.zeros(())
        if critic and returns:
            rows = row[first]
            before, wanted = on_device(returns.value[rows]), on_device(returns.target[rows])
            error = value_loss(critic(reading.state), before, wanted, objective.value_clip) / turns
            loss = loss + objective.value_coef * error
        return _sums(loss, clipped, reading, old, error), loss_gradients(loss, parameters)

    total = StepSums()
    for sums in accumulate(model.workers, parameters, micro_batches(ordered, micro_batch_tokens), differentiate):
        total = total.plus(sums)
    return total


@torch.no_grad()
def _sums(loss: Tensor, clipped: Tensor, reading: Reading, old: Tensor, error: Tensor) -> StepSums:
    shift = reading.logprob - old
    return StepSums(
        loss=float(loss),
        tokens=len(shift),
        clipped=float(clipped.sum()),
        kl=float((shift.exp() - 1 - shift).sum()),
        entropy=float(reading.entropy.sum()),
        deviation=float((shift.exp() - 1).abs().max()),
        value_loss=float(error),
    )


def _minibatch_weights(objective: Objective, sequences: Sequence[PolicySequence]) -> list[Tensor]:
    """Token weights of a whole optimiser minibatch, cut by sequence."""
    turns, turn = np.unique(np.concatenate([sequence.turn for sequence in sequences]), return_inverse=True)
    aggregation = "seq-mean-token-mean" if objective.surrogate == "turn-clip" else objective.aggregation
    weights = token_weights(torch.from_numpy(turn), len(turns), aggregation, objective.norm_length)
    return list(torch.split(weights, [len(sequence.target) for sequence in sequences]))
