"""bipace: against plain loops, the leave-one-out fallback, and clusters around centroids."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reference.batches import chain
from reference.bipace import bipace as reference
from reference.compare import assert_matches_reference
from stepcredit.core.turns import Turns
from stepcredit.credit.state_groups import bipace, rtmc

OPTIONS = [
    {"gamma": gamma, "normalize": normalize, "step_weight": weight}
    for gamma, normalize, weight in itertools.product((0.95, 1.0), ("mean", "mean_std"), (0.5, 1))
]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("bipace", reference, [{}, *OPTIONS], range(block * 100, block * 100 + 100))


def test_repeated_actions_use_their_peers_and_single_ones_leave_themselves_out() -> None:
    made = [("left", 1), ("left", 0), ("right", 1)]
    turns = Turns.from_episodes(
        [chain("t", f"{i}", ["s"], actions=[action], rewards=[value]) for i, (action, value) in enumerate(made)]
    )
    np.testing.assert_allclose(bipace(turns).components["step"], [1 / 2 - 2 / 3, 1 / 2 - 2 / 3, 1 - 1 / 2])


def test_a_state_seen_once_gives_zero() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s"], rewards=[1]), chain("t", "B", ["u"])])
    assert bipace(turns).components["step"].tolist() == [0, 0]


def test_where_every_action_repeats_the_step_term_is_rtmc() -> None:
    turns = Turns.from_episodes(
        [chain("t", f"{i}", ["s", "u"], actions=[f"{i % 2}"] * 2, rewards=[i, 1]) for i in range(6)]
    )
    np.testing.assert_array_equal(bipace(turns).components["step"], rtmc(turns).advantage)
