"""A model behind an endpoint as a policy that plays and does not learn; invalid answers may be sent back to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Counted:
    """What a response of an endpoint carries as its record: generated tokens, where the server counts them."""

    tokens: int | None


class EndpointPolicy:
    """A model behind an endpoint; see ``rollouts.types.Policy``.

    Responses carry no log-probabilities: those that servers send mostly leave temperature out, and so are not of the
    distribution that was drawn from. Their entropy is not known and given as 0. Where invalid answers are sent back,
    what is answered in the end is the response, and corrections are seen by the model alone.

    Args:
        endpoint: who answers.
        template: how a request becomes one user message; self-contained.
        max_response_tokens: tokens a response may take, at least 1.
        repairs: times that an invalid answer is sent back, at least 0.
        response_format: what makes an answer valid; has no meaning without repairs.

    Raises:
        OptionError: an append-only template, whose earlier turns would be lost, or a number out of range.
    """

    def __init__(
        self,
        endpoint: ChatEndpoint,
        template: PromptTemplate,
        *,
        max_response_tokens: int,
        repairs: int = 0,
        response_format: ResponseFormat = "action",
    ) -> None:
        if template.append_only:
            raise OptionError("An endpoint gets one whole message a turn; choose a template that is not append-only.")
        for name, value, least in (("max_response_tokens", max_response_tokens, 1), ("repairs", repairs, 0)):
            if value < least:
                raise OptionError(f"{name} is {value}; expected at least {least}.")
        self.endpoint = endpoint
        self.template = template
        self.max_response_tokens = max_response_tokens
        self.repairs = repairs
        self.response_format: ResponseFormat = response_format

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> EndpointSession:
        """Start answering a batch of episodes; the seed is passed on, and how far it binds is the server's business."""
        return EndpointSession(self, tuple(seed), temperature)


class EndpointSession:
    """A batch of episodes answered together; see ``rollouts.types.Session``."""

    def __init__(self, policy: EndpointPolicy, seed: tuple[int, ...], temperature: float) -> None:
        self._policy = policy
        self._seed = seed
        self._temperature = temperature
        self._asked: Counter[int] = Counter()

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response per request, in order; one without an answer carries the reason."""
        render = self._policy.template.render
        conversations = [[Message(role="user", content=render(request))] for request in requests]
        replies = self._complete(requests, conversations)
        for _ in range(self._policy.repairs):
            wrong = []
            for index, reply in enumerate(replies):
                if isinstance(reply, Reply) and (reason := self._fault_of(reply, requests[index])):
                    conversations[index] += [
                        Message(role="assistant", content=reply.text),
                        Message(role="user", content=_REPAIR.format(reason=reason)),
                    ]
                    wrong.append(index)
            if not wrong:
                break
            again = self._complete([requests[one] for one in wrong], [conversations[one] for one in wrong])
            for index, reply in zip(wrong, again, strict=True):
                replies[index] = reply
        return [
            Response("", (), 0.0, failure=reply.reason)
            if isinstance(reply, Fault)
            else Response(reply.text, (), 0.0, record=Counted(reply.tokens), truncated=reply.truncated)
            for reply in replies
        ]

    def finish(self, key: int) -> None:
        """Nothing is kept for an episode but how often it asked."""
        self._asked.pop(key, None)

    def _fault_of(self, reply: Reply, request: Request) -> str:
        """What is wrong with a reply; empty where nothing is."""
        if reply.truncated:
            return "it was cut off at the token limit"
        return parse_response(reply.text, request.admissible, self._policy.response_format).reason

    def _complete(self, requests: Sequence[Request], conversations: Sequence[Sequence[Message]]) -> list[Reply | Fault]:
        return self._policy.endpoint.complete(
            conversations,
            temperature=self._temperature,
            max_tokens=self._policy.max_response_tokens,
            seed=[self._draw_seed(request.key) for request in requests],
        )

    def _draw_seed(self, key: int) -> int:
        """A seed of its own for every answer of every episode."""
        self._asked[key] += 1
        return int(np.random.default_rng([*self._seed, key, self._asked[key]]).integers(2**31))
