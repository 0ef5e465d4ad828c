"""``stepcredit assign`` and ``stepcredit methods`` as a person or a program meets them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference.batches import DEGENERATE, batch, chain, hand_five
from stepcredit.cli import main
from stepcredit.core.files import write_episodes
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign


def run(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, bytes, str]:
    """Exit status, standard output, standard error."""
    status = 0
    try:
        main(list(arguments))
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    out, err = capfdbinary.readouterr()
    return status, out, err.decode()


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    write_episodes(path, hand_five())
    return path


def credit_lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_credit_goes_to_standard_output_and_the_summary_beside_it(
    rollouts: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status, out, err = run(capfdbinary, "assign", str(rollouts), "--method", "gigpo", "--set", "normalize=mean")
    assert status == 0
    lines = credit_lines(out)
    assert [(line["task"], line["episode"], line["turn"]) for line in lines] == [
        ("t", "A", 0),
        ("t", "A", 1),
        ("t", "A", 2),
        ("t", "B", 0),
        ("t", "B", 1),
    ]
    np.testing.assert_allclose([line["advantage"] for line in lines], [8.5325, 4.02, 9.07, -10.4925, -11.13])
    assert lines[0]["components"] == {"episode": pytest.approx(4.02), "step": pytest.approx(4.5125)}
    assert err.splitlines() == [
        "gigpo: 5 of 5 turns scored, 2 episodes, 1 task groups",
        "groups 3, singletons 1, turns in groups of two or more 80.0%, all equal 0",
        "mean |advantage| 8.649, |episode| 4.824, |step| 3.825",
        "group sizes: 1: 1, 2: 2",
        "sign conflicts: 0",
    ]


@pytest.mark.parametrize("name", [name for name in METHODS if not {"values", "hindsight"} & set(METHODS[name].needs)])
def test_a_file_gives_the_numbers_of_the_library(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    episodes = batch(11)
    path, out = tmp_path / "r.jsonl.gz", tmp_path / "c.jsonl.gz"
    write_episodes(path, episodes)
    assert run(capfdbinary, "assign", str(path), "--method", name, "--out", str(out))[0] == 0
    lines = credit_lines(gzip.decompress(out.read_bytes()))
    expected = assign(Turns.from_episodes(episodes), name)
    found = [np.nan if line["advantage"] is None else line["advantage"] for line in lines]
    np.testing.assert_array_equal(found, expected.advantage)
    for part, values in expected.components.items():
        np.testing.assert_array_equal([line["components"][part] for line in lines], values)


def test_a_preset_is_a_start_that_set_overrides(rollouts: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    command = ("assign", str(rollouts), "--method", "gigpo", "--preset", "webshop", "--out", "-")
    _, preset, _ = run(capfdbinary, *command)
    _, mean, _ = run(capfdbinary, "assign", str(rollouts), "--method", "gigpo", "--set", "normalize=mean")
    _, changed, _ = run(capfdbinary, *command, "--set", "normalize=mean_std", "--set", "step_weight=0")
    _, plain, _ = run(capfdbinary, "assign", str(rollouts), "--method", "grpo")
    assert preset == mean
    assert [line["advantage"] for line in credit_lines(changed)] == [line["advantage"] for line in credit_lines(plain)]


def test_summary_as_json(rollouts: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    _, _, err = run(capfdbinary, "assign", str(rollouts), "--method", "gaca", "--set", "alpha=0", "--json")
    summary = json.loads(err)
    assert (summary["method"], summary["options"], summary["turns"]) == ("gaca", {"alpha": 0.0}, 5)
    assert summary["diagnostics"]["weight"]["mean"] == 0.5


def test_lone_episodes_are_warned_about(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_episodes(tmp_path / "r.jsonl", DEGENERATE["one episode a task"])
    _, _, err = run(capfdbinary, "assign", str(tmp_path / "r.jsonl"), "--method", "grpo")
    assert "warning: 3 of 3 task groups hold a single episode" in err


def test_an_empty_file_gives_an_empty_credit_file(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "r.jsonl").write_bytes(b"")
    status, out, err = run(capfdbinary, "assign", str(tmp_path / "r.jsonl"), "--method", "gigpo")
    assert (status, out) == (0, b"")
    assert err.startswith("gigpo: 0 of 0 turns scored")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "gigpoo"), "Unknown method 'gigpoo'. Did you mean 'gigpo'?"),
        (("--method", "gigpo", "--set", "gama=1"), "Unknown option of method 'gigpo': 'gama'. Did you mean 'gamma'?"),
        (("--method", "gigpo", "--set", "gamma=2"), "Option 'gamma': got 2.0, expected a number in [0, 1]."),
        (("--method", "gigpo", "--set", "gamma"), "--set: got 'gamma', expected OPTION=VALUE."),
        (("--method", "gigpo", "--set", "gamma=1", "--set", "gamma=0"), "--set: got option 'gamma' twice"),
        (("--method", "gigpo", "--preset", "webshp"), "Unknown preset of method 'gigpo': 'webshp'. Did you mean 'web"),
        (("--method", "gae"), "Method 'gae' needs 'values'"),
    ],
)
def test_mistakes_in_options_are_one_sentence_and_write_nothing(
    arguments: tuple[str, ...], message: str, rollouts: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = rollouts.with_name("credit.jsonl")
    status, printed, err = run(capfdbinary, "assign", str(rollouts), *arguments, "--out", str(out))
    assert (status, printed) == (2, b"")
    assert err.startswith(f"stepcredit: {message}")
    assert err.count("\n") == 1
    assert not out.exists()


def test_a_fault_in_the_last_line_writes_nothing(rollouts: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with rollouts.open("ab") as file:
        file.write(b'{"task": "t"}\n')
    out = rollouts.with_name("credit.jsonl")
    out.write_text("older")
    status, printed, err = run(capfdbinary, "assign", str(rollouts), "--method", "grpo", "--out", str(out))
    assert (status, printed, out.read_text()) == (2, b"", "older")
    assert err == f"stepcredit: {rollouts}:3: turns: got nothing, expected a list of turns.\n"
    status, printed, _ = run(capfdbinary, "assign", str(rollouts), "--method", "grpo")
    assert (status, printed) == (2, b"")


def test_numbers_too_large_are_one_sentence(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    big = [chain("t", f"{i}", ["s", "s"], rewards=[v, v]) for i, v in enumerate([1.7e308, -1.7e308])]
    write_episodes(tmp_path / "r.jsonl", big)
    status, out, err = run(capfdbinary, "assign", str(tmp_path / "r.jsonl"), "--method", "grpo")
    assert (status, out) == (2, b"")
    assert err.startswith("stepcredit: Method 'grpo' gives advantage nan at turn 0 of episode '0'")


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    write_episodes(tmp_path / "r.jsonl", DEGENERATE["five thousand turns"])
    code = "from stepcredit.cli import main; main()"
    command = [sys.executable, "-c", code, "assign", str(tmp_path / "r.jsonl"), "--method", "grpo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read().decode()
    assert process.returncode == 0
    assert "Traceback" not in err
    assert err.startswith("grpo: 10,000 of 10,000 turns scored")


def test_methods_lists_every_method(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status, out, _ = run(capfdbinary, "methods")
    assert status == 0
    assert all(name in out.decode() for name in METHODS)
    _, out, _ = run(capfdbinary, "methods", "--json")
    assert [record["name"] for record in json.loads(out)] == list(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_one_method_in_full(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    _, out, _ = run(capfdbinary, "methods", name, "--json")
    record = json.loads(out)
    assert record["source"] == METHODS[name].source
    assert [option["name"] for option in record["options"]] == list(METHODS[name].options)
    assert record["presets"] == {key: dict(value) for key, value in METHODS[name].presets.items()}
    status, out, _ = run(capfdbinary, "methods", name)
    assert status == 0
    assert all(option in out.decode() for option in METHODS[name].options)


def test_an_unknown_method_is_one_sentence(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(capfdbinary, "methods", "grop") == (2, b"", "stepcredit: Unknown method 'grop'. Did you mean 'grpo'?\n")
