"""Rounds that branch: what is collected, what the allocator learns, what a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import CheckpointError, OptionError
from stepcredit.core.files import read_episodes
from stepcredit.core.turns import Turns
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import Environment, Info
from stepcredit.rollouts.branch import Branched, BranchGroup
from stepcredit.rollouts.types import Rollout
from stepcredit.training.build import build_policy
from stepcredit.training.config import make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.outcomes import outcome_metrics
from stepcredit.training.rounds import load_allocator, make_allocator, play_round, save_allocator
from stepcredit.training.run_folder import RunFolder

BRANCHING: dict[str, Any] = {
    "model": "linear",
    "environment_options": {"train": 36, "valid_seen": 6, "valid_unseen": 6},
    "method": "tsbpo",
    "objective": "tsbpo",
    "root": "fitted",
    "branch": "fitted",
    "branch_budget": 12,
    "tasks_per_update": 3,
    "group_size": 3,
    "horizon": 8,
    "updates": 3,
    "eval_every": 0,
}


@pytest.mark.parametrize("branch", ["fitted", "random", "none"])
def test_budgets_are_spent_and_branches_keep_the_deadline(tmp_path: Path, branch: str) -> None:
    config = make_config({**BRANCHING, "branch": branch})
    suite = make_suite("household", **config.environment_options)
    played = play_round(config, suite, build_policy(config, suite, tmp_path), make_allocator(config), 0)
    episodes = [rollout.episode for rollout in played.rollouts]
    assert sum(episode.parent is None for episode in episodes) == 9
    assert sum(episode.parent is not None for episode in episodes) == (0 if branch == "none" else 12)
    turns = Turns.from_episodes(episodes)
    assert int(turns.depth.max()) < config.horizon
    assert played.allocation["round_outcomes"]["unreplayable"] == 0


def test_a_branch_starts_in_the_state_it_left_from(tmp_path: Path) -> None:
    config = make_config(BRANCHING)
    suite = make_suite("household", **config.environment_options)
    played = play_round(config, suite, build_policy(config, suite, tmp_path), make_allocator(config), 0)
    by_name = {rollout.episode.episode: rollout.episode for rollout in played.rollouts}
    branches = [episode for episode in by_name.values() if episode.parent is not None]
    for episode in branches:
        assert episode.parent is not None
        left = by_name[episode.parent.episode].turns[episode.parent.turn]
        assert episode.turns[0].observation == left.observation
    assert len(branches) == 12


def test_training_writes_trees_that_every_tool_reads(tmp_path: Path) -> None:
    config = make_config(BRANCHING)
    with RunFolder(tmp_path) as run:
        run.write_config(config.model_dump(mode="json"))
        train(config, run, Silent())
        line = run.metrics()[-1]
    episodes = list(read_episodes(tmp_path / "rollouts" / "000003.jsonl.gz"))
    assert line["branches"] == sum(episode.parent is not None for episode in episodes) > 0
    assert line["allocation"]["round"] == 3


def test_allocator_survives_a_checkpoint_bit_by_bit(tmp_path: Path) -> None:
    config = make_config(BRANCHING)
    suite = make_suite("household", **config.environment_options)
    policy = build_policy(config, suite, tmp_path)
    going_on = make_allocator(config)
    play_round(config, suite, policy, going_on, 0)
    save_allocator(going_on, tmp_path)
    restored = make_allocator(config)
    load_allocator(restored, tmp_path)
    a = play_round(config, suite, policy, going_on, 1)
    b = play_round(config, suite, policy, restored, 1)
    assert [rollout.episode for rollout in a.rollouts] == [rollout.episode for rollout in b.rollouts]
    assert a.allocation == b.allocation


def test_a_broken_allocator_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "allocator.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"allocator\.json' is not JSON"):
        load_allocator(make_allocator(make_config(BRANCHING)), tmp_path)


def test_branching_without_an_allocator_is_refused() -> None:
    with pytest.raises(OptionError, match="needs an allocator; set root to 'fitted'"):
        make_config({**BRANCHING, "root": "families"})


def test_unknown_allocation_option_is_named() -> None:
    with pytest.raises(OptionError, match="Did you mean 'exploration'"):
        make_allocator(make_config({**BRANCHING, "allocation_options": {"exploraton": 0.1}}))


def rollout(name: str, success: bool, *steps: str, parent: Parent | None = None, stop: str = "lost") -> Rollout:
    """Steps read "observation action"; the final observation is "end"."""
    turns = tuple(Turn(*step.split()) for step in steps)
    return Rollout(Episode("t", name, turns, "end", success, parent=parent, stop=stop), "goal", ())


def test_outcome_metrics_by_hand() -> None:
    roots = [
        rollout("a", False, "o0 x", "o1 y", "o2 z"),
        rollout("b", False, "o0 x", "o3 y"),
    ]
    branches = [
        rollout("a@1.0", True, "o1 y", "o2 w", parent=Parent("a", 1)),  # repeats "y → o2", then wins
        rollout("a@1.1", False, "o1 y", "o2 z", parent=Parent("a", 1)),  # repeats it and loses
        rollout("a@1.2", True, "o1 v", parent=Parent("a", 1)),  # another first action
        rollout("a@1.3", False, "o1 y", "o9 z", parent=Parent("a", 1)),  # the same action, elsewhere
        rollout("b@0.0", False, "o0 x", parent=Parent("b", 0), stop="error"),
    ]
    groups = (
        BranchGroup("a", 1, 4, ("a@1.0", "a@1.1", "a@1.2", "a@1.3"), complete=True),
        BranchGroup("b", 0, 1, ("b@0.0",), complete=False),
    )
    metrics = outcome_metrics(roots, Branched(tuple(branches), groups, ()), horizon=10)
    assert metrics == {
        "effective_tasks": 0.0,
        "openings": 2,
        "suffixes": 5,
        "incomplete": 1,
        "unreplayable": 0,
        "newly_mixed": 2,  # o1, where they left, and o2, which one of them won from
        "conversion": 1.0,
        "contrast": 0.5,
        "contrast_same_first": 0.5,
        "branch_rows": pytest.approx(8 / 13),
    }


def test_outcome_metrics_of_nothing_are_zero() -> None:
    assert set(outcome_metrics([], Branched((), (), ()), horizon=10).values()) == {0}


class Moody:
    """A household without snapshots that greets differently at every start."""

    def __init__(self, environment: Environment, greetings: Iterator[int]) -> None:
        self.task = environment.task
        self._environment, self._greetings = environment, greetings

    def reset(self) -> tuple[str, Info]:
        observation, info = self._environment.reset()
        return f"Morning {next(self._greetings)}. {observation}", info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        return self._environment.step(action)

    def close(self) -> None:
        self._environment.close()


def test_a_diverging_replay_is_counted_and_its_first_difference_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(BRANCHING)
    suite = make_suite("household", **config.environment_options)
    make, greetings = suite.make, count()
    monkeypatch.setattr(suite, "make", lambda task: Moody(make(task), greetings))
    played = play_round(config, suite, build_policy(config, suite, tmp_path), make_allocator(config), 0)
    outcomes = played.allocation["round_outcomes"]
    assert outcomes["unreplayable"] == outcomes["openings"] > 0
    assert outcomes["suffixes"] == 0
    first = played.allocation["first_divergence"]
    assert first["depth"] == 0
    assert first["expected"].startswith("Morning")
    assert first["got"].startswith("Morning")
    assert first["expected"] != first["got"]
