"""ReAct and Reflexion with speakers whose every word is known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from stepcredit.core.episodes import Episode, Turn
from stepcredit.environments.chain import ChainSuite
from stepcredit.evaluation.agents import Agent, play_tasks
from stepcredit.evaluation.folder import load_evaluation, run_evaluation
from stepcredit.evaluation.results import OVERALL, Outcome, summarize
from stepcredit.policy.endpoint import ChatEndpoint
from stepcredit.policy.endpoint_policy import EndpointPolicy
from stepcredit.rollouts.react import (
    RESPONSE_FORMAT,
    VERBATIM,
    ReActPolicy,
    goal_with_lessons,
    message_request,
    react_message,
    reflection_message,
)
from stepcredit.rollouts.types import PastTurn, Request, Response

from .players import Speaker, chain_plan, chain_protocol

LESSON = "Open the door that has the colour of the lamp."


def right_command(message: str) -> str:
    lamp = re.findall(r"A (\w+) lamp", message.partition("You see now:")[2])[0]
    return f"open {lamp} door"


def knows(request: Request) -> str:
    """Always right, thinking aloud."""
    number = len(re.findall("did:", request.observation)) + 1
    return f"<think>thought {number}</think><action>{right_command(request.observation)}</action>"


def learns(request: Request) -> str:
    """Opens a wrong door until the prompt holds the lesson; writes it down when asked what went wrong."""
    message = request.observation
    if "You see now:" not in message:
        return f"  {LESSON}\n"
    good = right_command(message)
    wrong = next(line for line in message.split("\n") if line.startswith("open ") and line != good)
    command = good if LESSON in message else wrong
    return f"<think>hm</think><action>{command}</action>"


def reflexion(speaker: Speaker, trials: int = 3) -> Agent:
    return Agent(ReActPolicy(speaker, history=4), RESPONSE_FORMAT, trials=trials, speaker=speaker)


def test_a_message_reaches_the_speaker_as_it_is() -> None:
    message = "Task {goal}\n{observation} {history} \\ %s"
    assert VERBATIM.render(message_request(0, message)) == message
    assert not VERBATIM.append_only


def test_react_shows_its_thoughts_of_the_last_turns() -> None:
    history = [
        PastTurn(
            f"seen {number}",
            Response(f"<think>thought {number}</think><action>a{number}</action>", (), 0.0),
            f"a{number}",
        )
        for number in range(1, 5)
    ]
    request = Request(0, "Get {out}.", history, "seen now", ("b1", "b2"), 9)
    message = react_message(request, 2)
    assert "Task: Get {out}." in message
    assert "turn 5 of at most 9" in message
    assert "Turn 3 saw: seen 3\nTurn 3 thought: thought 3\nTurn 3 did: a3\nTurn 4 saw: seen 4\n" in message
    assert "Turn 2" not in message
    assert "seen now" in message
    assert "b1\nb2" in message
    first = react_message(Request(0, "g", (), "s", (), 9), 2)
    assert "before" not in first
    assert "(any text)" in first
    assert "thought" not in react_message(Request(0, "g", [PastTurn("s", Response("x", (), 0.0), "x")], "s", (), 9), 2)
    assert "Turn" not in react_message(request, 0)


def test_a_turn_without_a_command_is_said_to_be_one() -> None:
    """An empty line after "did:" would not tell the model that its form was wrong."""
    request = Request(0, "g", [PastTurn("s", Response("I am ready to help.", (), 0.0), "")], "s", (), 9)
    assert "Turn 1 did: nothing, because the answer held no command\n" in react_message(request, 1)
    episode = Episode("t", "t#0", (Turn("s", ""),), "s", success=False)
    assert "Turn 1 did: nothing, because the answer held no command\n" in reflection_message("g", episode)


def test_react_plays_and_is_judged_like_everybody() -> None:
    suite = ChainSuite(length=3, doors=3, count=2)
    speaker = Speaker(knows)
    agent = Agent(ReActPolicy(speaker, history=2), RESPONSE_FORMAT)
    protocol = chain_protocol(episodes_per_task=1)
    played = play_tasks(agent, suite, suite.tasks("test"), protocol, seed=5, batch=0)
    assert [episode.episode for episode in played.episodes] == ["test/0#5.0", "test/1#5.0"]
    row = summarize(played.outcomes())[OVERALL]
    assert (row.success.mean, row.valid_action, row.turns_won) == (1.0, 1.0, 3.0)
    assert "Turn 2 thought: thought 2" in speaker.asked[-1].observation
    assert {request.horizon for request in speaker.asked} == {1}


def test_reflection_shows_what_was_done() -> None:
    episode = Episode("t", "t#0", tuple(Turn(f"saw {k}", f"did {k}") for k in range(60)), "the end", False)
    message = reflection_message("the goal", episode)
    assert "Task: the goal" in message
    assert "Turn 60 saw: saw 59\nTurn 60 did: did 59\n" in message
    assert "At the end you saw:\nthe end" in message
    assert "Turn 11 saw" in message
    assert "Turn 10 saw" not in message


def test_lessons_follow_the_goal() -> None:
    assert goal_with_lessons("goal", []) == "goal"
    assert goal_with_lessons("goal", ["", ""]) == "goal"
    assert goal_with_lessons("goal", ["a", "", "b"]).endswith("1. a\n2. b")


def test_reflexion_tries_again_with_what_it_wrote_down() -> None:
    suite = ChainSuite(length=2, doors=2, mistake="fall", count=3)
    speaker = Speaker(learns)
    protocol = chain_protocol(episodes_per_task=2)
    said: list[int] = []
    played = play_tasks(
        reflexion(speaker),
        suite,
        suite.tasks("test"),
        protocol,
        seed=0,
        batch=0,
        progress=lambda done, _: said.append(done),
    )
    names = [episode.episode for episode in played.episodes]
    assert names[:2] == ["test/0#0.0", "test/0#0.1"]
    assert names[6:8] == ["test/0#0.0.t2", "test/0#0.1.t2"]
    assert len(names) == len(set(names)) == 12
    first, second = played.episodes[0], played.episodes[6]
    assert (first.extra["retried"], first.extra["trial"], first.success) == (True, 1, False)
    assert (second.extra.get("retried"), second.extra["trial"], second.success) == (None, 2, True)
    assert second.extra["lessons"] == [LESSON]
    assert second.extra["goal"] == first.extra["goal"] == "Get outside."
    row = summarize(played.outcomes())[OVERALL]
    assert (row.episodes, row.success.mean, row.trials) == (6, 1.0, (0.0, 1.0))
    assert said == sorted(said)


def test_reflexion_stops_after_its_trials() -> None:
    """The speaker never learns: three trials, two lessons, and the last trial is what counts."""
    suite = ChainSuite(length=2, doors=2, mistake="fall", count=2)
    speaker = Speaker(lambda request: "nothing" if "You see now:" not in request.observation else learns(request))
    played = play_tasks(
        reflexion(speaker), suite, suite.tasks("test"), chain_protocol(episodes_per_task=1), seed=0, batch=0
    )
    assert [episode.extra["trial"] for episode in played.episodes] == [1, 1, 2, 2, 3, 3]
    assert played.episodes[-1].extra["lessons"] == ["nothing", "nothing"]
    assert [outcome.trial for outcome in played.outcomes()] == [3, 3]
    assert summarize(played.outcomes())[OVERALL].trials == (0.0, 0.0, 0.0)


def test_only_failures_are_tried_again_and_keep_their_names() -> None:
    """Of two episodes of a task the second fails: its next trial is played alone and still called the second."""
    suite = ChainSuite(length=1, doors=2, mistake="fall", count=1)
    asked = []

    def say(request: Request) -> str:
        if "You see now:" not in request.observation:
            return LESSON
        asked.append(request.key)
        return knows(request) if len(asked) == 1 else learns(request)

    played = play_tasks(
        reflexion(Speaker(say)), suite, suite.tasks("test"), chain_protocol(episodes_per_task=2), seed=0, batch=0
    )
    assert [episode.episode for episode in played.episodes] == ["test/0#0.0", "test/0#0.1", "test/0#0.1.t2"]
    assert [outcome.trial for outcome in played.outcomes()] == [1, 2]


def test_a_speaker_that_fails_ends_its_episode_and_is_not_tried_again() -> None:
    suite = ChainSuite(length=1, doors=2, count=1)
    speaker = Speaker(lambda _: Response("", (), 0.0, failure="no answer"))
    played = play_tasks(reflexion(speaker), suite, suite.tasks("test"), chain_protocol(), seed=0, batch=0)
    assert played.episodes == ()
    assert played.outcomes() == [Outcome("test/0", "chain", 0, 1, reason="response: no answer")] * 2


def test_a_kept_reflexion_evaluation_reads_back(tmp_path: Path) -> None:
    suite = ChainSuite(length=2, doors=2, mistake="fall", count=3)
    plan = chain_plan(suite, chain_protocol(seeds=1))
    result = run_evaluation(reflexion(Speaker(learns)), suite, suite.tasks("test"), plan, {"name": "r"}, tmp_path / "e")
    assert result.families[OVERALL].trials == (0.0, 1.0)
    assert load_evaluation(tmp_path / "e").result.families == result.families


class Model(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that plays as ``learns`` does."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = learns(message_request(0, body["messages"][0]["content"]))
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "length"}
        answer = json.dumps({"choices": [choice], "usage": {"completion_tokens": 11}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_behind_an_endpoint_plays_under_the_same_protocol(url: str) -> None:
    suite = ChainSuite(length=2, doors=2, mistake="fall", count=2)
    speaker = EndpointPolicy(ChatEndpoint(url, "m"), VERBATIM, max_response_tokens=64)
    agent = Agent(ReActPolicy(speaker, history=4), RESPONSE_FORMAT, trials=3, speaker=speaker)
    played = play_tasks(agent, suite, suite.tasks("test"), chain_protocol(), seed=0, batch=0)
    row = summarize(played.outcomes())[OVERALL]
    assert (row.success.mean, row.trials) == (1.0, (0.0, 1.0))
    assert (row.tokens, row.truncated) == (11.0, 1.0)
    turn = played.episodes[0].turns[0]
    assert turn.extra["tokens"] == 11
    assert turn.entropy is None
    assert turn.logprobs is None
