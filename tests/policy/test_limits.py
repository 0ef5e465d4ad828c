"""A protocol's limit on prompt tokens, counted by the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.limits import PromptLimit
from stepcredit.policy.tokens import Codec
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import PastTurn, Request, Response


class Speaker:
    """Answers every request with a function of it."""

    def __init__(self, say: Callable[[Request], str]) -> None:
        self.say = say

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Speaker:
        return self

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        return [Response(self.say(request), (), 0.0) for request in requests]

    def finish(self, key: int) -> None:
        pass


class Words:
    """A tokenizer that counts words."""

    eos_token_id = 0
    eos_token = ""
    bos_token = ""
    chat_template = None

    def __call__(self, text: Any, *, add_special_tokens: bool) -> dict[str, Any]:
        if isinstance(text, str):
            return {"input_ids": [1] * len(text.split())}
        return {"input_ids": [[1] * len(one.split()) for one in text]}


def conversation(template: PromptTemplate) -> Conversation:
    return Conversation(template, Codec(Words()))


def respond(limit: int, template: PromptTemplate, requests: Sequence[Request]) -> list[str]:
    speaker = Speaker(lambda request: f"answer to {request.key}")
    session = PromptLimit(speaker, conversation(template), limit).session([0])
    return [answer.failure or answer.text for answer in session.respond(requests)]


def test_longer_prompts_fail_and_the_others_are_answered_in_place() -> None:
    template = PromptTemplate("{goal} {observation}")
    requests = [Request(key, "g", (), "word " * length, (), 5) for key, length in enumerate((2, 5, 3, 9))]
    assert respond(4, template, requests) == [
        "answer to 0",
        "the prompt has 6 tokens, and at most 4 fit",
        "answer to 2",
        "the prompt has 10 tokens, and at most 4 fit",
    ]
    assert respond(5, template, requests[1:2]) == ["the prompt has 6 tokens, and at most 5 fit"]
    assert respond(6, template, requests[1:2]) == ["answer to 1"]


def test_an_append_only_prompt_counts_what_it_continues() -> None:
    template = PromptTemplate("{goal} {observation}", append_only=True)
    past = [PastTurn("one two", Response("go on", (), 0.0), "go on")]
    request = Request(0, "g", past, "three", (), 5)
    # g one two (3), go on and the end of sequence (3), g three (2)
    assert respond(7, template, [request]) == ["the prompt has 8 tokens, and at most 7 fit"]
    assert respond(8, template, [request]) == ["answer to 0"]


def test_an_overlong_prompt_ends_its_episode_in_error() -> None:
    suite = ChainSuite(length=2, doors=2, count=1)
    template = PromptTemplate("{goal} {observation} {history}", history=5)
    speaker = Speaker(lambda request: request.admissible[0])
    # Get outside. Place 1 of 2. A red lamp burns. (nothing)
    policy = PromptLimit(speaker, conversation(template), 11)
    collected = collect(policy, suite, suite.tasks("test"), group_size=1, horizon=4, seed=[0])
    (rollout,) = collected.rollouts
    assert rollout.episode.stop == "error"
    assert "at most 11 fit" in rollout.episode.extra["error"]
    assert len(rollout.episode.turns) == 1
    assert np.isfinite(rollout.episode.turns[0].reward)
