"""Tokens of a rollout as training rows, and credit per turn as advantages per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.core.credit import BoolArray, FloatArray, IntArray
from stepcredit.core.errors import InputError
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.tokens import TokenRecord
from stepcredit.rollouts.types import Rollout


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One training row: a prompt and what follows it.

    Attributes:
        prompt: ``[P]`` token ids.
        completion: ``[C]`` token ids after the prompt: responses, and what the environment said between them.
        written: ``[C]`` which of them the policy wrote.
        logprobs: ``[C]`` under the behaviour policy, nats; 0 where the policy did not write.
        spans: per turn of the row, first token and end of its response in ``completion``.
    """

    prompt: IntArray
    completion: IntArray
    written: BoolArray
    logprobs: FloatArray
    spans: tuple[tuple[int, int], ...]


def dialogue_row(rollout: Rollout, conversation: Conversation) -> TokenRow:
    """The whole episode as one row: the first prompt, then responses and observations in turn.

    Args:
        rollout: of an append-only template.
        conversation: builds what stands before a branch's own turns.

    Raises:
        InputError: a response without token record, or a prompt that does not continue the one before.
    """
    records = _records(rollout)
    for turn, record in enumerate(records[1:], 1):
        if not record.continues:
            raise InputError(
                f"The prompt of turn {turn} of {rollout.episode.episode!r} starts anew; expected an append-only prompt "
                f"template, which keeps an episode in one row."
            )
    parts: list[TokenRow] = []
    spans = []
    length = 0
    for turn, (record, response) in enumerate(zip(records, rollout.responses, strict=True)):
        seen = np.zeros(0, dtype=np.int32) if turn == 0 else record.prompt
        parts.append(_response_row(seen, record, response.logprobs))
        spans.append((length + len(seen), length + len(seen) + len(record.response)))
        length = spans[-1][1]
    context = conversation.context(rollout.goal, rollout.prefix, _horizon(rollout)) if records[0].continues else []
    return TokenRow(
        prompt=np.concatenate([*context, records[0].prompt]),
        completion=np.concatenate([part.completion for part in parts]),
        written=np.concatenate([part.written for part in parts]),
        logprobs=np.concatenate([part.logprobs for part in parts]),
        spans=tuple(spans),
    )


def turn_rows(rollout: Rollout, conversation: Conversation) -> list[TokenRow]:
    """One row a turn: everything the policy saw as the prompt, its response as the completion.

    Raises:
        InputError: a response without token record.
    """
    rows = []
    seen: list[IntArray] = []
    for turn, (record, response) in enumerate(zip(_records(rollout), rollout.responses, strict=True)):
        if not record.continues:
            seen = []
        elif turn == 0:
            seen = conversation.context(rollout.goal, rollout.prefix, _horizon(rollout))
        seen = [*seen, record.prompt]
        own = _response_row(np.zeros(0, dtype=np.int32), record, response.logprobs)
        spans = ((0, len(own.completion)),)
        rows.append(TokenRow(np.concatenate(seen), own.completion, own.written, own.logprobs, spans))
        seen = [*seen, record.response]
    return rows


def token_advantages(advantage: FloatArray, spans: Sequence[tuple[int, int]], width: int) -> FloatArray:
    """``[width]``: each turn's advantage on the tokens of its response, 0 everywhere else and on unscored turns.

    Args:
        advantage: ``[turns]``, NaN for unscored turns.
        spans: per turn, first token and end of its response.
        width: tokens of the row, padding included.
    """
    tokens = np.zeros(width)
    for value, (start, end) in zip(advantage, spans, strict=True):
        tokens[start:end] = 0.0 if np.isnan(value) else value
    return tokens


def scored_tokens(advantage: FloatArray, spans: Sequence[tuple[int, int]], width: int) -> BoolArray:
    """``[width]``: which tokens belong to a response of a scored turn."""
    tokens = np.zeros(width, dtype=np.bool_)
    for value, (start, end) in zip(advantage, spans, strict=True):
        tokens[start:end] = not np.isnan(value)
    return tokens


def _response_row(seen: IntArray, record: TokenRecord, logprobs: Sequence[float]) -> TokenRow:
    """What the environment said, which nobody scores, and the response to it."""
    return TokenRow(
        prompt=np.zeros(0, dtype=np.int32),
        completion=np.concatenate([seen, record.response]),
        written=np.repeat([False, True], [len(seen), len(record.response)]),
        logprobs=np.concatenate([np.zeros(len(seen)), np.asarray(logprobs, dtype=np.float64)]),
        spans=(),
    )


def _records(rollout: Rollout) -> list[TokenRecord]:
    records = [response.record for response in rollout.responses]
    for turn, record in enumerate(records):
        if not isinstance(record, TokenRecord):
            raise InputError(
                f"Turn {turn} of {rollout.episode.episode!r} has no token record; play it with the engine's own policy."
            )
    return records


def _horizon(rollout: Rollout) -> int:
    return int(rollout.episode.extra.get("horizon", len(rollout.prefix) + len(rollout.responses)))
