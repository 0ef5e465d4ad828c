"""Rounds that branch: what is collected, what the allocator learns, what a checkpoint keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepcredit.allocation.settings import SuffixOutcome
from stepcredit.allocation.states import StateGroup, Visits
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import CheckpointError, OptionError
from stepcredit.core.files import read_episodes
from stepcredit.core.turns import Turns
from stepcredit.environments.catalogue import make_suite
from stepcredit.rollouts.branch import Branched, BranchGroup
from stepcredit.training.build import build_policy
from stepcredit.training.config import make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.rounds import load_allocator, make_allocator, play_round, save_allocator, suffix_metrics
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
    assert played.allocation["suffixes"]["unreplayable"] == 0


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
    with pytest.raises(CheckpointError, match="Cannot read the allocator"):
        load_allocator(make_allocator(make_config(BRANCHING)), tmp_path)


def test_branching_without_an_allocator_is_refused() -> None:
    with pytest.raises(OptionError, match="needs an allocator; set root to 'fitted'"):
        make_config({**BRANCHING, "root": "families"})


def test_unknown_allocation_option_is_named() -> None:
    with pytest.raises(OptionError, match="Did you mean 'exploration'"):
        make_allocator(make_config({**BRANCHING, "allocation_options": {"exploraton": 0.1}}))


def test_suffix_metrics_by_hand() -> None:
    def group(state: str, successes: int, failures: int, turn: int) -> StateGroup:
        return StateGroup("t", state, turn, 10, Parent("e", turn), (Visits("e", successes, failures),))

    factual = [group("a", 0, 2, 0), group("b", 3, 0, 1), group("c", 1, 1, 2)]
    forest = [group("a", 1, 5, 0), group("b", 7, 0, 1), group("c", 1, 1, 2), group("new", 1, 1, 3)]
    outcomes = [SuffixOutcome(Parent("e", 0), 1, 3), SuffixOutcome(Parent("e", 1), 4, 0)]
    groups = tuple(BranchGroup("e", turn, 4, (), complete=True) for turn in (0, 1))
    metrics = suffix_metrics(factual, forest, outcomes, Branched((), groups, ()))
    assert metrics["newly_mixed"] == 1
    assert metrics["conversion"] == 0.5
    assert metrics["contrast"] == pytest.approx(1 / 8)
    assert np.isfinite(list(metrics.values())).all()
