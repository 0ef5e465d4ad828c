"""tsbpo: against plain loops, splits and segments by hand, chains, deep branches, diagnostics."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import DEGENERATE, chain, long_branch_chain, random_chains
from reference.compare import assert_matches_reference
from reference.tsbpo import tsbpo as reference
from stepcredit.core.episodes import Episode, Parent
from stepcredit.core.turns import Turns
from stepcredit.credit.groups import episode_returns, normalize_groups
from stepcredit.credit.tree import Segments, tsbpo

OPTIONS = [
    {},
    {"balance_cap": 6.0},
    {"balance_cap": 1.5, "step_coef": 0.0},
    {"gamma": 1.0, "step_coef": 0.3},
    {"balance_cap": 1.0, "gamma": 0.0},
]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("tsbpo", reference, OPTIONS, range(block * 150, block * 150 + 150))


@pytest.mark.parametrize("case", ["branch at turn 0", "branch of a branch", "self-loop", "all equal"])
def test_equals_the_slow_reference_in_corners(case: str) -> None:
    assert_matches_reference("tsbpo", reference, OPTIONS, range(0, 10, 2), batches=lambda _: DEGENERATE[case])


def siblings(rewards: list[float]) -> list[Episode]:
    """A root whose second turn was taken four more times; every child ends the path with its reward."""
    root = chain("t", "0", ["s", "h"], rewards=[0, rewards[0]])
    branches = [
        chain("t", f"{i}", ["h"], rewards=[reward], parent=Parent("0", 1))
        for i, reward in enumerate(rewards[1:], start=1)
    ]
    return [root, *branches]


def test_one_of_five_siblings_succeeds() -> None:
    credit = tsbpo(Turns.from_episodes(siblings([4, 0, 0, 0, 0])), step_coef=0)
    np.testing.assert_allclose(credit.advantage, [0, 3.2, -0.8, -0.8, -0.8, -0.8])


def test_a_segment_is_worth_the_leaves_it_leads_to() -> None:
    # Root A: a–b–c, R = 3. B leaves at b (R = 1, two turns), C leaves B's second turn (R = 5).
    episodes = [
        chain("t", "A", ["a", "b", "c"], rewards=[0, 0, 3]),
        chain("t", "B", ["b", "d"], rewards=[0, 1], penalties=[0.5, 0], parent=Parent("A", 1)),
        chain("t", "C", ["d"], rewards=[5], parent=Parent("B", 1)),
    ]
    credit = tsbpo(Turns.from_episodes(episodes), step_coef=0)
    # At b: A's segment is worth 3; B's first turn leads to the split d, worth (1 + 5)/2, and cost 0.5 itself.
    # At d: 1 against 5. A's first turn lies above the split, and A is its task's only root.
    np.testing.assert_allclose(credit.advantage, [0, 0.25, 0.25, -0.25, -2, 2])


def test_only_the_nearest_split_speaks() -> None:
    # Two children of h that lead to equal means cancel at h, whatever happens below.
    episodes = [
        chain("t", "A", ["h", "u"], rewards=[0, 4]),
        chain("t", "B", ["u"], rewards=[0], parent=Parent("A", 1)),
        chain("t", "C", ["h"], rewards=[2], parent=Parent("A", 0)),
    ]
    np.testing.assert_allclose(tsbpo(Turns.from_episodes(episodes), step_coef=0).advantage, [0, 2, -2, 0])


def test_an_assigned_zero_does_not_fall_back() -> None:
    # At h both children give 1, so their credit is 0, although their root beats the other root.
    episodes = [
        chain("t", "A", ["s", "h"], rewards=[0, 1]),
        chain("t", "B", ["h"], rewards=[1], parent=Parent("A", 1)),
        chain("t", "C", ["s"], rewards=[0]),
    ]
    np.testing.assert_allclose(tsbpo(Turns.from_episodes(episodes), step_coef=0).advantage, [0.5, 0, 0, -0.5])


def test_roots_never_share_an_occurrence() -> None:
    episodes = [chain("t", f"{i}", ["s"], rewards=[i]) for i in range(3)]
    segments = Segments.from_turns(Turns.from_episodes(episodes))
    assert segments.above_splits.all()
    assert segments.mass.tolist() == [1, 1, 1]


def test_on_chains_roots_are_compared_and_the_step_term_is_added() -> None:
    for seed in range(50):
        turns = Turns.from_episodes(random_chains(seed))
        returns, length = episode_returns(turns), np.diff(turns.start)
        cost = np.bincount(turns.episode, weights=turns.penalty) / length
        fallback = normalize_groups(returns - cost, turns.episode_task, normalize="mean")[turns.episode]
        left = length[turns.episode] - 1 - turns.turn
        q = 0.95**left * returns[turns.episode] - turns.penalty
        step = normalize_groups(q, turns.state, normalize="mean")
        np.testing.assert_allclose(tsbpo(turns).advantage, fallback + step, rtol=1e-12, atol=1e-12)


def test_repeated_actions_stay_in_the_step_terms_mean() -> None:
    # Three turns leave s: two took "left" and got 3 and 0, one took "right" and got 0. The mean is 1, not (1.5 + 0)/2.
    taken = [("left", 3), ("left", 0), ("right", 0)]
    episodes = [chain("t", f"{i}", ["s"], actions=[a], rewards=[r]) for i, (a, r) in enumerate(taken)]
    np.testing.assert_allclose(tsbpo(Turns.from_episodes(episodes)).components["step"], [2, -1, -1])


def test_the_step_term_discounts_to_the_leaf_and_averages_at_splits() -> None:
    # Both roots start in s. A's next occurrence h has two children worth 4 and 0; B ends with 1 after two turns.
    episodes = [
        chain("t", "A", ["s", "h"], rewards=[0, 4]),
        chain("t", "a", ["h"], rewards=[0], parent=Parent("A", 1)),
        chain("t", "B", ["s", "x"], rewards=[0, 1]),
    ]
    step = tsbpo(Turns.from_episodes(episodes), gamma=0.5).components["step"]
    # Q(s): A 0.5·(4 + 0)/2 = 1, B 0.5·1; h: 4 and 0 around 2; x alone.
    np.testing.assert_allclose(step, [0.25, 2, -2, -0.25, 0])


@pytest.mark.parametrize("value", [0.35, 0.1, 1 / 3])
def test_equal_returns_leave_no_rounding_residue(value: float) -> None:
    episodes = [chain("t", "0", ["s", "u", "v"], rewards=[0, 0, value])]
    for i in range(1, 9):
        parent = Parent(f"{i - 1}", 1) if i % 3 else Parent("0", 2)
        episodes.append(chain("t", f"{i}", ["u", "v"], rewards=[0, value], parent=parent))
    assert tsbpo(Turns.from_episodes(episodes), gamma=1.0).advantage.tolist() == [0] * 19


def test_thousands_of_branches_of_branches_need_no_recursion() -> None:
    turns = Turns.from_episodes(long_branch_chain(3000))
    credit = tsbpo(turns, balance_cap=6.0)
    assert np.isfinite(credit.advantage).all()
    # Every split has two children; the last one's are the two deepest leaves, worth their own returns.
    deepest = credit.components["trajectory"][[-1, -3]] / credit.components["weight"][[-1, -3]]
    returns = episode_returns(turns)
    np.testing.assert_allclose(deepest[0], (returns[-1] - returns[-2]) / 2)


def test_segment_diagnostics() -> None:
    episodes = [
        chain("t", "A", ["a", "b", "c", "d", "e"], rewards=[0, 0, 0, 0, 1]),
        chain("t", "B", ["b"], parent=Parent("A", 1)),
    ]
    found = tsbpo(Turns.from_episodes(episodes), balance_cap=6.0).diagnostics["segments"]
    assert found["count"] == 2
    assert found["coverage"] == pytest.approx(5 / 6)
    assert (found["mass"]["min"], found["mass"]["max"]) == (1, 4)
    assert found["worst_gap"] == 4
    # Masses 4 and 1: factors 5/8 and 5/2 lie within the cap and even the segments out.
    assert found["worst_gap_balanced"] == pytest.approx(1)
    assert found["coefficient"]["max"] == pytest.approx(2.5)
    assert found["coefficient"]["min"] == pytest.approx(0.625)
