"""Statistics over groups against plain loops, and the exact zero of groups without spread."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.batches import batch, chain
from reference.rows import all_rows, path_return, returns
from stepcredit.core.episodes import Parent
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.diagnostics import mixed_tasks
from stepcredit.credit.groups import (
    episode_returns,
    episode_sums,
    equal_groups,
    group_extremes,
    group_means,
    group_sizes,
    joint_groups,
    normalize_groups,
    path_sums,
    path_totals,
    step_returns,
)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_joint_groups_number_the_distinct_combinations(columns: int) -> None:
    rng = np.random.default_rng([1, columns])
    table = rng.integers(0, 4, size=(columns, 500)).astype(np.int32)
    group = joint_groups(*table)
    keys = list(zip(*table.tolist(), strict=True))
    assert group.max() + 1 == len(set(keys))
    first: dict[tuple[int, ...], int] = {}
    assert [first.setdefault(key, number) for key, number in zip(keys, group.tolist(), strict=True)] == group.tolist()


def test_joint_groups_of_large_numbers() -> None:
    large = np.array([2**31 - 1, 0, 2**31 - 1, 2**31 - 1], dtype=np.int32)
    assert joint_groups(large, large[::-1]).tolist() == [2, 1, 0, 2] or len(set(joint_groups(large, large[::-1]))) == 3


def test_statistics_of_small_groups() -> None:
    group, values = np.array([2, 0, 2, 2], dtype=np.int32), np.array([1.0, 5.0, 2.0, 6.0])
    assert group_sizes(group).tolist() == [1, 0, 3]
    assert group_means(values, group).tolist() == [5, 0, 3]
    low, high = group_extremes(values, group, 3)
    assert low.tolist() == [5, np.inf, 1]
    assert high.tolist() == [5, -np.inf, 6]
    assert equal_groups(values, group, 3).tolist() == [True, True, False]


def test_divisor_of_the_deviation() -> None:
    group, values = np.zeros(3, dtype=np.int32), np.array([0.0, 1.0, 5.0])
    for ddof in (0, 1):
        expected = (values - 2) / (values.std(ddof=ddof) + 1e-6)
        np.testing.assert_allclose(normalize_groups(values, group, normalize="mean_std", ddof=ddof), expected)


@pytest.mark.parametrize("normalize", ["mean", "mean_std"])
@pytest.mark.parametrize("value", [0.35, 1e-9, -7.1, 1e12])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 1000])
def test_equal_values_are_exactly_zero(normalize: str, value: float, count: int) -> None:
    credit = normalize_groups(np.full(count, value), np.zeros(count, dtype=np.int32), normalize=normalize)
    assert credit.tolist() == [0.0] * count
    assert not np.signbit(credit).any()


def test_the_rounding_of_a_sum_is_not_a_spread_and_a_small_spread_is() -> None:
    group = np.zeros(2, dtype=np.int32)
    rounded = np.array([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1])
    assert rounded[0] != rounded[1]
    assert normalize_groups(rounded, group, normalize="mean_std").tolist() == [0, 0]
    small = normalize_groups(np.array([1.0, 1.0 + 1e-9]), group, normalize="mean")
    np.testing.assert_allclose(small, [-5e-10, 5e-10], rtol=1e-6)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("gamma", [0.0, 0.95, 1.0])
def test_returns_equal_plain_loops(seed: int, gamma: float) -> None:
    episodes = batch(seed)
    turns, rows = Turns.from_episodes(episodes), all_rows(episodes)
    np.testing.assert_allclose(step_returns(turns, gamma), [row.step_return(gamma) for row in rows], atol=1e-9)
    np.testing.assert_allclose(path_sums(turns, turns.reward), [path_return(row) for row in rows], atol=1e-9)
    outcome = returns(episodes)
    np.testing.assert_allclose(episode_returns(turns), [outcome[name] for name in turns.episode_names], atol=1e-9)
    np.testing.assert_allclose(path_totals(turns, turns.reward), path_sums(turns, turns.reward)[turns.last], atol=1e-15)
    own = [sum(row.penalty for row in rows if row.episode == name) for name in turns.episode_names]
    np.testing.assert_allclose(episode_sums(turns, turns.penalty), own, atol=1e-12)


@pytest.mark.parametrize("forest", [False, True])
@pytest.mark.parametrize("length", [3, 30, 3000])
def test_the_same_rewards_in_any_order_are_the_same_return_even_where_they_cancel(length: int, forest: bool) -> None:
    rng = np.random.default_rng([5, length])
    rewards = [0.7, 0.1, -0.8] * (length // 3)
    episodes = [chain("t", f"{i}", ["s"] * length, rewards=rng.permutation(rewards).tolist()) for i in range(6)]
    if forest:
        prefix, last = episodes[0].turns[:-1], episodes[0].turns[-1]
        episodes.append(chain("t", "branch", ["s"], rewards=[last.reward], parent=Parent("0", len(prefix))))
    turns = Turns.from_episodes(episodes)
    exact = math.fsum(rewards)
    np.testing.assert_allclose(episode_returns(turns), exact, rtol=1e-12, atol=0)
    np.testing.assert_allclose(step_returns(turns, 1.0)[turns.start[:6]], exact, rtol=1e-12, atol=0)
    assert not assign(turns, "grpo").advantage.any()
    assert not assign(turns, "rloo").advantage.any()
    assert not mixed_tasks(turns).any()


def test_step_returns_follow_turns_and_not_rows() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s"] * 3, rewards=[1, 0, 2]), chain("t", "B", ["s"], rewards=[4])])
    np.testing.assert_allclose(step_returns(turns, 0.5), [1.5, 1, 2, 4])
