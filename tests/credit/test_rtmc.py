"""rtmc: against plain loops, and what an action is worth where it was the only one."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import chain
from reference.compare import assert_matches_reference
from reference.rtmc import rtmc as reference
from stepcredit.core.turns import Turns
from stepcredit.credit.state_groups import rtmc


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    options = [{}, {"gamma": 1.0}, {"shrinkage": 2.5}, {"gamma": 0.0, "shrinkage": 1.0}]
    assert_matches_reference("rtmc", reference, options, range(block * 100, block * 100 + 100))


def three_choices() -> Turns:
    """In s: left twice (returns 1 and 0), right once (return 1)."""
    made = [("left", 1), ("left", 0), ("right", 1)]
    return Turns.from_episodes(
        [chain("t", f"{i}", ["s"], actions=[action], rewards=[value]) for i, (action, value) in enumerate(made)]
    )


def test_mean_of_the_action_less_mean_of_the_state() -> None:
    np.testing.assert_allclose(rtmc(three_choices()).advantage, [1 / 2 - 2 / 3, 1 / 2 - 2 / 3, 1 - 2 / 3])


def test_shrinkage_counts_the_actions_visits() -> None:
    expected = np.array([2 / 3 * (1 / 2 - 2 / 3)] * 2 + [1 / 2 * (1 - 2 / 3)])
    np.testing.assert_allclose(rtmc(three_choices(), shrinkage=1.0).advantage, expected)


def test_one_action_is_worth_what_its_state_is() -> None:
    turns = Turns.from_episodes([chain("t", f"{i}", ["s", "u"], rewards=[0.1, i / 7]) for i in range(9)])
    assert rtmc(turns).advantage.tolist() == [0] * 18


def test_credit_of_a_state_sums_to_zero_without_shrinkage() -> None:
    assert rtmc(three_choices()).advantage.sum() == pytest.approx(0, abs=1e-12)
