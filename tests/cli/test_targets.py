"""From names to agents: local models asked plainly and in words, and what tells one agent from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepcredit.cli.targets import build_agent, find_target, identify
from stepcredit.core.errors import CheckpointError, OptionError
from stepcredit.environments.chain import ChainSuite
from stepcredit.evaluation.agents import play_tasks
from stepcredit.evaluation.protocols import find_protocol
from stepcredit.evaluation.results import OVERALL, summarize
from stepcredit.policy.endpoint import ChatEndpoint
from stepcredit.policy.endpoint_policy import EndpointPolicy
from stepcredit.rollouts.react import VERBATIM, ReActPolicy
from stepcredit.training.run_folder import RunFolder

PROTOCOL = find_protocol("gaca", "household").replaced(horizon=2, response_tokens=3)


@pytest.fixture(scope="module")
def suite() -> ChainSuite:
    return ChainSuite(length=2, doors=2, count=4)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


def test_a_tiny_model_plays_plainly(suite: ChainSuite, scratch: Path) -> None:
    agent = build_agent(find_target("tiny", {}), "plain", suite, PROTOCOL, scratch)
    played = play_tasks(agent, suite, suite.tasks("test")[:2], PROTOCOL, seed=0, batch=0)
    row = summarize(played.outcomes())[OVERALL]
    assert (row.valid_action, row.errors, row.truncated) == (1.0, 0, 0.0)
    assert row.tokens is not None


def test_a_tiny_model_is_asked_in_words(suite: ChainSuite, scratch: Path) -> None:
    agent = build_agent(find_target("tiny", {}), "reflexion", suite, PROTOCOL, scratch)
    assert (agent.trials, agent.response_format) == (3, "think-action")
    played = play_tasks(agent, suite, suite.tasks("test")[:1], PROTOCOL, seed=0, batch=0)
    assert len(played.episodes) == 3
    assert len(played.episodes[-1].extra["lessons"]) == 2
    row = summarize(played.outcomes())[OVERALL]
    assert (row.valid_format, row.truncated, row.tokens) == (0.0, 1.0, 3.0)


def test_a_prompt_over_the_protocols_limit_ends_the_episode(suite: ChainSuite, scratch: Path) -> None:
    short = PROTOCOL.replaced(prompt_tokens=20)
    agent = build_agent(find_target("tiny", {}), "react", suite, short, scratch)
    (outcome,) = play_tasks(agent, suite, suite.tasks("test")[:1], short, seed=0, batch=0).outcomes()
    assert outcome.stop == "error"
    assert "at most 20 fit" in outcome.reason
    agent = build_agent(find_target("tiny", {}), "plain", suite, short, scratch)
    (outcome,) = play_tasks(agent, suite, suite.tasks("test")[:1], short, seed=0, batch=0).outcomes()
    assert "at most 20 fit" in outcome.reason  # the second turn continues the first one's tokens
    assert outcome.turns == 1


def test_endpoints(suite: ChainSuite, scratch: Path) -> None:
    server = ChatEndpoint("http://host/v1", "m")
    target = find_target("m", {}, endpoint=server)
    plain = build_agent(target, "plain", suite, PROTOCOL, scratch)
    assert isinstance(plain.policy, EndpointPolicy)
    assert plain.response_format == "think-action"
    assert plain.policy.max_response_tokens == 3
    assert "{admissible}" in plain.policy.template.text
    react = build_agent(target, "react", suite, PROTOCOL, scratch)
    assert isinstance(react.policy, ReActPolicy)
    told = build_agent(target, "reflexion", suite, PROTOCOL, scratch).speaker
    assert isinstance(told, EndpointPolicy)
    assert told.template == VERBATIM
    commands = find_target("m", {"response_format": "action"}, endpoint=server)
    assert build_agent(commands, "plain", suite, PROTOCOL, scratch).response_format == "action"


def test_what_tells_agents_apart(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    a, b, c = (identify(find_target(str(tmp_path / name), {}), "plain") for name in "abc")
    assert a["name"] == "a"
    assert a["weights"] == b["weights"] != c["weights"]
    assert a["constrained"] is False
    assert identify(find_target("tiny", {}), "plain")["constrained"] is True
    assert identify(find_target("tiny", {}), "react")["response_format"] == "think-action"
    served = identify(find_target("m", {}, endpoint=ChatEndpoint("http://host/v1/", "m")), "plain")
    assert (served["name"], served["endpoint"]) == ("m", "http://host/v1")
    assert "weights" not in served


def test_a_run_without_a_checkpoint_is_no_model(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run:
        run.write_config({"model": "linear"})
    with pytest.raises(CheckpointError, match="has no checkpoint yet; let it train for a while"):
        find_target(str(tmp_path), {})


def test_the_linear_policy_has_no_words(suite: ChainSuite, scratch: Path) -> None:
    with pytest.raises(OptionError, match="'reflexion' needs a language model"):
        build_agent(find_target("linear", {}), "reflexion", suite, PROTOCOL, scratch)
