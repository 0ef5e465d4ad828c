"""The newcomer's path: ``make train``, in a size that takes seconds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("pick", "look", "pick2", "clean", "heat", "cool")
SMOKE = " ".join(
    (
        "--imitation-epochs 1 --control-epochs 1 --updates 1",
        "--tasks-per-update 2 --group-size 2 --horizon 8 --eval-tasks 6",
        *(f"--demonstrations.{family} 2" for family in FAMILIES),
    )
)


@pytest.mark.slow
def test_make_train_prints_success_by_family(tmp_path: Path) -> None:
    if subprocess.run(["make", "--question", ".venv/.ready"], cwd=ROOT, check=False, capture_output=True).returncode:
        pytest.skip(".venv was not made by `make setup`, or is out of date")
    run = tmp_path / "run"
    done = subprocess.run(
        ["make", "train", f"ARGS=--out {run} {SMOKE}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout
    assert all(f" {family} " in table for family in (*FAMILIES, "before", "after", "all"))
    assert f"Run folder: {run}" in table
    assert (run / "metrics.jsonl").is_file()
