"""hgpo: against plain loops, levels of history, and the jump that dropping zeros makes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reference.batches import chain, hand_five
from reference.compare import assert_matches_reference
from reference.hgpo import hgpo as reference
from stepcredit.core.episodes import Parent
from stepcredit.core.turns import Turns
from stepcredit.credit.groups import EPSILON
from stepcredit.credit.history_groups import hgpo

OPTIONS = [
    {
        "history": history,
        "normalize": normalize,
        "drop_zero": drop,
        "episode_weight": weight,
        "level_power": power,
    }
    for history, normalize, drop, weight, power in itertools.product(
        (0, 2, 4), ("mean", "mean_std"), (True, False), (0, 1, 0.5), (0, 1, 2.5)
    )
]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("hgpo", reference, [{}, *OPTIONS], range(block * 60, block * 60 + 60))


def test_recorded_case_with_and_without_the_episode_level() -> None:
    turns = Turns.from_episodes(hand_five())
    alone = hgpo(turns, normalize="mean").advantage
    np.testing.assert_allclose(alone, [4.512497, 0, 5.049998, -4.512497, -5.049997], atol=1e-6)
    mixed = hgpo(turns, normalize="mean", episode_weight=1).advantage
    np.testing.assert_allclose(mixed, [4.348332, 4.019996, 4.706665, -5.001665, -5.393332], atol=1e-6)


def two_levels(second: float) -> Turns:
    """s is reached from p by A and B, and from q by C and D.

    Gains of s under A, B, C, D are 2 + second, 2 − second, −2, −2: level 1 centres them to about ±2, level 2 compares A
    with B alone.
    """
    gains = [2 + second, 2 - second, -2.0, -2.0]
    before = ["p", "p", "q", "q"]
    return Turns.from_episodes(
        [chain("t", name, [before[i], "s"], rewards=[0, gains[i]]) for i, name in enumerate("ABCD")]
    )


def test_a_level_of_zero_advantage_is_dropped_or_kept() -> None:
    options = {"normalize": "mean", "history": 1, "gamma": 0.0}
    exact, close = two_levels(0.0), two_levels(1e-6)
    row = 1  # A's turn in s
    dropped = hgpo(exact, **options).advantage[row]
    assert dropped == pytest.approx(2 * 2 / 2, abs=1e-5)
    assert hgpo(close, **options).advantage[row] == pytest.approx(2 * 2 / (2 + 3), abs=1e-5)
    kept = hgpo(exact, drop_zero=False, **options).advantage[row]
    assert kept == pytest.approx(hgpo(close, drop_zero=False, **options).advantage[row], abs=1e-5)
    assert kept == pytest.approx(2 * 2 / (2 + 3), abs=1e-5)


def test_histories_of_a_branch_run_through_its_replayed_prefix() -> None:
    turns = Turns.from_episodes(
        [
            chain("t", "A", ["p", "s"], rewards=[0, 4]),
            chain("t", "B", ["q", "s"], rewards=[0, 0]),
            chain("t", "C", ["s"], rewards=[2], parent=Parent("A", 1)),
        ]
    )
    credit = hgpo(turns, normalize="mean", history=1, gamma=0.0, drop_zero=False)
    # In s: level 1 compares 4, 0, 2 (mean 2); level 2 (p, s) compares A's 4 with the branch's 2 (mean 3).
    level = 2 + 3 + EPSILON
    np.testing.assert_allclose(
        credit.advantage[[1, 3, 4]], [(2 * 2 + 3 * 1) / level, -2 * 2 / (2 + EPSILON), -3 / level]
    )
    assert credit.diagnostics["levels"] == {"1": 0.6, "2": 0.4}


def test_a_history_longer_than_any_episode_is_the_whole_past() -> None:
    turns = Turns.from_episodes([chain("t", f"{i}", ["s", "u", "v"], rewards=[0, 0, i]) for i in range(3)])
    endless = hgpo(turns, history=10**12)
    assert list(endless.diagnostics["levels"]) == ["1", "2", "3"]
    assert endless.advantage.tolist() == hgpo(turns, history=2).advantage.tolist()


def test_history_zero_is_one_level() -> None:
    turns = Turns.from_episodes(hand_five())
    assert list(hgpo(turns, history=0).diagnostics["levels"]) == ["1"]


def test_an_episode_that_loops_compares_its_own_visits() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "s", "s"], rewards=[0, 0, 1])])
    credit = hgpo(turns, gamma=0.5, normalize="mean", history=1)
    # ĝ = 1/4, 1/2, 1. Level 1: all three, mean 7/12. Level 2 (s, s): the last two, mean 3/4.
    expected = [
        2 * (1 / 4 - 7 / 12) / (2 + EPSILON),
        (2 * (1 / 2 - 7 / 12) + 3 * (1 / 2 - 3 / 4)) / (5 + EPSILON),
        (2 * (1 - 7 / 12) + 3 * (1 - 3 / 4)) / (5 + EPSILON),
    ]
    np.testing.assert_allclose(credit.advantage, expected)
