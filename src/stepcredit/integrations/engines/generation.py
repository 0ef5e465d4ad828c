"""A training engine's generator as a policy that our collector can play with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from stepcredit.core.credit import IntArray
from stepcredit.core.episodes import Episode
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.tokens import TokenRecord
from stepcredit.rollouts.types import Request, Response


@dataclass(frozen=True, slots=True)
class Generated:
    """What an engine sampled after one prompt.

    Attributes:
        ids: sampled token ids, end of sequence included.
        logprobs: of each of them under the distribution it was drawn from, nats.
        entropy: mean entropy of those distributions, nats; None where the engine does not say.
    """

    ids: Sequence[int]
    logprobs: Sequence[float]
    entropy: float | None = None


class Generate(Protocol):
    """Samples one response after each prompt."""

    def __call__(self, prompts: list[list[int]]) -> list[Generated]:
        """One result per prompt of token ids, in order."""
        ...


class EnginePolicy:
    """A policy whose words an engine samples; the engine keeps its own random state, so ``seed`` has no effect.

    Args:
        generate: samples.
        conversation: how a request becomes token ids.
        max_prompt_tokens: a request whose prompt is longer ends its episode; the engine would cut it.
    """

    def __init__(self, generate: Generate, conversation: Conversation, *, max_prompt_tokens: int) -> None:
        self._generate = generate
        self._conversation = conversation
        self._max_prompt_tokens = max_prompt_tokens

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> EngineSession:
        """Start answering a batch of episodes."""
        return EngineSession(self._generate, self._conversation, self._max_prompt_tokens, temperature)


@dataclass(frozen=True, slots=True)
class EngineSession:
    """One batch of episodes; see ``EnginePolicy``."""

    generate: Generate
    conversation: Conversation
    max_prompt_tokens: int
    temperature: float

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response per request; a prompt that is too long or an empty answer is a failure of its episode."""
        chunks = self.conversation.prompts(requests)
        prompts = [
            np.concatenate([*self._context(request), chunk]) for request, chunk in zip(requests, chunks, strict=True)
        ]
        fitting = [prompt.tolist() for prompt in prompts if len(prompt) <= self.max_prompt_tokens]
        answers = iter(self.generate(fitting) if fitting else [])
        return [
            self._response(request, chunk, next(answers))
            if len(prompt) <= self.max_prompt_tokens
            else _failure(f"the prompt has {len(prompt)} tokens, {self.max_prompt_tokens} fit")
            for request, chunk, prompt in zip(requests, chunks, prompts, strict=True)
        ]

    def finish(self, key: int) -> None:
        """Nothing is kept between turns; engines cache prefixes themselves."""

    def _context(self, request: Request) -> list[IntArray]:
        if not self.conversation.continues(request):
            return []
        return self.conversation.context(request.goal, request.history, request.horizon)

    def _response(self, request: Request, chunk: IntArray, answer: Generated) -> Response:
        ids = np.asarray(answer.ids, dtype=np.int32)
        if not len(ids):
            return _failure("the engine answered without a token")
        codec = self.conversation.codec
        return Response(
            text=codec.text(ids.tolist()),
            logprobs=tuple(float(value) for value in answer.logprobs),
            entropy=0.0 if answer.entropy is None else float(answer.entropy),
            record=TokenRecord(chunk, ids, None, self.temperature, self.conversation.continues(request)),
            truncated=bool(ids[-1] != codec.eos),
        )


def without_entropy(episode: Episode) -> Episode:
    """The episode of an engine that does not say entropies: not recorded, which is not 0."""
    return replace(episode, turns=tuple(replace(turn, entropy=None) for turn in episode.turns))


def _failure(reason: str) -> Response:
    return Response("", (), 0.0, failure=reason)
