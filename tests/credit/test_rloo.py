"""rloo: against plain loops, and which member is left out."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import chain
from reference.compare import assert_matches_reference
from reference.rloo import rloo as reference
from stepcredit.core.turns import Turns
from stepcredit.credit.episode_level import grpo, rloo


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    options = [{}, {"statistics": "turn"}, {"statistics": "episode"}]
    assert_matches_reference("rloo", reference, options, range(block * 100, block * 100 + 100))


def test_leaving_out_an_episode_or_a_row() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s"] * 3, rewards=[0, 0, 1]), chain("t", "B", ["s"])])
    np.testing.assert_allclose(rloo(turns).advantage, [1, 1, 1, -1])
    np.testing.assert_allclose(rloo(turns, statistics="turn").advantage, [1 / 3, 1 / 3, 1 / 3, -1])


def test_is_grpo_without_deviation_scaled_by_n_over_n_minus_one() -> None:
    turns = Turns.from_episodes(
        [chain("t", f"{index}", ["s"] * (index + 1), rewards=[index] * (index + 1)) for index in range(4)]
    )
    centred = grpo(turns, normalize="mean", statistics="episode").advantage
    np.testing.assert_allclose(rloo(turns).advantage, 4 / 3 * centred)


def test_a_lone_episode_gets_zero() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "u"], rewards=[0, 5])])
    assert rloo(turns).advantage.tolist() == [0, 0]


def test_equal_returns_are_exactly_zero_whatever_their_rounding() -> None:
    rewards = ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.6, 0, 0])  # sums differ in the last bit
    turns = Turns.from_episodes([chain("t", f"{i}", ["s"] * 3, rewards=list(r)) for i, r in enumerate(rewards)])
    assert rloo(turns).advantage.tolist() == [0] * 9
