"""Rollout and credit files: what is accepted and means what, every refusal with its place, and atomic writing."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.batches import DEGENERATE, batch, chain, hand_five
from stepcredit.core.credit import Credit
from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import FileFormatError, InputError
from stepcredit.core.files import (
    STANDARD_OUTPUT,
    open_atomic,
    read_episodes,
    read_turns,
    write_credit,
    write_episodes,
)
from stepcredit.core.turns import Turns

RECORD: dict[str, Any] = {
    "task": "t",
    "episode": "A",
    "parent": None,
    "turns": [{"observation": "s", "action": "go"}, {"observation": "u", "action": "go", "reward": 1}],
    "final_observation": "end",
    "success": True,
}


def write_lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def assert_equal_turns(one: Turns, other: Turns) -> None:
    for field in dataclasses.fields(Turns):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=field.name)
            assert a.dtype == b.dtype, field.name
        else:
            assert a == b, field.name


# What a file says is what the table holds.


@pytest.mark.parametrize("seed", range(60))
def test_reading_back_gives_equal_episodes_and_the_same_table(seed: int, tmp_path: Path) -> None:
    episodes = batch(seed)
    path = tmp_path / "rollouts.jsonl"
    write_episodes(path, episodes)
    assert list(read_episodes(path)) == episodes
    assert_equal_turns(read_turns(path), Turns.from_episodes(episodes))


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_batches_survive_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.gz"
    write_episodes(path, DEGENERATE[name])
    assert_equal_turns(read_turns(path), Turns.from_episodes(DEGENERATE[name]))


def test_defaults_and_optional_fields(tmp_path: Path) -> None:
    turn = {
        "observation": "s",
        "action": "go",
        "reward": 2,
        "penalty": 0.5,
        "valid": False,
        "logprobs": [-1, -2.0],
        "entropy": 0.25,
        "state": "key",
    }
    path = write_lines(
        tmp_path / "r.jsonl", RECORD | {"turns": [turn, RECORD["turns"][0]], "score": 0.5, "stop": "won"}
    )
    (episode,) = read_episodes(path)
    first = Turn("s", "go", 2.0, 0.5, False, None, (-1.0, -2.0), 0.25, "key")
    assert episode.turns == (first, Turn("s", "go", 0.0, 0.0, True, None, None, None, None))
    assert (episode.score, episode.stop) == (0.5, "won")
    assert_equal_turns(read_turns(path), Turns.from_episodes([episode]))
    assert read_turns(path).nll[0] == 1.5


def test_null_is_absent_for_optional_fields(tmp_path: Path) -> None:
    empty = {"nll": None, "logprobs": None, "entropy": None, "state": None}
    turns = [turn | empty for turn in RECORD["turns"]]
    path = write_lines(tmp_path / "r.jsonl", RECORD | {"turns": turns, "score": None, "stop": None})
    assert_equal_turns(read_turns(path), read_turns(write_lines(tmp_path / "plain.jsonl", RECORD)))


def test_nll_goes_before_logprobs(tmp_path: Path) -> None:
    turns = [turn | {"nll": 0.5, "logprobs": [-3.0]} for turn in RECORD["turns"]]
    path = write_lines(tmp_path / "r.jsonl", RECORD | {"turns": turns})
    np.testing.assert_array_equal(read_turns(path).nll, [0.5, 0.5])


def test_fields_the_format_does_not_name_are_kept(tmp_path: Path) -> None:
    turns = [turn | {"response": "<think>…</think>", "admissible": ["go", "look"]} for turn in RECORD["turns"]]
    record = RECORD | {"turns": turns, "family": "clean", "seed": [1, {"deep": None}]}
    path = write_lines(tmp_path / "r.jsonl", record)
    again = tmp_path / "again.jsonl"
    write_episodes(again, read_episodes(path))
    (kept,) = map(json.loads, again.read_text(encoding="utf-8").splitlines())
    assert kept["family"] == "clean"
    assert kept["seed"] == [1, {"deep": None}]
    assert [turn["admissible"] for turn in kept["turns"]] == [["go", "look"]] * 2
    assert list(read_episodes(again)) == list(read_episodes(path))


def test_last_line_may_lack_its_line_feed_and_an_empty_file_has_no_episodes(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(RECORD), encoding="utf-8")
    assert len(read_turns(path)) == 2
    path.write_text("", encoding="utf-8")
    assert len(read_turns(path)) == 0


# Refusals.


def with_turn(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The record with its second turn changed; a value of ``...`` removes the field."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        turn = {name: value for name, value in (record["turns"][1] | changes).items() if value is not ...}
        return record | {"turns": [record["turns"][0], turn]}

    return change


def with_field(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda record: {name: value for name, value in (record | changes).items() if value is not ...}


REFUSALS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (with_field(task=...), "task: got nothing, expected a string."),
    (with_field(task=3), "task: got 3, expected a string."),
    (with_field(episode=...), "episode: got nothing, expected a string."),
    (with_field(parent=...), 'parent: got nothing, expected null or {"episode": …, "turn": …}.'),
    (with_field(parent="A"), "parent: got 'A', expected null or"),
    (with_field(parent={"turn": 0}), "parent.episode: got nothing, expected a string."),
    (with_field(parent={"episode": "A"}), "parent.turn: got nothing, expected a whole number of at least 0."),
    (with_field(parent={"episode": "A", "turn": True}), "parent.turn: got true, expected a whole number"),
    (with_field(parent={"episode": "A", "turn": 1.0}), "parent.turn: got 1.0, expected a whole number"),
    (with_field(turns=...), "turns: got nothing, expected a list of turns."),
    (with_field(turns={}), "turns: got a JSON object, expected a list of turns."),
    (with_field(turns=[]), "turns: got an empty list, expected at least one turn."),
    (with_field(turns=["go"]), "turns[0]: got 'go', expected a JSON object."),
    (with_field(final_observation=...), "final_observation: got nothing, expected a string."),
    (with_field(final_observation=None), "final_observation: got null, expected a string."),
    (with_field(success=...), "success: got nothing, expected true or false."),
    (with_field(success=1), "success: got 1, expected true or false."),
    (with_field(score=1.5), "score: got 1.5, expected a number in [0, 1]."),
    (with_field(score=True), "score: got true, expected a number in [0, 1]."),
    (with_field(stop=1), "stop: got 1, expected a string."),
    (with_field(score=math.nan), "score: got nan, expected a finite number."),
    (with_field(note=[{"x": math.inf}]), "note[0].x: got inf, expected a finite number."),
    (with_turn(observation=...), "turns[1].observation: got nothing, expected a string."),
    (with_turn(observation=["s"]), "turns[1].observation: got a list of 1, expected a string."),
    (with_turn(action=...), "turns[1].action: got nothing, expected a string."),
    (with_turn(action=None), "turns[1].action: got null, expected a string."),
    (with_turn(reward="1"), "turns[1].reward: got '1', expected a finite number."),
    (with_turn(reward=None), "turns[1].reward: got null, expected a finite number."),
    (with_turn(reward=True), "turns[1].reward: got true, expected a finite number."),
    (with_turn(reward=math.nan), "turns[1].reward: got nan, expected a finite number."),
    (with_turn(reward=-math.inf), "turns[1].reward: got -inf, expected a finite number."),
    (
        with_turn(reward=10**400),
        "turns[1].reward: got inf, expected a finite number.",
    ),
    (with_turn(penalty=-0.1), "turns[1].penalty: got -0.1, expected a finite number of at least 0."),
    (with_turn(valid=1), "turns[1].valid: got 1, expected true or false."),
    (with_turn(valid=None), "turns[1].valid: got null, expected true or false."),
    (with_turn(nll="low"), "turns[1].nll: got 'low', expected a finite number."),
    (with_turn(nll=math.inf), "turns[1].nll: got inf, expected a finite number."),
    (with_turn(nll=0.1, logprobs=-1), "turns[1].logprobs: got -1, expected a list of numbers."),
    (with_turn(logprobs=[-1, None]), "turns[1].logprobs[1]: got null, expected a finite number."),
    (with_turn(nll=0.1, logprobs=["x"]), "turns[1].logprobs[0]: got 'x', expected a finite number."),
    (with_turn(entropy=[]), "turns[1].entropy: got a list of 0, expected a finite number."),
    (with_turn(state=5), "turns[1].state: got 5, expected a string."),
    (with_turn(observation="\ud800"), "turns[1].observation: got half of a surrogate pair, expected Unicode text."),
    (with_turn(note=[{"x": math.inf}]), "turns[1].note[0].x: got inf, expected a finite number."),
    (with_turn(**{"\ud800\n": 0}), "turns[1].'\\ud800\\n': got half of a surrogate pair, expected Unicode text."),
    (lambda record: [record], "line: got a list of 1, expected a JSON object."),
    (lambda record: "x" * 90, f"line: got '{'x' * 39}…, expected a JSON object."),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_refusals_name_file_line_field_found_and_expected(
    change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "r.jsonl", RECORD, change(RECORD | {"episode": "B"}))
    for read in (read_turns, lambda path: list(read_episodes(path))):
        with pytest.raises(FileFormatError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}:2: {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\n", "line: got an empty line, expected one JSON object."),
        (b"  \n", "line: got an empty line, expected one JSON object."),
        (b'{"task": "t"', "line: got text that is not JSON ("),
        (b"{} {}\n", "line: got text that is not JSON (Extra data, column 4), expected one JSON object."),
        (b'{"task": "\xff"}\n', "line: got bytes that are not UTF-8 (byte 11), expected UTF-8 text."),
        (b"[" * 100_000 + b"\n", "line: got JSON nested too deeply, expected one flat JSON object."),
        (b"\xef\xbb\xbf{}\n", "line: got text that is not JSON ("),
        (b"\x00\x01\n", "line: got text that is not JSON ("),
        (b"NaN\n", "line: got nan, expected a finite number."),
        (b'{"id": [1, ' + b"9" * 5000 + b"]}\n", "id[1]: got inf, expected a finite number."),
    ],
)
def test_what_is_not_json_is_refused(line: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(json.dumps(RECORD).encode() + b"\n" + line)
    with pytest.raises(FileFormatError) as caught:
        read_turns(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


@pytest.mark.parametrize(
    ("records", "line", "message"),
    [
        ([{}, {}], 2, "episode: got 'A' a second time"),
        (
            [{}, {"episode": "B", "parent": {"episode": "Z", "turn": 0}}],
            2,
            "parent.episode: got 'Z', expected the name",
        ),
        (
            [{"episode": "B", "parent": {"episode": "A", "turn": 0}}, {"task": "u"}],
            1,
            "parent.episode: got 'A', an episode of another task",
        ),
        ([{}, {"episode": "B", "parent": {"episode": "A", "turn": 2}}], 2, "parent.turn: got 2, expected 0 to 1"),
        ([{}, {"episode": "B", "parent": {"episode": "A", "turn": -1}}], 2, "parent.turn: got -1, expected"),
        (
            [
                {},
                {"episode": "B", "parent": {"episode": "C", "turn": 0}},
                {"episode": "C", "parent": {"episode": "B", "turn": 0}},
            ],
            2,
            "parent: got 'B' among its own ancestors",
        ),
    ],
)
def test_faults_between_lines_name_the_line(
    records: list[dict[str, Any]], line: int, message: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "r.jsonl", *(RECORD | changes for changes in records))
    for read in (read_turns, lambda path: list(read_episodes(path))):
        with pytest.raises(FileFormatError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}:{line}: {message}")


def test_a_parent_may_follow_its_branch(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", RECORD | {"episode": "B", "parent": {"episode": "A", "turn": 1}}, RECORD)
    assert read_turns(path).depth.tolist() == [1, 2, 0, 1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


TURN_FIELDS = ["observation", "action", "reward", "penalty", "valid", "nll", "logprobs", "entropy", "state"]


@given(field=st.sampled_from([*RECORD, "score", "stop", *TURN_FIELDS]), value=JSON)
def test_any_value_in_any_field_is_read_alike_by_both_readers_or_refused_alike(
    field: str, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    change = with_turn if field in TURN_FIELDS else with_field
    changed = change(**{field: value})(RECORD)
    path = write_lines(tmp_path_factory.getbasetemp() / "any.jsonl", changed)

    def outcome(read: Callable[[Path], Turns]) -> Turns | str:
        try:
            return read(path)
        except FileFormatError as error:
            return str(error)

    fast, careful = outcome(read_turns), outcome(lambda path: Turns.from_episodes(list(read_episodes(path))))
    if isinstance(fast, str) or isinstance(careful, str):
        assert fast == careful
    else:
        assert_equal_turns(fast, careful)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("any.jsonl", "any.jsonl.gz"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(content)
        with contextlib.suppress(FileFormatError):  # any other error, or none to be reported, fails
            assert len(read_turns(path)) >= 0


def test_broken_gzip_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    write_episodes(path, hand_five())
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(FileFormatError, match=r"r\.jsonl\.gz:\d: line: got broken gzip data"):
        read_turns(path)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^Cannot read '.*nope\.jsonl': No such file or directory\.$"):
        read_turns(tmp_path / "nope.jsonl")
    with pytest.raises(InputError, match=r"Is a directory"):
        read_turns(tmp_path)


# Writing.


def test_credit_lines_stand_in_the_order_of_the_file_with_all_digits(tmp_path: Path) -> None:
    turns = Turns.from_episodes([chain('t"1', "Zoë", ["s", "u"]), chain("t2", "%s", ["s"])])
    numbers = np.array([1 / 3, np.nan, -1e-300])
    write_credit(tmp_path / "c.jsonl", turns, Credit(numbers, {"100%": numbers * 2, "step": np.zeros(3)}))
    lines = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == [
        {"task": 't"1', "episode": "Zoë", "turn": 0, "advantage": 1 / 3, "components": {"100%": 2 / 3, "step": 0.0}},
        {"task": 't"1', "episode": "Zoë", "turn": 1, "advantage": None, "components": {"100%": None, "step": 0.0}},
        {"task": "t2", "episode": "%s", "turn": 0, "advantage": -1e-300, "components": {"100%": -2e-300, "step": 0.0}},
    ]


def test_credit_without_components_and_without_turns(tmp_path: Path) -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s"])])
    write_credit(tmp_path / "c.jsonl", turns, Credit(np.array([2.0])))
    assert json.loads((tmp_path / "c.jsonl").read_text(encoding="utf-8"))["components"] == {}
    write_credit(tmp_path / "c.jsonl", Turns.from_episodes([]), Credit(np.zeros(0)))
    assert (tmp_path / "c.jsonl").read_bytes() == b""


def test_equal_content_gives_equal_compressed_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_episodes(tmp_path / name, hand_five())
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).count(b"\n") == 2


def test_a_failed_write_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("old")

    def episodes() -> Any:
        yield from hand_five()
        raise RuntimeError("the environment died")

    with pytest.raises(RuntimeError):
        write_episodes(path, episodes())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.jsonl"]


def test_writing_follows_links_and_keeps_special_files_special(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real" / "r.jsonl")
    write_episodes(tmp_path / "link.jsonl", hand_five())
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len(read_turns(tmp_path / "real" / "r.jsonl")) == 5
    write_episodes(Path(os.devnull), hand_five())
    assert not Path(os.devnull).is_file()


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"^Cannot write '.*c\.jsonl': No such file or directory\.$"),
        open_atomic(tmp_path / "missing" / "c.jsonl"),
    ):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^Cannot write '/dev/full': No space left on device\.$"):
        write_episodes("/dev/full", hand_five())
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(InputError, match=r"^Cannot write '-': No space left on device\.$"):
            write_episodes(STANDARD_OUTPUT, hand_five())
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match=r"^Cannot write standard output: it is closed\.$"):
        write_episodes(STANDARD_OUTPUT, hand_five())


def test_faults_of_whoever_makes_the_episodes_are_not_faults_of_the_file(tmp_path: Path) -> None:
    def episodes() -> Any:
        yield from hand_five()
        raise TimeoutError("the environment hangs")

    with pytest.raises(TimeoutError):
        write_episodes(tmp_path / "r.jsonl", episodes())


@pytest.mark.parametrize("field", ["reward", "penalty", "nll", "entropy"])
def test_numbers_that_are_not_finite_are_never_written(field: str, tmp_path: Path) -> None:
    episode = chain("t", "A", ["s", "u"])
    turn = dataclasses.replace(episode.turns[1], **{field: math.nan})
    with pytest.raises(InputError, match=r"turn 1 of episode 'A': it holds a number that is not finite"):
        write_episodes(tmp_path / "r.jsonl", [dataclasses.replace(episode, turns=(episode.turns[0], turn))])
    assert list(tmp_path.iterdir()) == []


def test_what_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    episode = dataclasses.replace(chain("t", "A", ["s"], parent=Parent("B", 0)), extra={"object": object()})
    with pytest.raises(InputError, match="Episode 'A' cannot be written as JSON"):
        write_episodes(tmp_path / "r.jsonl", [episode])


def test_parent_is_written_for_roots_too(tmp_path: Path) -> None:
    episodes: list[Episode] = [*hand_five(), chain("t", "C", ["o2"], parent=Parent("A", 1))]
    write_episodes(tmp_path / "r.jsonl", episodes)
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["parent"] for line in lines] == [None, None, {"episode": "A", "turn": 1}]
