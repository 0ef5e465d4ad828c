"""Tokens of turns: one row a turn, one row an episode, and advantages on exactly the tokens the policy wrote."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepcredit.core.errors import InputError
from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.engines.generation import EnginePolicy, Generated, without_entropy
from stepcredit.integrations.engines.tokens import dialogue_row, scored_tokens, token_advantages, turn_rows
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.tiny import build_tokenizer
from stepcredit.policy.tokens import Codec
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate, load_template
from stepcredit.rollouts.types import Rollout

SUITE = make_suite("household", families=["pick"], train=1, valid_seen=1, valid_unseen=1)
HORIZON = 4
SELF_CONTAINED = PromptTemplate("{goal}\n{history}\n{observation}\n>", history=1)


class Scripted:
    """An engine that goes on with the commands it is given, end of sequence included."""

    def __init__(self, codec: Codec, commands: list[str]) -> None:
        self.codec = codec
        self.commands = iter(commands)
        self.prompts: list[list[int]] = []

    def __call__(self, prompts: list[list[int]]) -> list[Generated]:
        self.prompts += prompts
        ids = [self.codec.response(next(self.commands)) for _ in prompts]
        return [Generated(own, [-0.25] * len(own)) for own in ids]


@pytest.fixture(scope="module")
def codec() -> Codec:
    task = SUITE.tasks("train")[0]
    environment = SUITE.make(task)
    observation, info = environment.reset()
    texts = [task.goal, observation, *info["admissible"], "nothing happens. you see arrive at open closed"]
    return Codec(build_tokenizer(texts, SUITE.entities()))


def play(codec: Codec, template: PromptTemplate, *, limit: int = 10_000) -> tuple[Rollout, Scripted, Conversation]:
    task = SUITE.tasks("train")[0]
    admissible = SUITE.make(task).reset()[1]["admissible"]
    engine = Scripted(codec, [admissible[0], "look", "dance", "look"])
    conversation = Conversation(template, codec)
    policy = EnginePolicy(engine, conversation, max_prompt_tokens=limit)
    (rollout,) = collect(policy, SUITE, [task], group_size=1, horizon=HORIZON, seed=(0,)).rollouts
    return rollout, engine, conversation


@pytest.mark.parametrize("template", [load_template("compact"), SELF_CONTAINED], ids=["append-only", "self-contained"])
def test_a_turns_row_is_what_the_engine_saw_and_said(codec: Codec, template: PromptTemplate) -> None:
    rollout, engine, conversation = play(codec, template)
    rows = turn_rows(rollout, conversation)
    assert [row.prompt.tolist() for row in rows] == engine.prompts
    for row, response in zip(rows, rollout.responses, strict=True):
        assert codec.text(row.completion.tolist()) == response.text
        assert row.written.all()
        assert row.spans == ((0, len(row.completion)),)
        assert row.logprobs.tolist() == list(response.logprobs)


def test_an_episodes_row_holds_the_last_turns_whole_context(codec: Codec) -> None:
    rollout, engine, conversation = play(codec, load_template("compact"))
    row = dialogue_row(rollout, conversation)
    last = codec.response("look")
    assert [*row.prompt, *row.completion] == [*engine.prompts[-1], *last]
    assert row.prompt.tolist() == engine.prompts[0]
    said = [codec.text(row.completion[start:end].tolist()) for start, end in row.spans]
    assert said == [response.text for response in rollout.responses]
    written = np.zeros(len(row.completion), dtype=bool)
    for start, end in row.spans:
        written[start:end] = True
    np.testing.assert_array_equal(row.written, written)
    np.testing.assert_array_equal(row.logprobs, np.where(written, -0.25, 0.0))
    assert not written.all()  # observations stand between the responses


def test_an_episode_of_self_contained_prompts_has_no_single_row(codec: Codec) -> None:
    rollout, _, conversation = play(codec, SELF_CONTAINED)
    with pytest.raises(InputError, match="append-only"):
        dialogue_row(rollout, conversation)


@pytest.mark.parametrize("template", [load_template("compact"), SELF_CONTAINED], ids=["append-only", "self-contained"])
def test_a_branch_sees_its_replayed_prefix(codec: Codec, template: PromptTemplate) -> None:
    rollout, _, conversation = play(codec, template)
    engine = Scripted(codec, ["look", "look"])
    policy = EnginePolicy(engine, conversation, max_prompt_tokens=10_000)
    branched = branch(policy, SUITE, [Opening(rollout, 2, 1)], horizon=HORIZON, seed=(0,))
    (suffix,) = branched.rollouts
    rows = turn_rows(suffix, conversation)
    assert [row.prompt.tolist() for row in rows] == engine.prompts
    # Before its own words the branch has seen what its parent had.
    assert rows[0].prompt.tolist() == turn_rows(rollout, conversation)[2].prompt.tolist()
    if template.append_only:
        whole = dialogue_row(suffix, conversation)
        assert [*whole.prompt, *whole.completion] == [*engine.prompts[-1], *codec.response("look")]


def test_advantages_stand_on_written_tokens_alone() -> None:
    spans = ((0, 2), (4, 5), (7, 9))
    advantage = np.array([1.5, math.nan, -2.0])
    np.testing.assert_array_equal(token_advantages(advantage, spans, 10), [1.5, 1.5, 0, 0, 0, 0, 0, -2, -2, 0])
    np.testing.assert_array_equal(scored_tokens(advantage, spans, 10), [1, 1, 0, 0, 0, 0, 0, 1, 1, 0])


def test_a_prompt_that_does_not_fit_ends_its_episode(codec: Codec) -> None:
    whole, engine, _ = play(codec, load_template("compact"))
    limit = len(engine.prompts[2]) - 1
    rollout, _, _ = play(codec, load_template("compact"), limit=limit)
    assert rollout.episode.stop == "error"
    assert f"the prompt has {limit + 1} tokens, {limit} fit" in rollout.episode.extra["error"]
    assert rollout.episode.turns == whole.episode.turns[:2]


def test_an_empty_answer_is_a_failure(codec: Codec) -> None:
    policy = EnginePolicy(
        lambda prompts: [Generated((), ()) for _ in prompts],
        Conversation(load_template("compact"), codec),
        max_prompt_tokens=10_000,
    )
    collected = collect(policy, SUITE, SUITE.tasks("train")[:1], group_size=1, horizon=HORIZON, seed=(0,))
    assert collected.rollouts == ()
    assert "without a token" in collected.failures[0].reason


def test_unknown_entropy_is_not_zero(codec: Codec) -> None:
    rollout, _, _ = play(codec, load_template("compact"))
    assert [turn.entropy for turn in without_entropy(rollout.episode).turns] == [None] * HORIZON
    assert [turn.nll for turn in rollout.episode.turns] == [0.25] * HORIZON
