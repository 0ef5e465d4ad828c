"""Sessions: what is drawn, with what probability, and that caches change nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from policy.conftest import WINDOW, MakePolicy, play
from stepcredit.core.errors import InputError, OptionError
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.attention import Segments
from stepcredit.policy.generation import TransformerSession, draw
from stepcredit.policy.tokens import TokenRecord
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.policy.trie import build_trie
from stepcredit.rollouts.types import PastTurn, Request, Response

ADMISSIBLE = ("open blue door", "open red door", "open red door twice", "wait")


def request(key: int = 0, *, history: Sequence[PastTurn] = (), observation: str = "A red lamp burns.") -> Request:
    return Request(key, "Leave the house.", tuple(history), observation, ADMISSIBLE, horizon=5)


def record_of(response: Response) -> TokenRecord:
    assert isinstance(response.record, TokenRecord)
    return response.record


def full_logits(policy: TransformerPolicy, tokens: Sequence[int]) -> Tensor:
    """The model's logits over one whole sequence, by the model's own forward and no cache of ours."""
    with torch.no_grad():
        ids = torch.tensor(tokens)
        return policy.model.logits(ids, torch.arange(len(ids)), Segments([len(ids)]))


def slow_logprobs(policy: TransformerPolicy, context: Sequence[int], record: TokenRecord) -> list[float]:
    """Token by token: a full forward over everything before, softmax over what was allowed, at the temperature."""
    values = []
    for place, token in enumerate(record.response.tolist()):
        logits = full_logits(policy, [*context, *record.response[:place].tolist()])[-1] / record.temperature
        if record.choices is not None:
            start, end = record.choices.start[place : place + 2]
            allowed = record.choices.ids[start:end].tolist()
            values.append(float(torch.log_softmax(logits[allowed], 0)[allowed.index(token)]))
        else:
            values.append(float(torch.log_softmax(logits, 0)[token]))
    return values


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_cached_generation_equals_a_full_forward(
    make_policy: MakePolicy, suite: ChainSuite, constrained: bool, temperature: float
) -> None:
    policy = make_policy(constrained=constrained, max_response_tokens=5)
    for rollout in play(policy, suite, temperature=temperature):
        context: list[int] = []
        for turn, response in enumerate(rollout.responses):
            record = record_of(response)
            assert record.continues == (turn > 0)
            context += record.prompt.tolist()
            assert response.logprobs == pytest.approx(slow_logprobs(policy, context, record), abs=1e-5)
            context += record.response.tolist()


def test_entropy_is_the_mean_over_all_tokens_forced_ones_included(make_policy: MakePolicy) -> None:
    policy = make_policy()
    (response,) = policy.session([1]).respond([request()])
    record = record_of(response)
    assert record.choices is not None
    entropies = []
    for place in range(len(record.response)):
        start, end = record.choices.start[place : place + 2]
        logits = full_logits(policy, [*record.prompt.tolist(), *record.response[:place].tolist()])[-1]
        p = torch.softmax(logits[record.choices.ids[start:end].tolist()], 0)
        entropies.append(-float((p * p.log()).sum()))
    assert response.entropy == pytest.approx(sum(entropies) / len(entropies), abs=1e-6)


def test_constrained_probabilities_sum_to_one_over_the_trie(make_policy: MakePolicy) -> None:
    policy = make_policy()
    codec = policy.conversation.codec
    (prompt,) = policy.conversation.prompts([request()])
    total, expected = 0.0, {}
    for path, command in build_trie({text: codec.response(text) for text in ADMISSIBLE}).paths():
        logprob, node = 0.0, build_trie({text: codec.response(text) for text in ADMISSIBLE})
        for place, token in enumerate(path):
            allowed = list(node.children)
            logits = full_logits(policy, [*prompt.tolist(), *path[:place]])[-1][allowed]
            logprob += float(torch.log_softmax(logits, 0)[allowed.index(token)])
            node = node.children[token]
        expected[command] = logprob
        total += np.exp(logprob)
    assert sorted(expected) == sorted(ADMISSIBLE)
    assert total == pytest.approx(1.0, abs=1e-6)
    session = policy.session([0])
    for key in range(40):
        (response,) = session.respond([request(key)])
        assert sum(response.logprobs) == pytest.approx(expected[response.text], abs=1e-5)


def test_draws_have_the_frequencies_of_the_policy(make_policy: MakePolicy) -> None:
    responses = make_policy().session([5]).respond([request(key) for key in range(2000)])
    for command in ADMISSIBLE:
        drawn = [response for response in responses if response.text == command]
        p = np.exp(sum(drawn[0].logprobs))
        assert abs(len(drawn) / 2000 - p) < 4 * np.sqrt(p * (1 - p) / 2000)


def test_same_seed_same_bits_and_no_dependence_on_company(make_policy: MakePolicy) -> None:
    policy = make_policy()
    requests = [request(key, observation=f"A {'red' if key % 2 else 'blue'} lamp burns.") for key in range(12)]
    first = policy.session([7, 1]).respond(requests)
    again = policy.session([7, 1]).respond(requests)
    assert [(r.text, r.logprobs, r.entropy) for r in first] == [(r.text, r.logprobs, r.entropy) for r in again]
    shuffled = policy.session([7, 1]).respond(requests[::-1])[::-1]
    alone = [policy.session([7, 1]).respond([one])[0] for one in requests]
    assert [r.text for r in first] == [r.text for r in shuffled] == [r.text for r in alone]
    assert [r.text for r in policy.session([8, 1]).respond(requests)] != [r.text for r in first]


def test_greedy_takes_the_most_likely_and_reports_temperature_one(make_policy: MakePolicy) -> None:
    policy = make_policy()
    (response,) = policy.session([0], temperature=0).respond([request()])
    record = record_of(response)
    assert record.temperature == 1.0
    assert response.logprobs == pytest.approx(slow_logprobs(policy, record.prompt.tolist(), record), abs=1e-5)
    assert record.choices is not None
    for place, token in enumerate(record.response.tolist()):
        start, end = record.choices.start[place : place + 2]
        allowed = record.choices.ids[start:end].tolist()
        logits = full_logits(policy, [*record.prompt.tolist(), *record.response[:place].tolist()])[-1]
        assert token == max(allowed, key=lambda other: float(logits[other]))


def test_a_session_without_cache_answers_like_one_with(make_policy: MakePolicy) -> None:
    """A branch's first request brings a history that its session has never seen."""
    policy = make_policy()
    warm = policy.session([3])
    history: list[PastTurn] = []
    for turn in range(4):
        observation = f"Place {turn}. A red lamp burns."
        (response,) = warm.respond([request(9, history=history, observation=observation)])
        (cold,) = policy.session([3], temperature=0).respond([request(9, history=history, observation=observation)])
        (greedy,) = policy.session([4], temperature=0).respond([request(1, history=history, observation=observation)])
        assert cold.text == greedy.text
        tokens = policy.conversation.context("Leave the house.", history, 5)
        context = [token for chunk in tokens for token in chunk.tolist()] + record_of(response).prompt.tolist()
        assert response.logprobs == pytest.approx(slow_logprobs(policy, context, record_of(response)), abs=1e-5)
        history.append(PastTurn(observation, response, response.text))


def test_a_window_template_prefills_every_turn_anew(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy(WINDOW)
    for rollout in play(policy, suite):
        for response in rollout.responses:
            record = record_of(response)
            assert not record.continues
            assert response.logprobs == pytest.approx(slow_logprobs(policy, record.prompt.tolist(), record), abs=1e-5)


def test_a_history_without_records_is_rendered(make_policy: MakePolicy) -> None:
    """An expert's turns carry no tokens; they stand in the context as this policy would have said them."""
    policy = make_policy()
    codec = policy.conversation.codec
    spoken = PastTurn("A red lamp burns.", Response("open red door", (), 0.0), "open red door")
    context = policy.conversation.context("Leave the house.", [spoken], 5)
    (prompt,) = policy.conversation.prompts([request()])
    assert [chunk.tolist() for chunk in context] == [prompt.tolist(), list(codec.response("open red door"))]
    (response,) = policy.session([0]).respond([request(history=[spoken])])
    tokens = [token for chunk in context for token in chunk.tolist()] + record_of(response).prompt.tolist()
    assert response.logprobs == pytest.approx(slow_logprobs(policy, tokens, record_of(response)), abs=1e-5)


def test_a_single_admissible_command_needs_no_model(make_policy: MakePolicy) -> None:
    policy = make_policy()
    only = Request(0, "Leave.", (), "A wall.", ("wait",), 5)
    session = policy.session([0])
    policy.model.logits = None  # type: ignore[assignment, method-assign]
    (response,) = session.respond([only])
    assert (response.text, response.entropy) == ("wait", 0.0)
    assert set(response.logprobs) == {0.0}
    assert len(response.logprobs) == len(policy.conversation.codec.response("wait"))


def test_free_decoding_stops_at_the_limit_or_at_the_end_of_sequence(make_policy: MakePolicy) -> None:
    policy = make_policy(constrained=False, max_response_tokens=4)
    eos = policy.conversation.codec.eos
    responses = policy.session([0]).respond([request(key) for key in range(200)])
    ended = [response for response in responses if not response.truncated]
    assert 0 < len(ended) < 200
    for response in responses:
        ids = record_of(response).response.tolist()
        assert len(ids) == len(response.logprobs) <= 4
        assert (ids[-1] == eos) is not response.truncated
        assert eos not in ids[:-1]
        assert response.truncated <= (len(ids) == 4)
        assert record_of(response).choices is None


def test_a_truncated_response_is_closed_before_the_next_prompt(make_policy: MakePolicy) -> None:
    policy = make_policy(constrained=False, max_response_tokens=1)
    eos = policy.conversation.codec.eos
    session = policy.session([0])
    (first,) = session.respond([request()])
    assert first.truncated
    past = PastTurn("A red lamp burns.", first, first.text)
    (second,) = session.respond([request(history=[past])])
    assert record_of(second).prompt[0] == eos
    assert record_of(second).prompt[1] != eos


def test_finished_episodes_leave_their_rows_to_others(make_policy: MakePolicy) -> None:
    policy = make_policy()
    session = TransformerSession(
        policy.model, policy.conversation, constrained=True, max_response_tokens=8, seed=[2], temperature=1.0
    )
    session.respond([request(key) for key in range(4)])
    for key in range(4):
        session.finish(key)
    later = session.respond([request(key) for key in range(4, 8)])
    fresh = policy.session([2]).respond([request(key) for key in range(4, 8)])
    assert [r.logprobs for r in later] == [r.logprobs for r in fresh]
    (shard,) = session._shards
    assert shard._stores[0][0].shape[0] == 4  # four rows were enough for eight episodes
    session.finish(99)  # never seen: harmless


def test_draw_inverts_the_cumulative_distribution() -> None:
    logits = torch.tensor([0.2, 0.5, 0.3]).log().repeat(6, 1)
    uniform = np.array([0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-53])
    tokens, logprobs, entropies = draw(logits, None, 1.0, uniform)
    assert tokens == [0, 0, 1, 1, 2, 2]
    assert logprobs == pytest.approx(np.log([0.2, 0.2, 0.5, 0.5, 0.3, 0.3]))
    assert entropies == pytest.approx([-(0.2 * np.log(0.2) + 0.5 * np.log(0.5) + 0.3 * np.log(0.3))] * 6)


def test_draw_never_leaves_the_allowed_tokens() -> None:
    logits = torch.tensor([[0.0, 50.0, 1.0, 2.0]]).repeat(2, 1)
    tokens, logprobs, _ = draw(logits, [[2], [3, 0, 2]], 0.5, np.array([0.999999, 1 - 2**-53]))
    assert tokens == [2, 2]
    scores = np.array([4.0, 0.0, 2.0])
    assert logprobs == pytest.approx([0.0, scores[2] - np.log(np.exp(scores).sum())])


def test_refusals(make_policy: MakePolicy) -> None:
    policy = make_policy()
    with pytest.raises(OptionError, match="temperature is -1"):
        policy.session([0], temperature=-1)
    with pytest.raises(OptionError, match="max_response_tokens is 0"):
        make_policy(max_response_tokens=0)
    nothing = Request(0, "Leave.", (), "A wall.", (), 5)
    with pytest.raises(InputError, match="use free decoding"):
        policy.session([0]).respond([nothing])
