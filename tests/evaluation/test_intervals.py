"""Whole-task bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest

from stepcredit.core.errors import InputError
from stepcredit.evaluation import intervals
from stepcredit.evaluation.intervals import Interval, cluster_bootstrap, paired_bootstrap


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


def test_drawing_in_pieces_gives_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [[float(task % 3 == 0)] for task in range(40)]
    whole = cluster_bootstrap(outcomes)
    monkeypatch.setattr(intervals, "_AT_ONCE", 300)
    assert cluster_bootstrap(outcomes) == whole


def test_a_paired_difference_with_itself_is_exactly_zero() -> None:
    outcomes = [[1.0, 0.0], [0.0], [1.0, 1.0, 0.0]]
    assert paired_bootstrap(outcomes, outcomes) == Interval(0.0, 0.0, 0.0)


def test_a_constant_gain_leaves_no_doubt() -> None:
    before = [[0.0, 0.0], [0.0]]
    after = [[1.0, 1.0], [1.0]]
    assert paired_bootstrap(before, after) == Interval(1.0, 1.0, 1.0)
    assert paired_bootstrap(after, before) == Interval(-1.0, -1.0, -1.0)


def test_a_paired_difference_is_the_difference_of_the_means() -> None:
    rng = np.random.default_rng(0)
    sides = [[list(rng.random(1 + task % 3)) for task in range(30)] for _ in range(2)]
    paired = paired_bootstrap(*sides)
    first, second = (cluster_bootstrap(side) for side in sides)
    assert paired.mean == pytest.approx(second.mean - first.mean, abs=1e-12)
    swapped = paired_bootstrap(*reversed(sides))
    assert (swapped.low, swapped.high) == (pytest.approx(-paired.high), pytest.approx(-paired.low))


def test_pairing_removes_what_both_sides_share() -> None:
    """Tasks differ a lot, the sides by a constant: unpaired intervals are wide, the paired one is a point."""
    before = [[task / 40] for task in range(40)]
    after = [[task / 40 + 0.01] for task in range(40)]
    paired = paired_bootstrap(before, after)
    assert paired.high - paired.low < 1e-12
    assert cluster_bootstrap(before).high - cluster_bootstrap(before).low > 0.15


def test_the_paired_interval_is_that_of_the_differences() -> None:
    before = [[1.0], [0.0], [1.0], [0.0], [0.0]]
    after = [[1.0], [1.0], [0.0], [1.0], [0.0]]
    gains = [[b[0] - a[0]] for a, b in zip(before, after, strict=True)]
    assert paired_bootstrap(before, after, seed=4) == cluster_bootstrap(gains, seed=4)


def test_sides_of_different_size_are_refused() -> None:
    with pytest.raises(InputError, match="the same tasks and as many episodes"):
        paired_bootstrap([[1.0, 0.0]], [[1.0]])
