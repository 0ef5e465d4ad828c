"""What the command line prints from data is shown and never obeyed: no control code of a stranger gets through."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from faults.killing import Unhurt
from faults.readers import EPISODE
from stepcredit.cli import main
from stepcredit.cli.monitor import ConsoleMonitor
from stepcredit.core.text import HIDDEN, harmless
from stepcredit.environments.household.generator import generate

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\u200b\r\x08[red]x[/red][link=file:///etc]y[/link]"
SHOWN = "\\u001b]0;owned"
OWN_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\]8;[^\x1b]*\x1b\\")
"""What rich sends to a terminal: colours, cursor moves, no title, no clipboard."""


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Everything a verb prints."""
    with pytest.raises(SystemExit):
        main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return shown.out + shown.err


def assert_harmless(text: str) -> None:
    assert HIDDEN.search(text) is None, ascii(HIDDEN.search(text))
    assert "owned" in text


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    record = {**EPISODE, "task": EVIL, "episode": EVIL, "final_observation": EVIL, "goal": EVIL, "family": EVIL}
    file = tmp_path / "rollouts.jsonl"
    file.write_text(json.dumps(record) + "\n")
    return file


def test_spelling_keeps_json_equal_and_text_readable() -> None:
    assert json.loads(harmless(json.dumps(EVIL, ensure_ascii=False))) == EVIL
    assert json.loads(harmless('"\U000e0041"')) == "\U000e0041"
    for text in ("plain", "zwei\tWörter\n", "日本語", "é", ""):
        assert harmless(text) is text or harmless(text) == text
    assert harmless("\x1b[31m\u202e") == "\\u001b[31m\\u202e"


def test_credit_on_standard_output(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "assign", rollouts, "--method", "gigpo")
    assert_harmless(text)
    assert json.loads(text.splitlines()[0])["episode"] == EVIL


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({**EPISODE, "stop": 3, "task": EVIL}),
        json.dumps({**EPISODE, "task": EVIL, "episode": EVIL, "parent": {"episode": EVIL, "turn": 0}}),
        json.dumps({**EPISODE, "score": EVIL}),
        json.dumps({EVIL: float("nan")}),
        EVIL,
    ],
)
def test_errors_about_rollouts(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"{EVIL.replace('/', '_')[:100]}.jsonl"
    file.write_text(line + "\n")
    assert_harmless(run(capsys, "assign", file, "--method", "gigpo"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["assign", EVIL, "--method", "gigpo"],
        ["assign", "x.jsonl", "--method", EVIL],
        ["train", f"--{EVIL}", "3"],
        ["train", "--model", EVIL],
        ["train", "--method", EVIL],
        ["evaluate", EVIL],
        ["report", EVIL],
        ["watch", EVIL],
        ["envs", EVIL],
        ["play", EVIL],
        ["convert", EVIL],
        [EVIL],
    ],
    ids=lambda arguments: arguments[0] if arguments[0] != EVIL else "verb",
)
def test_errors_about_arguments(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert HIDDEN.search(run(capsys, *arguments)) is None


def games_of_a_stranger(folder: Path) -> tuple[Path, str]:
    """A household game whose name and sentence are hostile."""
    problem, _ = generate(0, "small", "train", "pick", 0)
    name = f"train/{EVIL.replace('/', '_')}"
    file = folder / "games.jsonl"
    broken = {"id": f"train/{EVIL}", "problem": EVIL, "task": EVIL}
    file.write_text("".join(json.dumps(one) + "\n" for one in ({"id": name, "problem": problem, "task": EVIL}, broken)))
    return file, name


def test_a_game_of_a_stranger_is_replayed_and_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    games, name = games_of_a_stranger(tmp_path)
    (tmp_path / "actions").write_text(f"look\n{EVIL.replace(chr(13), '')}\n")
    replay = ("replay", "household", "--game", name, "--games", games, "--actions", tmp_path / "actions")
    assert_harmless(run(capsys, *replay))
    assert_harmless(run(capsys, *replay, "--json"))
    monkeypatch.setattr("sys.stdin", io.StringIO("look\nquit\n"))
    assert_harmless(run(capsys, "play", "household", "--games", games))


def test_a_run_of_a_stranger_is_watched_and_reported(
    trained: tuple[Path, Unhurt], tmp_path: Path, rollouts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    (folder / "rollouts").mkdir(parents=True)
    source = trained[0] / "run"
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "environment": EVIL, "model": EVIL}))
    lines = [json.loads(line) for line in (source / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "evaluation":
            line["split"] = EVIL
            line["families"] = {EVIL: line["families"]["all"], "all": line["families"]["all"]}
        else:
            line["credit"]["warnings"] = [EVIL]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "rollouts" / "000001.jsonl.gz").write_bytes(__import__("gzip").compress(rollouts.read_bytes()))
    assert_harmless(run(capsys, "watch", folder, "--once"))
    page = tmp_path / "page"
    run(capsys, "report", folder, "--out", page)
    assert HIDDEN.search((page / "report.html").read_text()) is None


@pytest.mark.parametrize("terminal", [False, True])
def test_what_a_run_says_about_a_hostile_environment(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with ConsoleMonitor() as monitor:
        monitor.say(f"Warning: {EVIL}")
        monitor.stage("updates", 2)
        monitor.advance(2, EVIL)
    shown: Any = capsys.readouterr()
    assert_harmless(OWN_STYLES.sub("", shown.err).replace("\r", ""))
    assert SHOWN in shown.err
