"""grpo: against plain loops, the worked case, and what each statistic does to long episodes and lone ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reference.batches import chain, hand_five
from reference.compare import assert_matches_reference
from reference.grpo import grpo as reference
from stepcredit.core.episodes import Episode, Parent
from stepcredit.core.errors import InputError
from stepcredit.core.turns import Turns
from stepcredit.credit.episode_level import grpo

OPTIONS = [
    {"normalize": normalize, "statistics": statistics, "singleton": singleton}
    for normalize, statistics, singleton in itertools.product(
        ("mean", "mean_std"), ("turn", "episode"), ("zero", "raw")
    )
]


def outcomes(*returns: float, task: str = "t") -> list[Episode]:
    """One-turn episodes of one task."""
    return [chain(task, f"{task}{index}", ["s"], rewards=[value]) for index, value in enumerate(returns)]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("grpo", reference, [{}, *OPTIONS], range(block * 100, block * 100 + 100))


def test_worked_case() -> None:
    turns = Turns.from_episodes(hand_five())
    np.testing.assert_allclose(grpo(turns, normalize="mean").advantage, [4.02, 4.02, 4.02, -5.98, -6.08])
    np.testing.assert_allclose(grpo(turns).advantage, [0.730282, 0.730282, 0.730282, -1.086339, -1.104505], atol=1e-6)


def test_episode_statistics_give_one_number_an_episode() -> None:
    turns = Turns.from_episodes(hand_five())
    # x = 10 and −0.1: the penalty is part of the episode's score, its mean is 4.95.
    credit = grpo(turns, normalize="mean", statistics="episode")
    np.testing.assert_allclose(credit.advantage, [5.05, 5.05, 5.05, -5.05, -5.05])


def test_a_long_episode_dominates_turn_statistics_only() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s"] * 9, rewards=[0] * 8 + [1]), chain("t", "B", ["s"])])
    np.testing.assert_allclose(grpo(turns, normalize="mean").advantage, [0.1] * 9 + [-0.9])
    by_episode = grpo(turns, normalize="mean", statistics="episode").advantage
    np.testing.assert_allclose(by_episode, [0.5] * 9 + [-0.5])


def test_one_group_of_four() -> None:
    credit = grpo(Turns.from_episodes(outcomes(1, 0, 1, 0)))
    np.testing.assert_allclose(credit.advantage, [0.866025, -0.866025, 0.866025, -0.866025], atol=2e-6)
    assert credit.diagnostics["groups"] == {
        "count": 1,
        "singletons": 0,
        "shared": 1.0,
        "all_equal": 0,
        "mean_size": 4.0,
        "sizes": {"3-4": 1},
    }


def test_a_group_of_its_own_for_every_episode_gives_zero_and_a_warning() -> None:
    episodes = [chain(f"t{index}", f"{index}", ["s"], rewards=[value]) for index, value in enumerate([1, 0, 1, 0])]
    credit = grpo(Turns.from_episodes(episodes))
    assert credit.advantage.tolist() == [0, 0, 0, 0]
    assert credit.diagnostics["groups"]["singletons"] == 4
    (warning,) = credit.diagnostics["warnings"]
    assert warning.startswith("4 of 4 task groups hold a single episode")


def test_singleton_option() -> None:
    turns = Turns.from_episodes([*outcomes(3, task="lone"), *outcomes(1, 0, task="pair")])
    np.testing.assert_allclose(grpo(turns, normalize="mean", singleton="raw").advantage, [3, 0.5, -0.5])
    np.testing.assert_allclose(grpo(turns, normalize="mean", singleton="zero").advantage, [0, 0.5, -0.5])
    with pytest.raises(InputError, match=r"^Task group 'lone' holds one turn; singleton=error expects two or more\.$"):
        grpo(turns, singleton="error")
    assert grpo(Turns.from_episodes(outcomes(1, 0)), singleton="error").advantage.any()


def test_a_lone_episode_of_many_turns_is_a_singleton_for_episode_statistics_alone() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "u"], rewards=[0, 2], penalties=[0, 0.5])])
    np.testing.assert_allclose(grpo(turns, normalize="mean", singleton="raw").advantage, [0.25, -0.25])
    credit = grpo(turns, statistics="episode", normalize="mean", singleton="raw").advantage
    np.testing.assert_allclose(credit, [1.5, 1.5])


def test_uneven_groups_of_equal_returns_are_exactly_zero() -> None:
    turns = Turns.from_episodes([*outcomes(1, 1, 1, task="a"), *outcomes(0, 0, task="b")])
    assert grpo(turns).advantage.tolist() == [0] * 5


def test_a_branch_counts_with_the_return_of_its_whole_path() -> None:
    episodes = [
        chain("t", "A", ["s", "u"], rewards=[3, 1]),
        chain("t", "B", ["u"], rewards=[0], parent=Parent("A", 1)),
    ]
    credit = grpo(Turns.from_episodes(episodes), normalize="mean", statistics="episode")
    np.testing.assert_allclose(credit.advantage, [0.5, 0.5, -0.5])
