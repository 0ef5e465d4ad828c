"""Teachers: repairs, private reflection, attempts, and that nothing private enters the data."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from stepcredit.cli import main
from stepcredit.environments.chain import ChainEnvironment, ChainSuite
from stepcredit.environments.protocol import Task
from stepcredit.policy.endpoint import ChatEndpoint
from stepcredit.rollouts.prompts import load_template
from stepcredit.training.chats import read_chats, rollout_chats
from stepcredit.training.teaching import Taught, TeacherSettings, ask_expert, ask_teacher
from training.teacher_server import Messages, TeacherServer, teacher_server

SUITE = ChainSuite(length=2, doors=3, mistake="fall")
TASKS = SUITE.tasks("train")[:4]
TEMPLATE = load_template("chat", response_format="think-action")
SETTINGS = TeacherSettings(TEMPLATE, "think-action", horizon=6)
LESSON = "LESSON: look at the lamp"


def seen(messages: Messages) -> str:
    """The colour of the lamp that a conversation is about."""
    lamps = re.findall(r"A (\w+) lamp burns", messages[0]["content"].split("What you see now:")[-1])
    return str(lamps[-1])


def said(command: str) -> str:
    return f"<think>The lamp tells.</think>\n<action>{command}</action>"


def right(messages: Messages) -> str:
    return said(f"open {seen(messages)} door")


def wrong(messages: Messages) -> str:
    return said("open red door" if seen(messages) != "red" else "open blue door")


def reflecting(messages: Messages) -> bool:
    return "did not finish it" in messages[0]["content"]


def endpoint(server: TeacherServer) -> ChatEndpoint:
    return ChatEndpoint(server.url, "teacher", backoff=0.0, retries=2, timeout=20.0)


def lines(taught: list[Taught]) -> str:
    """Everything that would be written."""
    return "".join(
        chat.to_json().decode()
        for one in taught
        if one.rollout is not None
        for chat in rollout_chats(one.rollout, one.weight, TEMPLATE, SETTINGS.horizon)
    )


def test_a_good_teacher_demonstrates_every_task_at_once() -> None:
    with teacher_server(right) as server:
        taught = ask_teacher(endpoint(server), SUITE, TASKS, SETTINGS, 0)
    assert [one.task for one in taught] == [task.id for task in TASKS]
    assert all(one.rollout is not None and one.attempts == 1 and one.weight == (1.0, 1.0) for one in taught)
    assert len(server.asked) == 8
    written = [json.loads(line) for line in lines(taught).splitlines()]
    assert Counter(line["task"] for line in written) == dict.fromkeys((task.id for task in TASKS), 2)
    for line in written:
        human, gpt = line["conversations"]
        assert gpt["value"] == right([{"content": human["value"]}])
    assert len({body["seed"] for body in server.bodies}) == len(server.bodies)


def test_an_invalid_answer_is_sent_back_and_only_the_good_one_is_kept() -> None:
    def brain(messages: Messages) -> str:
        return "open the door, I guess" if len(messages) < 5 else right(messages)

    with teacher_server(brain) as server:
        taught = ask_teacher(endpoint(server), SUITE, TASKS[:1], SETTINGS, 0)
    assert taught[0].rollout is not None
    assert taught[0].weight == (1.0, 1.0)
    assert [len(messages) for messages in server.asked] == [1, 3, 5, 1, 3, 5]
    assert "cannot be used: 0 × <think> instead of one." in server.asked[1][2]["content"]
    assert server.asked[1][1] == {"role": "assistant", "content": "open the door, I guess"}
    assert "I guess" not in lines(taught)
    assert "cannot be used" not in lines(taught)


def test_after_two_repairs_the_answer_stands_and_is_not_learnt() -> None:
    """The command of an untidy answer is played; the turn has weight 0."""

    def brain(messages: Messages) -> str:
        untidy = "Place 1" in messages[0]["content"].split("What you see now:")[-1]
        return f"Sure! {right(messages)}" if untidy else right(messages)

    with teacher_server(brain) as server:
        taught = ask_teacher(endpoint(server), SUITE, TASKS[:1], SETTINGS, 0)
    assert [len(messages) for messages in server.asked] == [1, 3, 5, 1]
    assert taught[0].weight == (0.0, 1.0)
    assert "Sure!" not in lines(taught)


def test_reflection_helps_the_next_attempt_and_stays_private() -> None:
    def brain(messages: Messages) -> str:
        if reflecting(messages):
            return LESSON
        return right(messages) if messages[0]["content"].count(LESSON) == 2 else wrong(messages)

    with teacher_server(brain) as server:
        taught = ask_teacher(endpoint(server), SUITE, TASKS, SETTINGS, 0)
    assert [one.attempts for one in taught] == [3] * 4
    assert all(one.rollout is not None for one in taught)
    assert sum(map(reflecting, server.asked)) == 8
    reviews = [messages[0]["content"] for messages in server.asked if reflecting(messages)]
    assert all("You fall." in review and "did: open" in review for review in reviews)
    written = lines(taught)
    assert "LESSON" not in written
    assert "tried this before" not in written
    assert all(turn.valid for one in taught if one.rollout for turn in one.rollout.episode.turns)


def test_a_lesson_is_read_at_its_own_task() -> None:
    """Also where an earlier task of the same run cannot start, and so has no episode."""

    class FirstIsBroken(ChainSuite):
        def make(self, task: Task) -> ChainEnvironment:
            if task.id == TASKS[0].id:
                raise RuntimeError("out of order")
            return super().make(task)

    def lesson(messages: Messages) -> str:
        return f"LESSON about {re.findall(r'A .+ lamp burns', messages[0]['content'])}"

    with teacher_server(lambda messages: lesson(messages) if reflecting(messages) else wrong(messages)) as server:
        taught = ask_teacher(endpoint(server), FirstIsBroken(length=2, doors=3, mistake="fall"), TASKS, SETTINGS, 0)
    assert taught[0].reason == "environment, start: RuntimeError: out of order"
    again = [messages for messages in server.asked if "LESSON" in messages[0]["content"]]
    assert len(again) == 6
    for messages in again:
        (lamp, *_) = re.findall(r"LESSON about \['A (\w+) lamp burns", messages[0]["content"])
        assert lamp == seen(messages)


def test_failures_leave_no_data_and_say_why() -> None:
    with teacher_server(lambda messages: LESSON if reflecting(messages) else wrong(messages)) as server:
        taught = ask_teacher(endpoint(server), SUITE, TASKS[:2], SETTINGS, 0)
    assert [(one.rollout, one.attempts) for one in taught] == [(None, 3)] * 2
    assert all(one.reason == "no success within 1 turns" for one in taught)
    assert lines(taught) == ""


def test_a_broken_server_fails_its_task_and_no_other() -> None:
    """500 for one task, every time; the others are demonstrated."""
    broken = seen_first(TASKS[1].id)

    def brain(messages: Messages) -> str | int:
        return 500 if broken in messages[0]["content"] else right(messages)

    suite = ChainSuite(length=1, doors=6, mistake="fall")
    tasks = suite.tasks("train")[:6]
    colours = [suite.make(task).right_command for task in tasks]
    with teacher_server(brain) as server:
        taught = ask_teacher(endpoint(server), suite, tasks, SETTINGS, 0)
    for one, command in zip(taught, colours, strict=True):
        assert (one.rollout is None) == (command == f"open {broken.split()[1]} door"), one
        assert ("status 500" in one.reason) == (one.rollout is None)
    assert any(one.rollout is None for one in taught)


def seen_first(task: str) -> str:
    """What the first observation of a task of the longest corridor says of its lamp."""
    suite = ChainSuite(length=1, doors=6, mistake="fall")
    command = suite.make(next(one for one in suite.tasks("train") if one.id == task)).right_command
    return f"A {str(command).split()[1]} lamp"


def test_the_expert_demonstrates_the_same_whatever_was_done_before() -> None:
    numbers = range(len(TASKS))
    stay = ChainSuite(length=2, doors=3)
    everything = list(ask_expert(stay, TASKS, numbers, noise=0.5, horizon=20, seed=3))
    rest = list(ask_expert(stay, TASKS[2:], range(2, len(TASKS)), noise=0.5, horizon=20, seed=3))
    assert rest == everything[2:]
    assert {0.0, 1.0} == {weight for one in everything for weight in one.weight}
    (failed,) = ask_expert(stay, TASKS[:1], [0], noise=0.0, horizon=1, seed=3)
    assert failed == Taught(TASKS[0].id, None, (), 1, "no success within 1 turns")


def test_the_command_line_collects_and_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Interrupted in the middle and continued, the file is the same as without interruption."""
    command = "demonstrate {} --env stepcredit.environments.chain:ChainSuite --tasks 6 --horizon 8 --concurrency 2"
    with teacher_server(right) as server:
        teacher = f" --endpoint {server.url} --model m"
        run(command.format(tmp_path / "whole.jsonl") + teacher)
        asked = len(server.asked)
        stopped = server.brain

        def stop(messages: Messages) -> str | int:
            return 401 if len(server.asked) > asked + asked // 2 else stopped(messages)

        server.brain = stop
        assert run(command.format(tmp_path / "cut.jsonl") + teacher) == 2
        assert "refuses the key in $OPENAI_API_KEY" in capsys.readouterr().err
        server.brain = right
        before = len(read_chats(tmp_path / "cut.jsonl"))
        assert run(command.format(tmp_path / "cut.jsonl") + teacher) == 0
    assert 0 < before < len(read_chats(tmp_path / "whole.jsonl"))
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_options_of_the_environment_are_spelled_as_everywhere(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    options = "--env-options.train 6 --env-options.valid-seen 0 --env-options.valid-unseen 0"
    assert run(f"demonstrate {out} --env household {options} --tasks 1") == 0
    assert len(read_chats(out)) > 0


def run(command: str) -> int:
    """Exit status of a command line."""
    try:
        main(command.split())
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--endpoint http://127.0.0.1:9/v1", "A teacher needs both --endpoint ADDRESS and --model NAME"),
        ("--response-format think-action", "The built-in expert gives commands and no thoughts"),
        ("--noise 1", "noise is 1.0; expected a share"),
        ("--tasks 0", "Got 0 tasks; expected at least 1"),
        ("--horizon 0", "horizon is 0; expected a finite number of at least 1"),
        ("--seed -1", "seed is -1; expected a finite number of at least 0"),
        ("--temperature nan", "temperature is nan; expected a finite number of at least 0"),
        ("--max-response-tokens 0", "max_response_tokens is 0; expected a finite number of at least 1"),
        ("--repairs -1", "repairs is -1; expected a finite number of at least 0"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    assert run(f"demonstrate {tmp_path / 'out.jsonl'} {options}") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"stepcredit: {message}")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
