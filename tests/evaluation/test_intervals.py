"""Whole-task bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest

from stepcredit.core.errors import InputError
from stepcredit.evaluation.intervals import cluster_bootstrap


def test_mean_weighs_episodes_not_tasks() -> None:
    assert cluster_bootstrap([[1.0, 1.0, 1.0], [0.0]]).mean == 0.75


def test_identical_tasks_leave_no_doubt() -> None:
    interval = cluster_bootstrap([[1.0, 0.0]] * 5)
    assert (interval.low, interval.mean, interval.high) == (0.5, 0.5, 0.5)


def test_matches_the_binomial_interval_for_single_episodes() -> None:
    outcomes = [[1.0]] * 300 + [[0.0]] * 100
    interval = cluster_bootstrap(outcomes)
    half_width = 1.96 * np.sqrt(0.75 * 0.25 / 400)
    assert interval.low == pytest.approx(0.75 - half_width, abs=0.005)
    assert interval.high == pytest.approx(0.75 + half_width, abs=0.005)


def test_repeating_episodes_of_one_task_does_not_narrow_the_interval() -> None:
    outcomes = [[float(task % 2)] for task in range(40)]
    repeated = [episodes * 10 for episodes in outcomes]
    assert cluster_bootstrap(outcomes) == cluster_bootstrap(repeated)


def test_same_seed_same_interval() -> None:
    outcomes = [[(task * 37 % 101) / 101] for task in range(31)]
    assert cluster_bootstrap(outcomes, seed=3) == cluster_bootstrap(outcomes, seed=3)
    assert cluster_bootstrap(outcomes, seed=3) != cluster_bootstrap(outcomes, seed=4)


@pytest.mark.parametrize("values", [[], [[]], [[1.0], []]])
def test_nothing_to_average_is_refused(values: list[list[float]]) -> None:
    with pytest.raises(InputError, match="at least one"):
        cluster_bootstrap(values)
