"""The main path: same seed same bytes, exact resume, evaluation before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepcredit.environments.protocol import Task
from stepcredit.training.config import TrainConfig, make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import RunFolder
from stepcredit.training.tasks import choose_tasks, spread_over_families

SMALL: dict[str, Any] = {
    "environment_options": {"train": 24, "valid_seen": 12, "valid_unseen": 12},
    "updates": 4,
    "tasks_per_update": 3,
    "group_size": 2,
    "horizon": 6,
    "eval_splits": ["valid_unseen"],
    "eval_tasks": 6,
    "eval_every": 2,
}
TINY: dict[str, Any] = {
    **SMALL,
    "model": "tiny",
    "updates": 3,
    "demonstrations": {"pick": 3, "look": 1},
    "imitation_epochs": 2,
    "imitation_weight": 0.1,
    "control_epochs": 1,
}
LINEAR: dict[str, Any] = {**SMALL, "model": "linear"}
BRANCHING: dict[str, Any] = {
    **LINEAR,
    "method": "tsbpo",
    "objective": "tsbpo",
    "root": "fitted",
    "branch": "fitted",
    "branch_budget": 8,
}
CRITIC: dict[str, Any] = {
    "environment": "stepcredit.environments.chain:ChainSuite",
    "environment_options": {"length": 2},
    "model": "tiny",
    "method": "gae",
    "objective": "ppo",
    "updates": 3,
    "tasks_per_update": 3,
    "group_size": 8,
    "horizon": 6,
    "eval_splits": [],
}


class KilledError(Exception):
    """Stands for the end of the process."""


class KilledAt(Silent):
    """Ends the run when a stage has finished so many steps."""

    def __init__(self, stage: str, done: int) -> None:
        self.present = ""
        self.at = (stage, done)

    def stage(self, name: str, total: int) -> None:
        self.present = name

    def advance(self, done: int, note: str) -> None:
        if (self.present, done) == self.at:
            raise KilledError


def run_once(config: TrainConfig, folder: Path, monitor: Silent | None = None) -> None:
    with RunFolder(folder) as run:
        if not run.config_file.exists():
            run.write_config(config.model_dump(mode="json"))
        train(config, run, monitor or Silent())


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file that must be equal, by relative path; timings never are."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in ("timing.jsonl", "lock")
    }


@pytest.mark.parametrize(
    ("values", "stage", "done"),
    [
        (LINEAR, "updates", 2),
        (BRANCHING, "updates", 2),
        (TINY, "imitation", 1),
        (TINY, "updates", 1),
        (TINY, "updates", 3),
        (TINY, "control", 1),
        (CRITIC, "updates", 1),
    ],
    ids=[
        "linear-update",
        "branching-update",
        "tiny-imitation",
        "tiny-update",
        "tiny-last-update",
        "tiny-control",
        "critic-update",
    ],
)
def test_resumed_run_is_bit_equal(tmp_path: Path, values: dict[str, Any], stage: str, done: int) -> None:
    config = make_config(values)
    run_once(config, tmp_path / "whole")
    with pytest.raises(KilledError):
        run_once(config, tmp_path / "resumed", KilledAt(stage, done))
    run_once(config, tmp_path / "resumed")
    whole, resumed = files_of(tmp_path / "whole"), files_of(tmp_path / "resumed")
    assert whole.keys() == resumed.keys()
    assert [name for name in whole if whole[name] != resumed[name]] == []


def test_finished_run_resumes_to_nothing(tmp_path: Path) -> None:
    config = make_config(LINEAR)
    run_once(config, tmp_path)
    before = files_of(tmp_path)
    run_once(config, tmp_path)
    assert files_of(tmp_path) == before


def test_each_update_and_evaluation_is_logged_once(tmp_path: Path) -> None:
    run_once(make_config(LINEAR), tmp_path)
    lines = RunFolder(tmp_path).metrics()
    assert [line["update"] for line in lines if line["kind"] == "update"] == [1, 2, 3, 4]
    assert [line["moment"] for line in lines if line["kind"] == "evaluation"] == ["before", "update-2", "after"]
    update = next(line for line in lines if line["kind"] == "update")
    assert update["episodes"] == 6
    assert update["policy"]["skipped_steps"] == 0


def test_a_critic_is_trained_and_its_values_give_the_credit(tmp_path: Path) -> None:
    run_once(make_config(CRITIC), tmp_path)
    first, *_, last = [line for line in RunFolder(tmp_path).metrics() if line["kind"] == "update"]
    assert 0 < first["success"] < 1
    assert first["policy"]["value_loss"] > 0
    assert last["credit"]["mean_abs"]["value"] > 0


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    run_once(make_config(LINEAR), tmp_path / "a")
    run_once(make_config({**LINEAR, "seed": 1}), tmp_path / "b")
    name = "rollouts/000001.jsonl.gz"
    assert files_of(tmp_path / "a")[name] != files_of(tmp_path / "b")[name]


def tasks_of(families: dict[str, int]) -> dict[str, list[Task]]:
    return {name: [Task(f"{name}/{i}", name, "") for i in range(count)] for name, count in families.items()}


def test_families_take_turns_and_every_task_comes_before_any_repeats() -> None:
    groups = tasks_of({"a": 4, "b": 2})
    drawn = [task for update in range(4) for task in choose_tasks(groups, 2, update=update, seed=5)]
    assert [task.family for task in drawn] == ["a", "b"] * 4
    assert {task.id for task in drawn if task.family == "a"} == {"a/0", "a/1", "a/2", "a/3"}
    assert [{task.id for task in drawn if task.family == "b"}] == [{"b/0", "b/1"}]
    for half in (drawn[1:4:2], drawn[5:8:2]):
        assert len({task.id for task in half}) == 2


def test_spread_takes_families_in_turn() -> None:
    tasks = [task for group in tasks_of({"a": 3, "b": 1}).values() for task in group]
    assert [task.id for task in spread_over_families(tasks, 3)] == ["a/0", "b/0", "a/1"]
