"""Failed episodes: kept as data, counted, not learnt from; too many stop the run with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepcredit.core.errors import EnvironmentFaultError
from stepcredit.core.files import read_episodes
from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.training.config import make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import RunFolder

SMALL: dict[str, Any] = {
    "model": "linear",
    "environment_options": {"train": 24, "valid_seen": 6, "valid_unseen": 6},
    "updates": 2,
    "tasks_per_update": 4,
    "group_size": 2,
    "horizon": 5,
    "eval_every": 0,
}


def break_tasks(monkeypatch: pytest.MonkeyPatch, families: Sequence[str]) -> None:
    """Environments of these families raise at their third step."""
    step = HouseholdEnvironment.step

    def faulty(self: HouseholdEnvironment, action: str) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        if self.task.family in families and self.steps >= 3:
            raise RuntimeError("the pipe burst")
        return step(self, action)

    monkeypatch.setattr(HouseholdEnvironment, "__slots__", (), raising=False)
    monkeypatch.setattr(HouseholdEnvironment, "step", faulty)


def test_failed_episodes_are_recorded_counted_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_tasks(monkeypatch, ["clean"])
    with RunFolder(tmp_path) as run:
        train(make_config(SMALL), run, Silent())
        lines = [line for line in run.metrics() if line["kind"] == "update"]
    assert [line["update"] for line in lines] == [1, 2]
    for line in lines:
        episodes = list(read_episodes(tmp_path / "rollouts" / f"{line['update']:06d}.jsonl.gz"))
        failed = [episode for episode in episodes if episode.stop == "error"]
        assert line["failures"] == len(failed)
        assert all("the pipe burst" in episode.extra["error"] for episode in failed)
        learnt = sum(len(episode.turns) for episode in episodes if episode.stop != "error")
        assert line["policy"]["turns"] <= learnt
    assert sum(line["failures"] for line in lines) > 0


def test_too_many_failures_stop_the_run_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_tasks(monkeypatch, ["pick", "look", "clean", "heat", "cool", "pick2"])
    with RunFolder(tmp_path) as run, pytest.raises(EnvironmentFaultError, match="the pipe burst"):
        train(make_config(SMALL), run, Silent())
