"""gae: against plain loops, its special cases, and values that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import batch, chain
from reference.gae import gae as reference
from stepcredit.core.errors import InputError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.groups import step_returns


def test_equals_the_slow_reference() -> None:
    for seed in range(300):
        episodes = batch(seed)
        turns = Turns.from_episodes(episodes)
        values = np.random.default_rng([seed]).normal(size=len(turns))
        gamma, lam = ((0.95, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5))[seed % 4]
        fast = assign(turns, "gae", values=values, gamma=gamma, lam=lam).advantage
        np.testing.assert_allclose(fast, reference(episodes, values.tolist(), gamma, lam), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_lambda_one_is_the_step_return_less_the_value(seed: int) -> None:
    turns = Turns.from_episodes(batch(seed))
    values = np.random.default_rng([seed]).normal(size=len(turns))
    credit = assign(turns, "gae", values=values, lam=1.0)
    np.testing.assert_allclose(credit.advantage, step_returns(turns, 0.95) - values - turns.penalty, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_lambda_zero_is_one_step_and_zero_values_leave_a_step_return(seed: int) -> None:
    turns = Turns.from_episodes(batch(seed))
    one_step = assign(turns, "gae", values=turns.nll, lam=0.0)
    np.testing.assert_allclose(one_step.advantage, one_step.components["delta"] - turns.penalty, atol=1e-12)
    plain = assign(turns, "gae", values=np.zeros(len(turns)), gamma=0.9, lam=0.5).advantage
    np.testing.assert_allclose(plain, step_returns(turns, 0.45) - turns.penalty, atol=1e-9)


def test_exact_values_leave_no_credit() -> None:
    # V is what really follows, so no turn was better or worse than expected.
    turns = Turns.from_episodes([chain("t", "A", ["s", "u", "v"], rewards=[1, 0, 2])])
    assert assign(turns, "gae", values=step_returns(turns, 0.95)).advantage == pytest.approx([0, 0, 0], abs=1e-15)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "needs 'values': pass an array with one number a turn"),
        (np.zeros(2), r"'values' has shape \(2,\), expected \(3,\)"),
        (np.zeros((3, 1)), r"'values' has shape \(3, 1\), expected \(3,\)"),
        (np.array([0, np.nan, 0]), "'values' is nan in row 1, expected a finite number"),
    ],
)
def test_values_that_do_not_fit(values: np.ndarray | None, message: str) -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "u", "v"])])
    with pytest.raises(InputError, match=message):
        assign(turns, "gae", values=values)
