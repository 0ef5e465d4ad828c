"""graft: against plain loops, the worked case, the count-weighting collapse, single edges and sinks."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from reference.batches import DEGENERATE, batch, chain
from reference.compare import assert_matches_reference
from reference.graft import graft as reference
from stepcredit.core.credit import Credit
from stepcredit.core.episodes import Episode
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.episode_level import grpo
from stepcredit.credit.graft import graft

OPTIONS = [
    {"value_weighting": weighting, "hop_mean": hop_mean, "normalize": normalize, "lam": lam}
    for weighting, hop_mean, normalize, lam in itertools.product(
        ("count", "action"), ("raw", "distinct"), ("node", "none"), (0.6, 1.0)
    )
] + [{"gae": False, "episode_weight": 0.5}, {"gamma": 1.0, "lam": 1.0}, {"gamma": 0.3, "lam": 0.0}]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("graft", reference, [{}, *OPTIONS], range(block * 250, block * 250 + 250))


def two_choices() -> list[Episode]:
    """The worked case of docs/methods/graft.md, turn for turn: from s by a to x or by d to y."""
    return [
        chain("t", "A", "sx", actions=["a", "b"], end="W", success=True),
        chain("t", "B", "sx", actions=["a", "c"], end="L"),
        chain("t", "C", "sy", actions=["d", "e"], end="W", success=True),
        chain("t", "D", "syx", actions=["d", "e", "b"], end="W", success=True),
    ]


def test_worked_case_by_counts() -> None:
    turns = Turns.from_episodes(two_choices())
    credit = graft(turns)
    delta = [-0.080041, 0.33, -0.080041, -0.66, 0.080042, 0.1683, 0.080042, -0.1683, 0.33]
    expected = [-0.866025, 0.57735, -0.866025, -1.154701, 0.866025, 0.707107, 0.866025, -0.707107, 0.57735]
    np.testing.assert_allclose(credit.components["delta"], delta, atol=1e-6)
    # ε = 1e-6 beside a deviation of 0.09 shifts the sixth decimal of the normalised numbers.
    np.testing.assert_allclose(credit.advantage, expected, atol=2e-5)
    np.testing.assert_allclose(credit.components["value"][[1, 5, 0]], [0.66, 0.8217, 0.733441], atol=1e-6)


def test_worked_case_by_actions() -> None:
    turns = Turns.from_episodes(two_choices())
    credit = graft(turns, value_weighting="action", normalize="none")
    delta = [-0.121287, 0.495, -0.121287, -0.495, 0.121287, 0.249975, 0.121287, -0.249975, 0.495]
    ahead = [0.033895, 0.495, 0.033895, -0.495, 0.267237, 0.249975, 0.267237, -0.094792, 0.495]
    np.testing.assert_allclose(credit.components["delta"], delta, atol=1e-6)
    np.testing.assert_allclose(credit.advantage, ahead, atol=1e-6)


def without_left_sinks(seed: int) -> list[Episode]:
    """A random batch in which every final state is a state of its own."""
    return [Episode(e.task, e.episode, e.turns, f"the end of {e.episode}", e.success, e.parent) for e in batch(seed)]


def test_count_weighting_collapses_to_one_step() -> None:
    for seed in range(100):
        turns = Turns.from_episodes(without_left_sinks(seed))
        ahead, one_step = graft(turns, normalize="none"), graft(turns, normalize="none", gae=False)
        np.testing.assert_array_equal(ahead.advantage, one_step.advantage)
        assert ahead.diagnostics["sinks_with_departures"] == 0


def test_action_weighting_and_distinct_means_do_not_collapse() -> None:
    turns = Turns.from_episodes(two_choices())
    one_step = graft(turns, normalize="none", gae=False).advantage
    assert abs(graft(turns, normalize="none", hop_mean="distinct").advantage - one_step).max() > 0.01
    one_step = graft(turns, normalize="none", gae=False, value_weighting="action").advantage
    assert abs(graft(turns, normalize="none", value_weighting="action").advantage - one_step).max() > 0.01


def test_a_sink_that_others_leave_is_seen_from_afar_even_by_counts() -> None:
    episodes = [
        chain("t", "A", ["s", "x", "y"], end="W", success=True),
        chain("t", "B", ["s", "x"], end="y"),
    ]
    turns = Turns.from_episodes(episodes)
    credit = graft(turns, normalize="none")
    assert credit.diagnostics["sinks_with_departures"] == 1
    # y ends B with 0 and leads on to W: V(y) = 0.495, so A's last δ is 0.495 and nothing cancels it.
    np.testing.assert_allclose(credit.components["delta"], [0, 0, 0.495, 0, 0], atol=1e-12)
    look = 0.99 * 0.95
    np.testing.assert_allclose(
        credit.advantage, [look**2 * 0.495, look * 0.495, 0.495, look**2 * 0.495, look * 0.495], atol=1e-12
    )


def test_the_only_way_out_of_a_neutral_state_is_worth_exactly_nothing() -> None:
    # Released solvers leave a residue of up to 1e-8 here, whose sign then became ±0.5 of credit.
    for seed in range(100):
        rng = random.Random(f"neutral {seed}")
        states = [f"s{i}" for i in range(12)]
        walks = [[rng.choice(states) for _ in range(30)] for _ in range(4)]
        episodes = [
            chain("t", f"{i}", [f"alone {i}", *walk], end=f"end {i}", success=i % 2 == 0)
            for i, walk in enumerate(walks)
        ]
        turns = Turns.from_episodes(episodes)
        assert graft(turns).advantage[turns.start[:-1]].tolist() == [0, 0, 0, 0]


def test_the_only_way_out_carries_its_sign() -> None:
    # By actions, s is as good as the mean of its two choices; u has one way out, to where everything fails.
    episodes = [
        chain("t", "A", ["u"], end="x", success=True),
        chain("t", "B", ["u", "x"], end="L"),
        chain("t", "C", ["v"], end="x", success=True),
    ]
    credit = graft(Turns.from_episodes(episodes), value_weighting="action", gae=False, normalize="node")
    assert credit.advantage[2] == pytest.approx(-1, abs=1e-5)
    assert credit.advantage[[0, 1, 3]].tolist() == [0, 0, 0]


def test_failure_everywhere_gives_exact_zeros() -> None:
    for weighting, hop_mean in itertools.product(("count", "action"), ("raw", "distinct")):
        episodes = [Episode(e.task, e.episode, e.turns, e.final_observation, False, e.parent) for e in batch(7)]
        credit = graft(Turns.from_episodes(episodes), value_weighting=weighting, hop_mean=hop_mean)
        assert not credit.advantage.any()


def test_rewards_and_penalties_do_not_enter() -> None:
    plain = [chain("t", "A", ["s", "u"], success=True), chain("t", "B", ["s", "v"])]
    paid = [
        chain("t", "A", ["s", "u"], success=True, rewards=[3, -1]),
        chain("t", "B", ["s", "v"], penalties=[0.5, 0]),
    ]
    first, second = (graft(Turns.from_episodes(episodes)).advantage for episodes in (plain, paid))
    np.testing.assert_array_equal(first, second)


def test_a_branch_adds_its_own_edges_only() -> None:
    # As a second root, B would count A's first turn twice and halve the weight of C's.
    turns = Turns.from_episodes(DEGENERATE["branch of a branch"])
    states = [turns.state_names[state] for state in turns.state]
    value = graft(turns, gamma=1.0).components["value"]
    assert value[states.index("s")] == pytest.approx(value[states.index("u")])


def test_episode_weight_adds_grpo() -> None:
    turns = Turns.from_episodes(batch(2))
    added = graft(turns, episode_weight=0.7).advantage - graft(turns).advantage
    np.testing.assert_allclose(added, 0.7 * grpo(turns).advantage, atol=1e-12)


def credit_of_similar(threshold: float) -> Credit:
    """Two episodes whose states differ in a full stop, final states included."""
    episodes = [
        chain("t", "A", ["a red apple", "a green pear"], end="you are done", success=True),
        chain("t", "B", ["a red apple.", "a green pear."], end="you are done."),
    ]
    return graft(Turns.from_episodes(episodes), matcher="text", threshold=threshold, normalize="none")


def test_similar_states_share_a_node() -> None:
    apart, together = credit_of_similar(1.0), credit_of_similar(0.9)
    np.testing.assert_allclose(apart.components["value"], [0.99**2, 0.99, 0, 0])
    # The two final states are one sink worth ½.
    np.testing.assert_allclose(together.components["value"], [0.5 * 0.99**2, 0.5 * 0.99] * 2)
    assert together.diagnostics["groups"]["count"] == 2


def test_matching_everything_exactly_changes_nothing() -> None:
    for seed in range(20):
        turns = Turns.from_episodes(batch(seed))
        similar = assign(turns, "graft", matcher="text", threshold=1.0).advantage
        np.testing.assert_allclose(similar, assign(turns, "graft").advantage, atol=1e-9)


def test_diagnostics() -> None:
    found = graft(Turns.from_episodes(two_choices())).diagnostics
    assert found["groups"]["count"] == 3
    assert found["groups"]["shared"] == 1
    # Every state reaches both W (A, C, D) and L (B) except none: x and y lead to all four endings.
    assert found["propagation_degree"]["min"] == 4
    assert found["solver_residual"] < 1e-15
