"""``stepcredit replay``, ``play`` and ``envs`` as a user meets them."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from stepcredit.cli import main

GAME = "generated-0/small/train/heat/0"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    captured = capsys.readouterr()
    status = caught.value.code
    return (status if isinstance(status, int) else 0 if status is None else 1), captured.out, captured.err


def actions(folder: Path, *commands: str) -> str:
    path = folder / "actions.txt"
    path.write_text("".join(f"{command}\n" for command in commands), encoding="utf-8")
    return str(path)


def test_replay_prints_one_json_line_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = actions(tmp_path, "go to fridge 1", "dance", "help")
    status, out, err = run(capsys, "replay", "household", "--game", GAME, "--actions", file, "--json")
    assert (status, err) == (0, "")
    steps = [json.loads(line) for line in out.splitlines()]
    assert [list(step) for step in steps] == [["command", "feedback", "admissible", "reward", "won"]] * 4
    assert [step["command"] for step in steps] == [None, "go to fridge 1", "dance", "help"]
    assert steps[1]["feedback"] == "You arrive at fridge 1. The fridge 1 is closed."
    assert "help" in steps[0]["admissible"]
    assert steps[2]["feedback"] == "Nothing happens."
    assert [step["reward"] for step in steps] == [0, 0, 0, 0]


def test_replay_of_official_games_equals_their_transcripts(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared_data / "alfworld"
    lines = gzip.decompress((folder / "transcripts.jsonl.gz").read_bytes()).splitlines()
    for line in lines[1:4]:
        transcript = json.loads(line)
        file = actions(tmp_path, *(step["command"] for step in transcript["steps"]))
        games = str(folder / "games.jsonl.gz")
        _, out, _ = run(
            capsys, "replay", "household", "--games", games, "--game", transcript["id"], "--actions", file, "--json"
        )
        first, *steps = (json.loads(line) for line in out.splitlines())
        assert (first["feedback"], first["admissible"]) == (transcript["first"], transcript["admissible"])
        assert steps == transcript["steps"]


def test_replay_reports_the_first_divergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = actions(tmp_path, "look", "go to fridge 1")
    command = ("replay", "household", "--game", GAME, "--actions", file, "--json")
    _, out, _ = run(capsys, *command)
    record = tmp_path / "record.jsonl"
    record.write_text(out, encoding="utf-8")
    assert run(capsys, *command, "--expect", str(record))[0] == 0
    record.write_text(out.replace("arrive at fridge 1", "arrive at fridge 2"), encoding="utf-8")
    status, _, err = run(capsys, *command, "--expect", str(record))
    assert status == 2
    assert "Step 2 ('go to fridge 1') diverges in 'feedback'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("replay", "household", "--game", "train/nothing", "--actions", "{file}"), "expected generated-SEED/ROOM/"),
        (("replay", "household", "--game", GAME, "--actions", "no-such-file"), "Cannot read 'no-such-file'"),
        (("replay", "household", "--game", GAME, "--actions", "{binary}"), "byte 0 is not UTF-8"),
        (("play", "household", "--rom", "small"), "Unknown household option 'rom'. Did you mean 'room'?"),
        (("play", "houshold"), "Did you mean 'household'?"),
        (("play", "household", "--train", "6", "--task", "train/x"), "Unknown task 'train/x'"),
        (("envs", "houshold"), "Did you mean 'household'?"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    places = {"file": actions(tmp_path, "look"), "binary": str(tmp_path / "binary")}
    status, out, err = run(capsys, *(argument.format(**places) for argument in arguments))
    assert (status, out) == (2, "")
    assert message in err
    assert err.startswith("stepcredit: ")


def test_a_person_plays_by_command_and_by_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1\ngo to fridge 1\n99\nquit\n"))
    status, out, _ = run(capsys, "play", "household", "--task", GAME, "--families", "heat", "--train", "6")
    assert status == 0
    assert "Your task is to:" in out
    assert "You arrive at fridge 1." in out
    assert out.count("You arrive at") == 2
    assert "Nothing happens." in out
    assert "Not won after 3 turns." in out


def test_play_ends_with_the_input_and_with_a_win(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "Not won after 0 turns." in run(capsys, "play", "household", "--train", "6")[1]

    from stepcredit.environments.household.expert import plan
    from stepcredit.environments.household.suite import HouseholdSuite

    suite = HouseholdSuite()
    game = suite.make(suite.find(GAME)).game
    way = plan(game, game.start)
    assert way is not None
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(way) + "\n"))
    out = run(capsys, "play", "household", "--task", GAME, "--families", "heat", "--train", "6")[1]
    assert f"Won after {len(way)} turns." in out


def test_envs_lists_splits_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "envs", "household", "--json")
    described = json.loads(out)
    assert status == 0
    assert described["name"] == "household"
    assert described["horizon"] == 50
    assert described["splits"] == {"train": 600, "valid_seen": 120, "valid_unseen": 120}
    assert {option["name"]: option["default"] for option in described["options"]}["room"] == "small"
    names = [one["name"] for one in json.loads(run(capsys, "envs", "--json")[1])]
    assert "household" in names
    assert "valid_unseen 120" in run(capsys, "envs", "household")[1]
