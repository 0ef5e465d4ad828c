"""Whole commands scored as a tree: the probabilities that token-by-token decoding gives them."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from torch import Tensor

from policy.conftest import MakePolicy
from policy.test_generation import ADMISSIBLE, full_logits, request
from stepcredit.core.errors import InputError
from stepcredit.policy.scoring import command_logprobs
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.types import PastTurn, Request, Response

HISTORY = (PastTurn("A blue lamp burns.", Response("wait", (), 0.0), "wait"),)


def score(
    policy: TransformerPolicy, requests: list[Request], *, constrained: bool, temperature: float = 1.0
) -> list[dict[str, float]]:
    return command_logprobs(
        policy.model,
        policy.conversation,
        requests,
        constrained=constrained,
        temperature=temperature,
        micro_batch_tokens=4096,
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_free_scores_equal_one_forward_a_command(make_policy: MakePolicy, temperature: float) -> None:
    policy = make_policy()
    requests = [request(), request(observation="A blue lamp burns.", history=HISTORY)]
    for asked, scores in zip(
        requests, score(policy, requests, constrained=False, temperature=temperature), strict=True
    ):
        (prompt,) = policy.conversation.prompts([asked])
        chunks = [*policy.conversation.context(asked.goal, asked.history, asked.horizon), prompt]
        before = [token for chunk in chunks for token in chunk.tolist()]
        assert sorted(scores) == sorted(ADMISSIBLE)
        for command, logprob in scores.items():
            ids = policy.conversation.codec.response(command)
            logits = full_logits(policy, [*before, *ids])[len(before) - 1 : -1] / temperature
            expected = torch.log_softmax(logits, -1)[torch.arange(len(ids)), list(ids)].sum()
            assert logprob == pytest.approx(float(expected), abs=1e-4)


def test_constrained_scores_are_what_sessions_draw_with(make_policy: MakePolicy) -> None:
    policy = make_policy()
    (scores,) = score(policy, [request()], constrained=True)
    assert sum(map(exp, scores.values())) == pytest.approx(1.0, abs=1e-6)
    session = policy.session([0])
    for key in range(20):
        (response,) = session.respond([request(key)])
        assert scores[response.text] == pytest.approx(sum(response.logprobs), abs=1e-5)


def test_the_prompt_and_shared_words_are_computed_once(make_policy: MakePolicy) -> None:
    policy = make_policy()
    seen: list[int] = []
    plain = policy.model.hidden

    def count(tokens: Tensor, *layout: object) -> Tensor:
        seen.append(len(tokens))
        return plain(tokens, *layout)  # type: ignore[arg-type]

    policy.model.hidden = count  # type: ignore[assignment, method-assign]
    score(policy, [request()], constrained=False)
    (prompt,) = policy.conversation.prompts([request()])
    paths = [policy.conversation.codec.response(command)[:-1] for command in ADMISSIBLE]
    prefixes = {path[: end + 1] for path in paths for end in range(len(path))}
    assert seen == [len(prompt) + len(prefixes)]


def test_a_lone_command_is_certain(make_policy: MakePolicy) -> None:
    only = Request(0, "Leave.", (), "A wall.", ("wait",), 5)
    (scores,) = score(make_policy(), [only], constrained=True)
    assert scores == {"wait": log(1)}
    with pytest.raises(InputError, match="the list is empty"):
        score(make_policy(), [Request(0, "Leave.", (), "A wall.", (), 5)], constrained=True)
