"""From rollouts to token sequences for learning: an append-only episode is one sequence, however many turns it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.core.credit import BoolArray, FloatArray, IntArray
from stepcredit.core.errors import InputError
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.tokens import TokenRecord
from stepcredit.rollouts.types import PastTurn, Request, Rollout


@dataclass(frozen=True, slots=True)
class PolicySequence:
    """Input tokens and the ``L`` response tokens in them whose log-probability an update needs.

    Attributes:
        tokens: ``[T]`` input ids.
        place: ``[L]`` index into ``tokens`` of the token *before* each response token.
        target: ``[L]`` response token ids.
        turn: ``[L]`` row of the turn each response token belongs to.
        logprob: ``[L]`` under the behaviour policy, nats.
        temperature: ``[L]``.
        allowed: ids allowed at each place, concatenated; empty where decoding was free.
        allowed_count: ``[L]`` how many; 0 where decoding was free.
    """

    tokens: IntArray
    place: IntArray
    target: IntArray
    turn: IntArray
    logprob: FloatArray
    temperature: FloatArray
    allowed: IntArray
    allowed_count: IntArray


@dataclass(frozen=True, slots=True)
class ImitationSequence:
    """Input tokens; per token ``[T]`` the one that follows, the weight of predicting it, whether it is a response's."""

    tokens: IntArray
    target: IntArray
    weight: FloatArray
    response: BoolArray


def policy_sequences(
    rollout: Rollout, first_row: int, scored: BoolArray, conversation: Conversation
) -> list[PolicySequence]:
    """The sequences of one rollout, cut after the last response token that matters.

    Args:
        rollout: responses must carry the ``TokenRecord`` of the policy that is updated.
        first_row: row of the rollout's first turn in the batch.
        scored: ``[turns]`` which of its turns have an advantage; the others are context.
        conversation: builds the context of a branch whose prefix carries no record.

    Raises:
        InputError: a response without token record, or with a log-probability count that is not its token count.
    """
    sequences: list[PolicySequence] = []
    chunks: list[IntArray] = []
    kept: list[tuple[int, int, TokenRecord, tuple[float, ...]]] = []
    length = 0
    for turn, response in enumerate(rollout.responses):
        record = response.record
        if not isinstance(record, TokenRecord):
            raise InputError(
                f"Turn {turn} of {rollout.episode.episode!r} has no token record; "
                f"an update needs rollouts of this policy."
            )
        if len(record.response) != len(response.logprobs):
            raise InputError(
                f"Turn {turn} of {rollout.episode.episode!r} has {len(response.logprobs)} log-probabilities for "
                f"{len(record.response)} tokens; expected one each."
            )
        if not record.continues:
            sequences += _finish(chunks, kept)
            chunks, kept, length = [], [], 0
        elif turn == 0:
            chunks = conversation.context(rollout.goal, rollout.prefix, _horizon(rollout))
            length = sum(map(len, chunks))
        chunks += (record.prompt, record.response)
        length += len(record.prompt)
        if scored[turn] and len(record.response):
            kept.append((length, first_row + turn, record, response.logprobs))
        length += len(record.response)
    return sequences + _finish(chunks, kept)


def _finish(
    chunks: Sequence[IntArray], kept: Sequence[tuple[int, int, TokenRecord, tuple[float, ...]]]
) -> list[PolicySequence]:
    if not kept:
        return []
    lengths = [len(record.response) for _, _, record, _ in kept]
    end = kept[-1][0] + lengths[-1] - 1
    choices = [record.choices for _, _, record, _ in kept]
    return [
        PolicySequence(
            tokens=np.concatenate(chunks)[:end],
            place=np.concatenate([np.arange(at - 1, at - 1 + n) for (at, *_), n in zip(kept, lengths, strict=True)]),
            target=np.concatenate([record.response for _, _, record, _ in kept]),
            turn=np.repeat(np.array([row for _, row, _, _ in kept], dtype=np.int32), lengths),
            logprob=np.array([value for *_, logprobs in kept for value in logprobs]),
            temperature=np.repeat([record.temperature for _, _, record, _ in kept], lengths),
            allowed=np.concatenate([choice.ids if choice else np.zeros(0, dtype=np.int32) for choice in choices]),
            allowed_count=np.concatenate(
                [
                    np.diff(choice.start) if choice else np.zeros(n, dtype=np.int32)
                    for choice, n in zip(choices, lengths, strict=True)
                ]
            ),
        )
    ]


def imitation_sequences(
    rollout: Rollout, weight: FloatArray, observation_weight: float, conversation: Conversation
) -> list[ImitationSequence]:
    """The sequences of one demonstration.

    A response's tokens, end of sequence included, weigh what its turn weighs; prompt tokens weigh
    ``observation_weight``. A response without a token record is tokenised as the policy itself would say it.

    Args:
        rollout: the demonstration.
        weight: ``[turns]``.
        observation_weight: of the language-model loss on prompt tokens.
        conversation: builds the prompts.
    """
    horizon = _horizon(rollout)
    history = list(rollout.prefix)
    requests = []
    for played, response in zip(rollout.episode.turns, rollout.responses, strict=True):
        admissible = tuple(played.extra.get("admissible", ()))
        requests.append(Request(0, rollout.goal, history[:], played.observation, admissible, horizon))
        history.append(PastTurn(played.observation, response, played.action))
    parts: list[tuple[IntArray, float, bool]] = []
    sequences = []
    for turn, (prompt, response) in enumerate(zip(conversation.prompts(requests), rollout.responses, strict=True)):
        if turn == 0:
            parts = [(chunk, 0.0, False) for chunk in conversation.context(rollout.goal, rollout.prefix, horizon)]
        elif not conversation.template.append_only:
            sequences.append(_weighted(parts))
            parts = []
        record = response.record
        ids = conversation.codec.response(response.text) if not isinstance(record, TokenRecord) else record.response
        parts.append((prompt, observation_weight, False))
        parts.append((np.array(ids, dtype=np.int32), float(weight[turn]), True))
    sequences.append(_weighted(parts))
    return [sequence for sequence in sequences if sequence.weight.any()]


def _weighted(parts: Sequence[tuple[IntArray, float, bool]]) -> ImitationSequence:
    tokens = np.concatenate([ids for ids, _, _ in parts])
    lengths = [len(ids) for ids, _, _ in parts]
    return ImitationSequence(
        tokens=tokens[:-1],
        target=tokens[1:],
        weight=np.repeat([weight for _, weight, _ in parts], lengths)[1:],
        response=np.repeat([response for _, _, response in parts], lengths)[1:],
    )


def _horizon(rollout: Rollout) -> int:
    """Turns the episode could take; its own length where the episode does not say."""
    return int(rollout.episode.extra.get("horizon", len(rollout.prefix) + len(rollout.responses)))
