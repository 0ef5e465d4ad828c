"""A limit on prompt tokens: a prompt that does not fit fails its own episode, and no other."""

from __future__ import annotations

from collections.abc import Sequence

from stepcredit.policy.conversation import Conversation
from stepcredit.rollouts.types import Policy, Request, Response, Session


class PromptLimit:
    """A policy whose prompts may hold so many tokens.

    Args:
        policy: who answers.
        conversation: counts, see ``LimitedSession``.
        limit: tokens a prompt may have, its context and the chat template's included.
    """

    def __init__(self, policy: Policy, conversation: Conversation, limit: int) -> None:
        self._policy = policy
        self._conversation = conversation
        self._limit = limit

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Session:
        """Start answering a batch of episodes."""
        return LimitedSession(self._policy.session(seed, temperature=temperature), self._conversation, self._limit)


class LimitedSession:
    """A session that is only asked what fits; see ``rollouts.types.Session``.

    Args:
        inner: who answers.
        conversation: counts: the tokens a turn's prompt adds, and those of the context that it continues.
        limit: tokens a prompt may have, its context and the chat template's included.
    """

    def __init__(self, inner: Session, conversation: Conversation, limit: int) -> None:
        self._inner = inner
        self._conversation = conversation
        self._limit = limit

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response per request, in order; a prompt that is too long is a failed one."""
        prompts = self._conversation.prompts(requests)
        lengths = [
            len(prompt) + sum(map(len, self._conversation.context(request.goal, request.history, request.horizon)))
            for request, prompt in zip(requests, prompts, strict=True)
        ]
        fitting = [request for request, length in zip(requests, lengths, strict=True) if length <= self._limit]
        answers = iter(self._inner.respond(fitting) if fitting else [])
        return [next(answers) if length <= self._limit else self._refuse(length) for length in lengths]

    def finish(self, key: int) -> None:
        """The episode ended."""
        self._inner.finish(key)

    def _refuse(self, length: int) -> Response:
        return Response("", (), 0.0, failure=f"the prompt has {length} tokens, and at most {self._limit} fit")
