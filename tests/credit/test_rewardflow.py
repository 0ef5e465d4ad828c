"""rewardflow: against plain loops, propagation by hand, the last turn's own reward."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import chain
from reference.compare import assert_matches_reference
from reference.rewardflow import rewardflow as reference
from stepcredit.core.episodes import Episode
from stepcredit.core.turns import Turns
from stepcredit.credit.graph_baselines import rewardflow


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    options = [{}, {"gamma": 1.0, "normalize": "mean"}, {"gamma": 0.0}]
    assert_matches_reference("rewardflow", reference, options, range(block * 150, block * 150 + 150))


def rewards(episodes: list[Episode]) -> list[float]:
    return rewardflow(Turns.from_episodes(episodes)).components["step_reward"].tolist()


def test_the_best_outcome_within_reach() -> None:
    # V: end of A 1, u 0.9, s 0.81, end of B 0. B was in u, so its first turn gains as much as A's.
    episodes = [
        chain("t", "A", ["s", "u"], end="W", rewards=[0, 10], success=True),
        chain("t", "B", ["s", "u"], end="L", rewards=[0, -2]),
    ]
    assert rewards(episodes) == pytest.approx([0.09, 10, 0.09, -2])


def test_a_detour_costs_what_it_walks_back() -> None:
    episodes = [chain("t", "A", ["s", "u", "s", "u"], end="W", success=True)]
    assert rewards(episodes) == pytest.approx([0.09, -0.09, 0.09, 0])


def test_outcomes_of_one_sink_pool() -> None:
    episodes = [chain("t", f"{i}", ["s", "u"], end="x", success=i == 0) for i in range(4)]
    assert rewards(episodes)[::2] == pytest.approx([(0.9 - 0.81) / 4] * 4)


def test_failure_everywhere_leaves_the_environments_rewards_only() -> None:
    episodes = [chain("t", f"{i}", ["s", "u"], end="x", rewards=[5, i]) for i in range(2)]
    assert rewards(episodes) == [0, 0, 0, 1]
    np.testing.assert_array_equal(rewardflow(Turns.from_episodes(episodes)).components["step"][::2], [0, 0])
