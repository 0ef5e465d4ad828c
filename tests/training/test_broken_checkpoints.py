"""A checkpoint with one file cut short: the resume refuses in one sentence that names what is broken."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stepcredit.cli import main
from stepcredit.training.config import make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import Progress, RunFolder

CHAIN: dict[str, Any] = {
    "environment": "stepcredit.environments.chain:ChainSuite",
    "environment_options": {"length": 2},
    "updates": 1,
    "tasks_per_update": 3,
    "group_size": 4,
    "horizon": 4,
    "eval_splits": [],
}
RECIPES: dict[str, dict[str, Any]] = {
    "branching": CHAIN
    | {"model": "linear", "method": "tsbpo", "objective": "tsbpo", "root": "fitted"}
    | {"branch": "fitted", "branch_budget": 8},
    "critic": CHAIN | {"model": "tiny", "method": "gae", "objective": "ppo"},
}
# What a resume reads of a checkpoint, and the name that its refusal must give.
READ = {
    "branching": ["progress.json", "linear.json", "linear.npz", "allocator.json", "allocator.npz"],
    "critic": ["progress.json", "model.safetensors", "optimizer.safetensors", "critic.safetensors"],
}
FILES = [(name, file) for name, files in READ.items() for file in files]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each recipe."""
    folders = {}
    for name, values in RECIPES.items():
        folders[name] = tmp_path_factory.mktemp(name)
        config = make_config(values)
        with RunFolder(folders[name]) as run:
            run.write_config(config.model_dump(mode="json"))
            train(config, run, Silent())
    return folders


def resumed(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a resume that is refused says."""
    with pytest.raises(SystemExit) as done:
        main(["train", "--resume", str(folder)])
    assert done.value.code == 2
    return next(line for line in capsys.readouterr().err.splitlines() if line.startswith("stepcredit: "))


def copied(run: Path, to: Path) -> Path:
    """The run with its newest checkpoint alone."""
    shutil.copytree(run, to)
    for old in RunFolder(to).checkpoints()[:-1]:
        shutil.rmtree(old)
    return RunFolder(to).checkpoints()[-1]


@pytest.mark.parametrize(("name", "file"), FILES)
def test_every_file_of_a_checkpoint_cut_short_is_refused_by_name(
    runs: dict[str, Path], name: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, share in enumerate((0.0, 0.5, 0.9)):
        folder = tmp_path / str(number)
        broken = copied(runs[name], folder) / file
        broken.write_bytes(broken.read_bytes()[: int(share * broken.stat().st_size)])
        before = (folder / "metrics.jsonl").read_bytes()
        refusal = resumed(folder, capsys)
        assert file in refusal, (share, refusal)
        assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(("name", "file"), [one for one in FILES if one[1] != "critic.safetensors"])
def test_every_file_of_a_checkpoint_that_is_missing_is_refused(
    runs: dict[str, Path], name: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = copied(runs[name], tmp_path / "run")
    (checkpoint / file).unlink()
    assert checkpoint.name in resumed(tmp_path / "run", capsys)


def test_no_file_of_a_checkpoint_was_forgotten(runs: dict[str, Path]) -> None:
    """Beside what a resume reads there is only what makes the folder a model folder for others."""
    for name, run in runs.items():
        files = {file.name for file in RunFolder(run).checkpoints()[-1].iterdir()}
        others = {file for file in files - set(READ[name]) if "token" not in file and "config" not in file}
        assert others <= {"chat_template.jinja"}, name
        assert set(READ[name]) <= files


def test_a_broken_newest_checkpoint_costs_what_came_after_the_one_before(tmp_path: Path) -> None:
    config = make_config({**RECIPES["branching"], "updates": 3, "checkpoint_every": 1})
    with RunFolder(tmp_path) as run:
        run.write_config(config.model_dump(mode="json"))
        train(config, run, Silent())
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    (RunFolder(tmp_path).checkpoints()[-1] / "progress.json").write_text('{"updates": ')
    with RunFolder(tmp_path) as run:
        train(config, run, Silent())
        assert run.latest() == (Progress(updates=3, imitation_done=True), run.checkpoints()[-1])
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_the_models_own_folder_cut_short_is_refused(
    runs: dict[str, Path], file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, share in enumerate((0.0, 0.5, 0.9)):
        folder = tmp_path / str(number)
        copied(runs["critic"], folder)
        broken = folder / "model" / file
        broken.write_bytes(broken.read_bytes()[: int(share * broken.stat().st_size)])
        assert f"{folder.name}/model" in resumed(folder, capsys)
