"""From requests to prompt ids: the template's words, the codec's tokens, and what stays in the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.core.credit import IntArray
from stepcredit.policy.tokens import Codec, TokenRecord
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import PastTurn, Request


@dataclass(frozen=True, slots=True)
class Conversation:
    """A template and a codec; both a session and an update build their prompts here."""

    template: PromptTemplate
    codec: Codec

    def prompts(self, requests: Sequence[Request]) -> list[IntArray]:
        """Ids each request's turn adds (append-only), or its whole prompt."""
        continued = [self.continues(request) for request in requests]
        chunks = self.codec.prompts(
            [self.template.render(request) for request in requests], [not later for later in continued]
        )
        return [
            self._closed(request.history[-1], chunk) if later else chunk
            for request, chunk, later in zip(requests, chunks, continued, strict=True)
        ]

    def continues(self, request: Request) -> bool:
        """Whether this turn's prompt continues earlier tokens."""
        return self.template.append_only and bool(request.history)

    def context(self, goal: str, history: Sequence[PastTurn], horizon: int) -> list[IntArray]:
        """Ids of all that stands before the prompt that follows ``history``, as chunks; empty unless append-only.

        Turns whose response carries no record (an expert's, another policy's) are rendered and tokenised.
        """
        if not self.template.append_only:
            return []
        chunks: list[IntArray] = []
        for turn, past in enumerate(history):
            record = past.response.record
            if isinstance(record, TokenRecord):
                chunks += (record.prompt, record.response)
            else:
                earlier = Request(0, goal, history[:turn], past.observation, (), horizon)
                response = np.array(self.codec.response(past.response.text), dtype=np.int32)
                chunks += (self.prompts([earlier])[0], response)
        return chunks

    def _closed(self, past: PastTurn, chunk: IntArray) -> IntArray:
        """The chunk, led by the end of sequence that a response lacks when the token limit cut it off."""
        record = past.response.record
        if isinstance(record, TokenRecord) and (not len(record.response) or record.response[-1] != self.codec.eos):
            return np.concatenate([np.array([self.codec.eos], dtype=np.int32), chunk])
        return chunk
