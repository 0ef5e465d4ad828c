"""A teacher: a model behind an endpoint that may take back an invalid answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepcredit.core.errors import OptionError
from stepcredit.policy.endpoint import ChatEndpoint, Message, Reply
from stepcredit.rollouts.calls import Fault
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.responses import ResponseFormat, parse_response
from stepcredit.rollouts.types import Request, Response

_REPAIR = (
    "That answer cannot be used: {reason}. Give the whole answer again, in the form that was asked for, with a command "
    "from the list. Do not mention this correction."
)


class Teacher:
    """A model of an endpoint as a policy whose invalid answers are sent back; see ``rollouts.types.Policy``.

    What is answered in the end is the response; corrections are seen by the teacher alone.

    Args:
        endpoint: who answers.
        template: how a request becomes one user message; self-contained.
        response_format: what makes an answer valid.
        repairs: times that an invalid answer is sent back, at least 0.
        max_response_tokens: tokens an answer may take.

    Raises:
        OptionError: an append-only template, whose earlier turns would be lost, or a number out of range.
    """

    def __init__(
        self,
        endpoint: ChatEndpoint,
        template: PromptTemplate,
        response_format: ResponseFormat,
        *,
        repairs: int = 2,
        max_response_tokens: int = 512,
    ) -> None:
        if template.append_only:
            raise OptionError("A teacher gets one whole message a turn; choose a template that is not append-only.")
        if repairs < 0:
            raise OptionError(f"repairs is {repairs}; expected 0 or more.")
        if max_response_tokens < 1:
            raise OptionError(f"max_response_tokens is {max_response_tokens}; expected at least 1.")
        self.endpoint = endpoint
        self.template = template
        self.response_format: ResponseFormat = response_format
        self.repairs = repairs
        self.max_response_tokens = max_response_tokens

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> TeacherSession:
        """Start answering a batch of episodes; the seed is passed on, and how far it binds is the server's business."""
        return TeacherSession(self, tuple(seed), temperature)


class TeacherSession:
    """A batch of episodes answered together; see ``rollouts.types.Session``."""

    def __init__(self, teacher: Teacher, seed: tuple[int, ...], temperature: float) -> None:
        self._teacher = teacher
        self._seed = seed
        self._temperature = temperature

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response per request, in order; one without an answer carries the reason."""
        render = self._teacher.template.render
        conversations = [[Message(role="user", content=render(request))] for request in requests]
        replies = self._complete(requests, conversations, 0)
        for repair in range(1, self._teacher.repairs + 1):
            wrong = []
            for index, reply in enumerate(replies):
                if isinstance(reply, Reply) and (reason := self._reason(reply, requests[index])):
                    conversations[index] += [
                        Message(role="assistant", content=reply.text),
                        Message(role="user", content=_REPAIR.format(reason=reason)),
                    ]
                    wrong.append(index)
            if not wrong:
                break
            again = self._complete([requests[one] for one in wrong], [conversations[one] for one in wrong], repair)
            for index, reply in zip(wrong, again, strict=True):
                replies[index] = reply
        return [
            Response("", (), 0.0, failure=reply.reason)
            if isinstance(reply, Fault)
            else Response(reply.text, (), 0.0, truncated=reply.truncated)
            for reply in replies
        ]

    def finish(self, key: int) -> None:
        """Nothing is kept for an episode."""

    def _reason(self, reply: Reply, request: Request) -> str:
        """What is wrong with a reply; empty where nothing is."""
        if reply.truncated:
            return "it was cut off at the token limit"
        return parse_response(reply.text, request.admissible, self._teacher.response_format).reason

    def _complete(
        self, requests: Sequence[Request], conversations: Sequence[Sequence[Message]], repair: int
    ) -> list[Reply | Fault]:
        return self._teacher.endpoint.complete(
            conversations,
            temperature=self._temperature,
            max_tokens=self._teacher.max_response_tokens,
            seed=[self._draw_seed(request, repair) for request in requests],
        )

    def _draw_seed(self, request: Request, repair: int) -> int:
        """A seed of its own for every answer."""
        place = (*self._seed, request.key, len(request.history), repair)
        return int(np.random.default_rng(place).integers(2**31))
