"""Two at once: a second training in a folder is refused, locks go with their holder, one file takes one result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from faults.killing import SMALL, Unhurt, files_of, train_scenario
from faults.nursery import Nursery
from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.files import read_episodes, write_episodes
from stepcredit.training.run_folder import RunFolder


def start(arguments: list[str | Path]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stepcredit.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_second_training_in_a_folder_is_refused_and_disturbs_nothing(
    nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path
) -> None:
    scenario = train_scenario("train", ())
    with RunFolder(tmp_path / "run") as run:
        (tmp_path / "run" / "being-written.partial").write_text("half")
        ended = nursery.run(scenario.start(tmp_path), watched=tmp_path)
        assert ended.status == 2
        assert "is in use by another training; choose another --out." in ended.err
        assert [path.name for path in sorted(run.path.iterdir())] == ["being-written.partial", "lock"]
    assert nursery.run(scenario.start(tmp_path), watched=tmp_path).status == 0
    assert files_of(tmp_path) == trained[1].files
    ended = nursery.run(scenario.start(tmp_path), watched=tmp_path)
    assert ended.status == 2
    assert "already holds a run; continue it with --resume, or choose another --out." in ended.err


def test_the_lock_of_a_training_goes_with_its_process(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = start(["train", *SMALL, "--updates", "500", "--out", run])
    deadline = time.monotonic() + 240
    while not (run / "rollouts" / "000001.jsonl.gz").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    second = start(["train", "--resume", run])
    _, said = second.communicate(timeout=240)
    assert (second.returncode, "is in use by another training" in said) == (2, True), said
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with RunFolder(run) as free:
        assert free.read_config()["updates"] == 500


def test_several_assigns_to_one_file_leave_one_whole_result(
    nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path
) -> None:
    rollouts = trained[0] / "run" / "rollouts" / "000001.jsonl.gz"
    alone = tmp_path / "alone.jsonl"
    assert nursery.run(["assign", rollouts, "--method", "gigpo", "--out", alone], watched=tmp_path).status == 0
    together = tmp_path / "together.jsonl"
    started = [start(["assign", rollouts, "--method", "gigpo", "--out", together]) for _ in range(3)]
    for process in started:
        _, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
    assert together.read_bytes() == alone.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.jsonl", "together.jsonl"]


def test_threads_that_write_one_file_leave_one_of_their_results(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl.gz"
    gate = threading.Barrier(6)

    def write(number: int) -> None:
        gate.wait()
        for _ in range(10):
            write_episodes(file, (Episode("t", f"{number}-{k}", (Turn("o", "a"),), "", True) for k in range(50)))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    names = [episode.episode for episode in read_episodes(file)]
    assert names == [f"{names[0].partition('-')[0]}-{k}" for k in range(50)]
    assert [path.name for path in tmp_path.iterdir()] == ["rollouts.jsonl.gz"]
