"""Faults that users reported of other training loops, each as a case of its kind (shared list, parts A and B)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepcredit.core.files import read_episodes
from stepcredit.training.config import make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import RunFolder

SMALL: dict[str, Any] = {
    "model": "linear",
    "environment_options": {"train": 24, "valid_seen": 6, "valid_unseen": 6},
    "tasks_per_update": 6,
    "group_size": 3,
    "eval_every": 0,
}


def updates_of(folder: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    with RunFolder(folder) as run:
        train(make_config(values), run, Silent())
        return [line for line in run.metrics() if line["kind"] == "update"]


def test_updates_in_which_every_group_fails_go_on_and_say_so(tmp_path: Path) -> None:
    """B18: early in training all groups may be equal; nothing is resampled until a limit aborts the run."""
    lines = updates_of(tmp_path, {**SMALL, "horizon": 1, "updates": 3})
    assert [line["success"] for line in lines] == [0.0, 0.0, 0.0]
    assert [line["update"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["credit"]["mean_abs"]["advantage"] == 0.0
        assert line["credit"]["groups"]["all_equal"] == line["credit"]["groups"]["count"]


def test_success_is_a_mean_over_episodes_not_over_their_rows(tmp_path: Path) -> None:
    """A6: long episodes have more rows, and failures are long."""
    seen = []
    for line in updates_of(tmp_path, {**SMALL, "horizon": 25, "updates": 6, "seed": 1}):
        episodes = list(read_episodes(tmp_path / "rollouts" / f"{line['update']:06d}.jsonl.gz"))
        assert line["success"] == pytest.approx(sum(episode.success for episode in episodes) / len(episodes))
        rows = sum(len(episode.turns) for episode in episodes)
        seen.append(sum(episode.success * len(episode.turns) for episode in episodes) / rows != line["success"])
    assert any(seen)  # at least one update in which a mean over rows would say something else
