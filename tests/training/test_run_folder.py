"""The run folder keeps what was finished and never shows what was not."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stepcredit.core.errors import CheckpointError
from stepcredit.training.run_folder import KEEP, Progress, RunFolder


def save_marker(text: str):  # type: ignore[no-untyped-def]
    return lambda folder: (folder / "policy").write_text(text)


def test_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for updates in range(1, 5):
        run.save(Progress(3, True, updates), save_marker(str(updates)))
    found = run.latest()
    assert found is not None
    progress, folder = found
    assert progress == Progress(3, True, 4)
    assert (folder / "policy").read_text() == "4"
    assert len(run.checkpoints()) == KEEP


def test_half_written_checkpoint_is_never_read(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save(Progress(updates=1), save_marker("good"))
    (tmp_path / "checkpoints" / "000002.partial").mkdir()
    found = run.latest()
    assert found is not None
    assert found[0].updates == 1


def test_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save(Progress(updates=1), save_marker("good"))

    def refuse(folder: Path) -> None:
        (folder / "policy").write_text("hal")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left on device; earlier checkpoints are intact"):
        run.save(Progress(updates=2), refuse)
    found = run.latest()
    assert found is not None
    assert (found[1] / "policy").read_text() == "good"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000001"]


def test_metrics_newer_than_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for step in (1, 2, 3):
        run.log({"step": step, "kind": "update"})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ki')  # a kill in the middle of a line
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    run.forget_after(2)
    run.log({"step": 3, "kind": "update"})
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3


def test_folder_in_use_is_refused_and_free_afterwards(tmp_path: Path) -> None:
    with RunFolder(tmp_path), pytest.raises(CheckpointError, match="in use by another training"):
        RunFolder(tmp_path).__enter__()
    with RunFolder(tmp_path) as run:
        assert run.latest() is None


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_config({"seed": 1})
    with pytest.raises(CheckpointError, match="already holds a run"):
        run.write_config({"seed": 2})
    assert run.read_config() == {"seed": 1}


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no run"):
        RunFolder(tmp_path).read_config()
