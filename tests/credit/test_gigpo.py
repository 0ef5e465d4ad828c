"""gigpo: against plain loops, the worked case, step returns, singletons and similar states."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from reference.batches import batch, chain, hand_five
from reference.compare import assert_matches_reference
from reference.gigpo import gigpo as reference
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.episode_level import grpo
from stepcredit.credit.state_groups import gigpo

OPTIONS = [
    {"gamma": gamma, "normalize": normalize, "step_weight": weight, "penalty_in_step": penalty}
    for gamma, normalize, weight, penalty in itertools.product(
        (0.0, 0.95, 1.0), ("mean", "mean_std"), (0.3, 1), (True, False)
    )
]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("gigpo", reference, [{}, *OPTIONS], range(block * 100, block * 100 + 100))


def test_similar_texts_equal_the_slow_reference() -> None:
    options = [{"matcher": "text", "threshold": threshold} for threshold in (0.0, 0.4, 0.7, 1.0)]
    assert_matches_reference("gigpo", reference, options, range(200))


def test_worked_case() -> None:
    turns = Turns.from_episodes(hand_five())
    credit = gigpo(turns, normalize="mean")
    np.testing.assert_allclose(credit.advantage, [8.532499, 4.02, 9.07, -10.4925, -11.129999], atol=1.5e-6)
    np.testing.assert_allclose(credit.components["step"], [4.5125, 0, 5.05, -4.5125, -5.05])
    np.testing.assert_allclose(gigpo(turns).advantage, [1.437388, 0.730282, 1.437388, -1.793446, -1.811612], atol=1e-6)


def test_rewards_are_discounted_first_and_normalised_after() -> None:
    turns = Turns.from_episodes(
        [chain("t", "A", ["s", "u", "v"], rewards=[1, 0, 2]), chain("t", "B", ["s", "u", "v"], rewards=[0, 0, 1])]
    )
    step = gigpo(turns, gamma=0.5, normalize="mean").components["step"]
    # ĝ: A 1.5 1 2, B 0.25 0.5 1. Normalising rewards first would give other numbers in every row.
    np.testing.assert_allclose(step, [0.625, 0.25, 0.5, -0.625, -0.25, -0.5])


def test_a_penalty_reaches_its_own_turn_only() -> None:
    plain = [chain("t", "A", ["s", "u"], rewards=[0, 1]), chain("t", "B", ["s", "u"])]
    charged = [plain[0], chain("t", "B", ["s", "u"], penalties=[0, 0.5])]
    before, after = (gigpo(Turns.from_episodes(e), normalize="mean").components["step"] for e in (plain, charged))
    np.testing.assert_allclose(after - before, [0, 0.25, 0, -0.25])
    without = gigpo(Turns.from_episodes(charged), normalize="mean", penalty_in_step=False).components["step"]
    np.testing.assert_array_equal(without, before)


def test_states_seen_once_say_nothing() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "u"], rewards=[1, 2]), chain("t", "B", ["v"])])
    credit = gigpo(turns)
    assert credit.components["step"].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(credit.advantage, grpo(turns).advantage)
    assert credit.diagnostics["groups"]["singletons"] == 3


def test_eight_equal_returns_leave_no_rounding_residue() -> None:
    turns = Turns.from_episodes([chain("t", f"{i}", ["s"], rewards=[0.35]) for i in range(8)])
    assert gigpo(turns).advantage.tolist() == [0] * 8
    assert gigpo(turns).diagnostics["groups"]["all_equal"] == 1


def test_sign_conflicts_are_counted() -> None:
    # A wins, but its second visit to s comes closer to the prize than its first: the first is below s's mean.
    turns = Turns.from_episodes([chain("t", "A", ["s", "s"], rewards=[0, 1]), chain("t", "B", ["u"], rewards=[0])])
    credit = gigpo(turns, normalize="mean")
    assert credit.components["episode"][0] > 0 > credit.components["step"][0]
    assert credit.diagnostics["sign_conflicts"] == pytest.approx(1 / 3)


def test_similar_states_join_the_first_cluster_whose_first_member_is_near() -> None:
    texts = ["you see a red apple", "you see a red apple.", "you see a green pear", "nothing"]
    episodes = [chain("t", f"{i}", [text], rewards=[i]) for i, text in enumerate(texts)]
    exact = gigpo(Turns.from_episodes(episodes), normalize="mean").components["step"]
    similar = gigpo(Turns.from_episodes(episodes), normalize="mean", matcher="text", threshold=0.9).components["step"]
    assert exact.tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(similar, [-0.5, 0.5, 0, 0])


@pytest.mark.parametrize("matcher", ["text", "exact"])
def test_clusters_do_not_depend_on_the_order_of_lines(matcher: str) -> None:
    words = ["a a a a", "a a a b", "a a b b", "a b b b", "b b b b"]
    episodes = [chain("t", f"{i}", [words[(i + j) % 5] for j in range(4)], rewards=[0, 1, 0, i]) for i in range(5)]
    options = {"matcher": matcher, "threshold": 0.7}
    expected = {e.episode: assign(Turns.from_episodes(episodes), "gigpo", **options) for e in episodes}
    for seed in range(10):
        shuffled = random.Random(seed).sample(episodes, len(episodes))
        turns = Turns.from_episodes(shuffled)
        credit = assign(turns, "gigpo", **options).advantage
        for index, episode in enumerate(shuffled):
            first = int(episode.episode) * 4
            np.testing.assert_allclose(
                credit[index * 4 : index * 4 + 4], expected[episode.episode].advantage[first : first + 4], atol=1e-12
            )


@pytest.mark.parametrize("seed", range(20))
def test_threshold_one_is_exact_matching(seed: int) -> None:
    turns = Turns.from_episodes(batch(seed))
    similar = gigpo(turns, matcher="text", threshold=1.0).advantage
    np.testing.assert_allclose(similar, gigpo(turns).advantage, atol=1e-12)
