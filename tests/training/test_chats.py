"""Chat files: what a demonstration becomes, what is read back, what is refused, and how a file is continued."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stepcredit.core.errors import CheckpointError, FileFormatError, InputError, OptionError
from stepcredit.environments.chain import ChainSuite
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import Request, Rollout
from stepcredit.training.chat_file import ChatFile, collecting
from stepcredit.training.chats import CHAT, Chat, chat_rollouts, read_chats, rollout_chats
from stepcredit.training.demonstrations import demonstrate

GROWING = PromptTemplate("{goal}|{observation}", append_only=True)
WHOLE = PromptTemplate("{goal}|{step}/{horizon}|{history}|{observation}|{admissible}", history=1)


def demonstration(noise: float = 0.0) -> tuple[Rollout, list[float]]:
    suite = ChainSuite(length=3, doors=3)
    rollouts, weight = demonstrate(suite, suite.tasks("train")[:1], noise=noise, horizon=12, seed=(1,))
    return rollouts[0], weight.tolist()


def test_an_episode_is_one_conversation_where_the_prompt_grows() -> None:
    rollout, weight = demonstration()
    (chat,) = rollout_chats(rollout, weight, GROWING, 12)
    seen = [turn.observation for turn in rollout.episode.turns]
    assert chat.prompts == tuple(f"Get outside.|{text}" for text in seen)
    assert chat.answers == tuple(turn.action for turn in rollout.episode.turns)
    assert chat.weights == (1.0, 1.0, 1.0)
    assert (chat.task, chat.id) == ("train/0", "train/0#demonstration")


def test_every_turn_is_a_conversation_where_the_prompt_stands_alone() -> None:
    rollout, weight = demonstration()
    chats = list(rollout_chats(rollout, weight, WHOLE, 12))
    first, second, third = rollout.episode.turns
    doors = "open blue door\nopen green door\nopen red door"
    past = [f"Turn {number} saw: {turn.observation}\nTurn {number} did: {turn.action}" for number, turn in
            ((1, first), (2, second))]  # fmt: skip
    assert [chat.prompts for chat in chats] == [
        (f"Get outside.|1/12|(nothing)|{first.observation}|{doors}",),
        (f"Get outside.|2/12|{past[0]}|{second.observation}|{doors}",),
        (f"Get outside.|3/12|{past[1]}|{third.observation}|{doors}",),
    ]
    assert [chat.answers for chat in chats] == [(first.action,), (second.action,), (third.action,)]
    assert [chat.id for chat in chats] == [f"train/0#demonstration/{turn}" for turn in range(3)]


def test_random_commands_are_seen_and_not_learnt() -> None:
    rollout, weight = demonstration(noise=0.6)
    assert 0.0 in weight
    (chat,) = rollout_chats(rollout, weight, GROWING, 12)
    assert list(chat.weights) == weight
    messages = json.loads(chat.to_json())["conversations"]
    assert [message.get("weight", 1) for message in messages[1::2]] == weight
    assert len(list(rollout_chats(rollout, weight, WHOLE, 12))) == sum(weight)


def test_what_is_written_is_read_and_learnt_as_it_stands(tmp_path: Path) -> None:
    rollout, weight = demonstration(noise=0.6)
    written = [*rollout_chats(rollout, weight, GROWING, 12), Chat("x", "t", ('a "quote"\n',), ("ä",), (0.5,))]
    file = tmp_path / "demos.jsonl"
    file.write_bytes(b"".join(chat.to_json() for chat in written) + b"\n")
    read = read_chats(file)
    assert read == written
    rollouts, weights = chat_rollouts(read)
    assert weights.tolist() == [*weight, 0.5]
    assert [response.text for one in rollouts for response in one.responses] == [
        answer for chat in written for answer in chat.answers
    ]
    asked = Request(0, rollouts[1].goal, (), rollouts[1].episode.turns[0].observation, (), 1)
    assert CHAT.render(asked) == 'a "quote"\n'


def test_files_of_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}\n')
    assert read_chats(file) == [Chat(f"{file}:1", f"{file}:1", ("q",), ("a",), (1.0,))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "conversations: expected a list of messages, human and gpt in turn."),
        ('{"conversations": []}', "expected a list of messages"),
        ('{"conversations": [{"from": "human", "value": "q"}]}', "expected a list of messages"),
        (
            '{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}]}',
            "conversations[0]: got a message from 'system'; expected one from 'human'",
        ),
        ('{"conversations": [{"from": "human", "value": 3}, {"from": "gpt", "value": "a"}]}', "conversations[0]"),
        ('{"conversations": [{"from": "human", "value": "q"}, 7]}', "conversations[1]: got a message from None"),
        (
            '{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", "weight": -1}]}',
            "weight: got -1; expected a number of at least 0.",
        ),
    ],
)
def test_a_line_of_another_form_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "demos.jsonl"
    fine = '{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}'
    file.write_text(f"{fine}\n{line}\n")
    with pytest.raises(FileFormatError) as caught:
        read_chats(file)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert message in str(caught.value)


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read the demonstrations"):
        read_chats(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no conversation"):
        read_chats(tmp_path / "empty.jsonl")


def chat(task: str, turn: int = 0) -> Chat:
    return Chat(f"{task}/{turn}", task, ("q",), (f"answer {task}",), (1.0,))


def test_a_killed_collection_is_continued_task_by_task(tmp_path: Path) -> None:
    """Whatever a kill leaves half-written goes; finished tasks stay, failed ones included."""
    out = tmp_path / "demos.jsonl"
    settings = {"seed": 0, "env": "chain"}
    file = ChatFile(out, settings)
    file.add("a", [chat("a", 0), chat("a", 1)], {"success": True})
    file.add("b", [], {"success": False, "reason": "no"})
    whole = out.read_bytes()
    with out.open("ab") as broken:
        broken.write(chat("c").to_json() + b'{"id": "c/1", "ta')
    progress = tmp_path / "demos.jsonl.progress.jsonl"
    with progress.open("ab") as broken:
        broken.write(b'{"task": "c", "succ')
    again = ChatFile(out, settings)
    assert set(again.done) == {"a", "b"}
    assert again.done["b"] == {"task": "b", "success": False, "reason": "no"}
    assert out.read_bytes() == whole
    again.add("c", [chat("c")], {"success": True})
    assert [one.task for one in read_chats(out)] == ["a", "a", "c"]
    assert set(ChatFile(out, settings).done) == {"a", "b", "c"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demos.jsonl", "demos.jsonl.progress.jsonl"]


def test_a_file_is_continued_with_the_same_settings_only(tmp_path: Path) -> None:
    out = tmp_path / "demos.jsonl"
    ChatFile(out, {"seed": 0, "env": "chain"}).add("a", [chat("a")], {"success": True})
    with pytest.raises(OptionError, match="begun with another seed, split; repeat that command"):
        ChatFile(out, {"seed": 1, "env": "chain", "split": "test"})
    assert set(ChatFile(out, {"seed": 0, "env": "chain"}).done) == {"a"}
    (tmp_path / "foreign.jsonl").write_text("{}\n")
    with pytest.raises(OptionError, match="is there already and cannot be continued"):
        ChatFile(tmp_path / "foreign.jsonl", {})


def test_a_file_in_which_nothing_was_finished_is_begun_anew(tmp_path: Path) -> None:
    """A command that was refused or killed before its first task binds nobody."""
    out = tmp_path / "demos.jsonl"
    ChatFile(out, {"seed": 0})
    ChatFile(out, {"seed": 1}).add("a", [chat("a")], {"success": True})
    assert set(ChatFile(out, {"seed": 1}).done) == {"a"}


def test_progress_without_conversations_is_forgotten(tmp_path: Path) -> None:
    """Who removes the file wants it collected anew; tasks said to be done would be missing in it."""
    out = tmp_path / "demos.jsonl"
    ChatFile(out, {"seed": 0}).add("a", [chat("a")], {"success": True})
    out.unlink()
    assert ChatFile(out, {"seed": 1}).done == {}
    assert out.read_bytes() == b""


def test_weights_of_nothing() -> None:
    rollouts, weight = chat_rollouts([])
    assert rollouts == []
    assert weight.dtype == np.float64
    assert weight.shape == (0,)


def test_two_collections_never_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "demos.jsonl"
    with collecting(out):
        with pytest.raises(CheckpointError, match="is in use by another collection; wait for it"), collecting(out):
            pass
        ChatFile(out, {})
    with collecting(out):
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            ".demos.jsonl.lock",
            "demos.jsonl",
            "demos.jsonl.progress.jsonl",
        ]
    assert not (tmp_path / ".demos.jsonl.lock").exists()


@pytest.mark.parametrize(
    ("progress", "chats"),
    [("nonsense\n", ""), ("[]\n", ""), ('{"seed":0}\n{}\n', ""), ('{"seed":0}\n3\n', ""), ('{"seed":0}\n', "[1]\n")],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, progress: str, chats: str) -> None:
    (tmp_path / "demos.jsonl").write_text(chats)
    (tmp_path / "demos.jsonl.progress.jsonl").write_text(progress)
    with pytest.raises(InputError, match="restore both, or choose another file"):
        ChatFile(tmp_path / "demos.jsonl", {"seed": 0})
