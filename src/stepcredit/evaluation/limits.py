"""A protocol's limit on prompt tokens."""

from __future__ import annotations

from collections.abc import Sequence

from stepcredit.policy.conversation import Conversation
from stepcredit.rollouts.types import Policy, Request, Response, Session


class PromptLimit:
    """A policy whose prompts may hold so many tokens; a longer one is a failed response, which ends its episode.

    Args:
        policy: who answers.
        conversation: counts: the tokens a turn's prompt adds, and those of the context an append-only prompt continues.
        limit: tokens a prompt may have, the chat template's included.
    """

    def __init__(self, policy: Policy, conversation: Conversation, limit: int) -> None:
        self._policy = policy
        self._conversation = conversation
        self._limit = limit

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Session:
        """Start answering a batch of episodes."""
        return _LimitedSession(self._policy.session(seed, temperature=temperature), self._conversation, self._limit)


class _LimitedSession:
    def __init__(self, inner: Session, conversation: Conversation, limit: int) -> None:
        self._inner = inner
        self._conversation = conversation
        self._limit = limit

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        lengths = [self._length(request) for request in requests]
        fitting = [request for request, length in zip(requests, lengths, strict=True) if length <= self._limit]
        answers = iter(self._inner.respond(fitting) if fitting else [])
        return [next(answers) if length <= self._limit else self._refused(length) for length in lengths]

    def finish(self, key: int) -> None:
        self._inner.finish(key)

    def _length(self, request: Request) -> int:
        context = self._conversation.context(request.goal, request.history, request.horizon)
        return sum(map(len, [*context, *self._conversation.prompts([request])]))

    def _refused(self, length: int) -> Response:
        return Response("", (), 0.0, failure=f"the prompt has {length} tokens, the limit is {self._limit}")
