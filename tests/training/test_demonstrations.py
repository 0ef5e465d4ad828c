"""Demonstrations: successful, interrupted, and with the interruptions masked."""

from __future__ import annotations

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.environments.catalogue import make_suite
from stepcredit.training.demonstrations import choose_demonstrated, demonstrate


def test_without_noise_every_turn_is_the_experts_and_counts() -> None:
    suite = make_suite("household", train=12)
    rollouts, weight = demonstrate(suite, suite.tasks("train"), noise=0.0, horizon=30, seed=(0,))
    assert len(rollouts) == 12
    assert all(rollout.episode.success for rollout in rollouts)
    assert weight.tolist() == [1.0] * sum(len(rollout.episode.turns) for rollout in rollouts)


def test_random_commands_are_shown_but_not_learnt() -> None:
    suite = make_suite("household", train=30)
    rollouts, weight = demonstrate(suite, suite.tasks("train"), noise=0.5, horizon=40, seed=(0,))
    turns = [turn for rollout in rollouts for turn in rollout.episode.turns]
    assert len(turns) == len(weight)
    assert 0.3 < (weight == 0).mean() < 0.6
    masked = [turn for turn, one in zip(turns, weight, strict=True) if one == 0]
    assert all(turn.action in turn.extra["admissible"] for turn in masked)
    shares = {verb: sum(turn.action.startswith(verb) for turn in masked) / len(masked) for verb in ("go", "take")}
    assert shares["go"] > 0.3  # wrong places
    assert shares["take"] > 0.03  # and wrong things


def test_same_seed_same_demonstrations() -> None:
    suite = make_suite("household", train=12)
    first, second = (demonstrate(suite, suite.tasks("train"), noise=0.5, horizon=30, seed=(3,)) for _ in range(2))
    assert [one.episode for one in first[0]] == [one.episode for one in second[0]]
    assert first[1].tolist() == second[1].tolist()


def test_what_cannot_be_demonstrated_in_time_is_left_out() -> None:
    suite = make_suite("household", train=12)
    rollouts, weight = demonstrate(suite, suite.tasks("train"), noise=0.0, horizon=1, seed=(0,))
    assert (len(rollouts), len(weight)) == (0, 0)


def test_the_first_tasks_of_each_family_are_demonstrated() -> None:
    tasks = make_suite("household", train=12).tasks("train")
    chosen = choose_demonstrated(tasks, {"look": 1, "pick": 2})
    assert [task.family for task in chosen] == ["look", "pick", "pick"]
    assert chosen[1:] == [task for task in tasks if task.family == "pick"][:2]


def test_more_demonstrations_than_tasks_are_refused() -> None:
    tasks = make_suite("household", train=12).tasks("train")
    with pytest.raises(OptionError, match="9 demonstrations of 'look' wanted, but there are 2"):
        choose_demonstrated(tasks, {"look": 9})
