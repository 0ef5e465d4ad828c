"""``stepcredit train`` as a user meets it: its table, its refusals, and an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepcredit.cli import main
from stepcredit.cli.train import next_run_folder, parse_overrides, split_arguments
from stepcredit.core.errors import OptionError

SMALL = [
    *("--model", "linear", "--updates", "2", "--tasks-per-update", "2", "--group-size", "2", "--horizon", "5"),
    *("--environment-options.train", "12", "--environment-options.valid-unseen", "6", "--eval-tasks", "6"),
    *("--eval-splits", '["valid_unseen"]'),
]


def run_cli(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_trains_and_prints_the_table_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["train", "--out", str(tmp_path / "run"), "--json", *SMALL]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert [line["moment"] for line in result["evaluations"]] == ["before", "after"]
    assert "valid_unseen: success" in shown.err


def test_evaluates_the_run_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert run_cli(["train", "--out", run, "--json", *SMALL]) == 0
    trained = json.loads(capsys.readouterr().out)["evaluations"][-1]["families"]
    arguments = ["evaluate", run, "--split", "valid_unseen", "--tasks", "6", "--json"]
    assert run_cli([*arguments, "--out", str(tmp_path / "evaluation")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["families"].keys() == trained.keys()
    assert result["families"]["all"]["episodes"] == 6


def test_without_torch_a_neural_model_is_refused_before_there_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stepcredit.training.build.find_spec", lambda package: None)
    assert run_cli(["train", "--out", str(tmp_path / "run")]) == 2
    expected = "The model 'tiny' needs torch, which is not installed: pip install 'stepcredit[train]'"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--udpates", "3"], "Unknown recipe key 'udpates'. Did you mean 'updates'?"),
        (["train", "--method", "gigop"], "Unknown method 'gigop'. Did you mean 'gigpo'?"),
        (["train", "--method-options.gama", "1"], "Did you mean 'gamma'?"),
        (["train", "--environment", "housold"], "Did you mean 'household'?"),
        (["train", "--horizon", "0"], "greater than or equal to 1"),
        (["train", "--horizon"], "--horizon has no value"),
        (["train", "a.toml", "b.toml"], "Got 'b.toml' beside the recipe 'a.toml'"),
        (["train", "missing.toml"], "Cannot read the recipe 'missing.toml'"),
        (["train", "--resume", "nowhere"], "No run folder 'nowhere' to resume."),
        (["train", "--model", "./no-such-model"], "no-such-model"),
        (["train", "--demonstrations.pikc", "3"], "3 demonstrations of 'pikc' wanted"),
        (["evaluate", "./no-such-run"], "no-such-run"),
        (["trian"], 'Unknown command "trian". Did you mean "train"?'),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_costs_one_sentence_and_status_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_group_size_one_is_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["train", "--out", str(tmp_path / "run"), *SMALL, "--group-size", "1"]) == 0
    assert "group_size 1" in capsys.readouterr().err


def test_interrupted_in_the_middle_of_an_update_keeps_the_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "stepcredit.cli", "train", "--out", str(run), *SMALL, "--updates", "500"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A test run started in the background ignores Ctrl-C, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not (run / "rollouts" / "000003.jsonl.gz").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted; what was finished is kept" in errors
    assert "Traceback" not in errors
    assert not list(run.rglob("*.partial"))
    kept = sorted(run.glob("checkpoints/*"))[-1]
    assert json.loads((kept / "progress.json").read_text())["updates"] >= 2


def test_overrides_read_as_toml_and_dots_make_tables() -> None:
    values = parse_overrides({"updates": "3", "model": "linear", "method-options.lam": "0.8", "eval-splits": '["a"]'})
    assert values == {"updates": 3, "model": "linear", "method_options": {"lam": 0.8}, "eval_splits": ["a"]}


def test_recipe_and_keys_are_told_apart() -> None:
    assert split_arguments(["a.toml", "--updates", "-3", "--model=x=y"]) == (
        Path("a.toml"),
        {"updates": "-3", "model": "x=y"},
    )


def test_a_table_and_its_keys_exclude_each_other() -> None:
    with pytest.raises(OptionError, match="exclude each other"):
        parse_overrides({"method-options": "3", "method-options.lam": "0.8"})


def test_run_folders_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "tiny-001").mkdir()
    assert next_run_folder(tmp_path, Path("tiny.toml")).name == "tiny-002"
    assert next_run_folder(tmp_path / "absent", None).name == "train-001"
