"""A disk that is full, read-only or slow: one clear sentence, the last good checkpoint intact, and on with --resume."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

from faults.killing import SMALL, Unhurt, check_whole, files_of, train_scenario
from faults.nursery import ROOT, Nursery
from stepcredit.training.run_folder import Progress, RunFolder

TRAIN = train_scenario("train", ())


def one_sentence(error: str) -> str:
    """The last line of standard error, which must be ours."""
    last = error.strip().split("\n")[-1]
    assert last.startswith("stepcredit: "), error
    assert "Traceback" not in error
    return last


@pytest.mark.parametrize("refusal", ["ENOSPC", "EDQUOT", "EROFS"])
def test_a_disk_that_refuses_from_some_moment_on_stops_the_run_with_a_sentence(
    refusal: str, nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path
) -> None:
    unhurt, rng = trained[1], Random(refusal)
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        moment = rng.randint(1, unhurt.ended.changes)
        ended = nursery.run(TRAIN.start(folder), watched=folder, at_change=moment, refusal=refusal)
        message = one_sentence(ended.err) if ended.status else ""
        assert ended.status in (0, 2), (moment, ended)  # late refusals touch only the report, which ends no run
        assert ended.status == 0 or os.strerror(28 if refusal == "ENOSPC" else 122 if refusal == "EDQUOT" else 30) in (
            message
        ), (moment, message)
        check_whole(folder)
        assert nursery.run(TRAIN.go_on(folder), watched=folder).status == 0
        assert files_of(folder) == unhurt.files, moment


def test_a_write_that_fails_half_way_leaves_the_checkpoint_before_it(
    nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path
) -> None:
    weights = max(len(content) for name, content in trained[1].files.items() if name.endswith(".npz"))
    ended = nursery.run(TRAIN.start(tmp_path), watched=tmp_path, file_size=weights // 2)
    assert ended.status == 2
    assert "File too large; earlier checkpoints are intact" in one_sentence(ended.err)
    check_whole(tmp_path)
    assert nursery.run(TRAIN.go_on(tmp_path), watched=tmp_path).status == 0
    assert files_of(tmp_path) == trained[1].files


def test_a_credit_file_that_does_not_fit_leaves_the_older_one(
    nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path
) -> None:
    out = tmp_path / "credit.jsonl"
    out.write_text("older\n")
    rollouts = trained[0] / "run" / "rollouts" / "000001.jsonl.gz"
    ended = nursery.run(["assign", rollouts, "--method", "grpo", "--out", out], watched=tmp_path, file_size=1000)
    assert ended.status == 2
    assert "File too large" in one_sentence(ended.err)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"credit.jsonl": "older\n"}


@pytest.mark.parametrize("verb", [["methods"], ["methods", "--json"]], ids=" ".join)
def test_standard_output_that_is_full_is_one_sentence(verb: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stepcredit.cli", *verb], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "stepcredit: [Errno 28] No space left on device\n")


def test_a_small_file_system_fills_up_and_is_enlarged(trained: tuple[Path, Unhurt], tmp_path: Path) -> None:
    """The real thing: a memory file system of 15 MB, in which two checkpoints of the linear policy fit and no third."""
    disk = tmp_path / "disk"
    disk.mkdir()
    python = f"{sys.executable} -m stepcredit.cli train"
    script = f"""
        set -e
        mount -t tmpfs -o size=15m none {disk}
        {python} {" ".join(f"'{word}'" for word in SMALL)} --out {disk}/run && exit 9 || test $? = 2
        mount -o remount,size=99m {disk}
        {python} --resume {disk}/run
        cp -r {disk}/run {tmp_path}/run
    """
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("no right to mount a file system")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    found = {name: content for name, content in files_of(tmp_path).items() if name.startswith("run/")}
    assert found == trained[1].files


def test_while_a_slow_disk_writes_a_checkpoint_readers_see_the_one_before(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save(Progress(updates=1), lambda folder: (folder / "policy").write_text("first") and None)
    half, go_on = threading.Event(), threading.Event()

    def slowly(folder: Path) -> None:
        (folder / "policy").write_text("sec")
        half.set()
        assert go_on.wait(60)
        (folder / "policy").write_text("second")

    writer = threading.Thread(target=run.save, args=(Progress(updates=2), slowly))
    writer.start()
    assert half.wait(60)
    seen = run.latest()
    assert seen is not None
    assert (seen[0].updates, (seen[1] / "policy").read_text()) == (1, "first")
    go_on.set()
    writer.join()
    seen = run.latest()
    assert seen is not None
    assert (seen[0].updates, (seen[1] / "policy").read_text()) == (2, "second")


def test_a_slow_disk_changes_nothing(
    nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait for the disk takes its time, in this process; the files are those of a fast one."""
    from stepcredit.cli import main

    synced: list[float] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(time.sleep(0.02) or time.monotonic()))
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in TRAIN.start(tmp_path)])
    assert ended.value.code in (0, None)
    assert len(synced) > 20
    assert files_of(tmp_path) == trained[1].files
