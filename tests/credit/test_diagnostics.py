"""Diagnostics: plain numbers with the meaning their documentation gives."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reference.batches import batch, chain, hand_five
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign
from stepcredit.credit.diagnostics import describe_groups, lone_episodes, mean_abs, mixed_tasks, quantiles


def test_group_distribution() -> None:
    group = np.repeat(np.arange(7), [1, 1, 2, 3, 4, 5, 9]).astype(np.int32)
    values = np.arange(25.0)
    values[group == 3] = 0.35
    assert describe_groups(group, values) == {
        "count": 7,
        "singletons": 2,
        "shared": 23 / 25,
        "all_equal": 1,
        "mean_size": 25 / 7,
        "sizes": {"1": 2, "2": 1, "3-4": 2, "5-8": 1, "9-16": 1},
    }


def test_numbers_without_rows_do_not_count_as_groups() -> None:
    assert describe_groups(np.array([5, 5, 9], dtype=np.int32), np.zeros(3))["count"] == 2


def test_sizes_and_conflicts_ignore_turns_that_were_not_scored() -> None:
    part = np.array([1.0, np.nan, -3.0])
    assert mean_abs(part, {"all": np.ones(3), "none": np.full(3, np.nan)}) == {
        "advantage": 2.0,
        "all": 1.0,
        "none": 0.0,
    }


def test_quantiles() -> None:
    found = quantiles(np.arange(11.0))
    assert found == {"mean": 5.0, "min": 0.0, "p10": 1.0, "p50": 5.0, "p90": 9.0, "max": 10.0}
    assert set(quantiles(np.zeros(0)).values()) == {0.0}


def test_warning_only_where_more_than_half_of_the_groups_are_lone() -> None:
    lone = [chain(f"t{i}", f"{i}", ["s"]) for i in range(2)]
    pairs = [chain(f"p{i // 2}", f"p{i}", ["s"]) for i in range(4)]
    assert lone_episodes(Turns.from_episodes(lone + pairs)) == []
    assert lone_episodes(Turns.from_episodes(lone + pairs[:2]))[0].startswith("2 of 3 task groups")


def test_the_outcome_filter_looks_before_penalties() -> None:
    failed = [chain("t", f"{i}", ["s"], penalties=[penalty]) for i, penalty in enumerate([0.1, 0, 0, 0.1])]
    won = [chain("u", f"u{i}", ["s"], rewards=[i], penalties=[i]) for i in range(2)]
    turns = Turns.from_episodes(failed + won)
    assert mixed_tasks(turns).tolist() == [False, True]
    # The shaped scores differ the other way round, which is what such a filter must not see.
    assert assign(turns, "grpo").advantage[:4].any()
    assert not assign(turns, "grpo").advantage[4:].any()


@pytest.mark.parametrize("name", [name for name in METHODS if not {"values", "hindsight"} & set(METHODS[name].needs)])
def test_diagnostics_are_plain_json(name: str) -> None:
    for seed in range(6):
        json.dumps(assign(Turns.from_episodes(batch(seed)), name).diagnostics, allow_nan=False)


def test_mean_abs_of_components() -> None:
    credit = assign(Turns.from_episodes(hand_five()), "gigpo", normalize="mean")
    assert credit.diagnostics["mean_abs"]["step"] == pytest.approx((4.5125 + 5.05) * 2 / 5)
