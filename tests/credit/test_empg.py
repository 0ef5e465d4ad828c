"""empg: against plain loops, the scaling and the bonus by hand, what it needs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reference.batches import batch, chain
from reference.empg import empg as reference
from reference.graft import graft as reference_graft
from reference.grpo import grpo as reference_grpo
from stepcredit.core.errors import InputError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.episode_level import grpo
from stepcredit.credit.modulation import empg

OPTIONS = [{}, {"scale_rate": 2.0, "clarity_weight": 0.0}, {"scale_rate": 0.0, "clarity_rate": 3.0}]


def test_equals_the_slow_reference() -> None:
    for seed in range(300):
        episodes, options = batch(seed), OPTIONS[seed // 2 % len(OPTIONS)]
        fast = assign(Turns.from_episodes(episodes), "empg", **options).advantage
        np.testing.assert_allclose(fast, reference(episodes, reference_grpo(episodes), **options), atol=1e-9)


def test_any_method_with_its_options_can_be_the_base() -> None:
    for seed in range(40):
        episodes = batch(seed)
        base = reference_graft(episodes, lam=0.5, value_weighting="action")
        fast = assign(Turns.from_episodes(episodes), "empg", base="graft:lam=0.5,value_weighting=action")
        np.testing.assert_allclose(fast.advantage, reference(episodes, base), atol=1e-9)
        np.testing.assert_allclose(fast.components["base"], base, atol=1e-9)


def two_turns(first: float, second: float) -> Turns:
    """Two episodes of two turns; the winner's entropies are given, the loser's are 0 and 1."""
    turns = Turns.from_episodes([chain("t", "A", ["s", "u"], rewards=[0, 1]), chain("t", "B", ["s", "u"])])
    return dataclasses.replace(turns, entropy=np.array([first, second, 0.0, 1.0]))


def test_scaling_and_bonus_by_hand() -> None:
    credit = empg(two_turns(0.5, 0.0), base="grpo:normalize=mean")
    factor = np.exp(-np.array([0.5, 0, 0, 1]))
    np.testing.assert_allclose(credit.components["weight"], factor / factor.mean())
    np.testing.assert_allclose(credit.components["bonus"], 0.05 * np.array([1, 0, np.exp(-1), 0]))
    raw = np.array([0.5, 0.5, -0.5, -0.5]) * factor / factor.mean() + credit.components["bonus"]
    np.testing.assert_allclose(credit.advantage, raw - raw.mean())


def test_credit_is_centred_and_the_weight_has_mean_one() -> None:
    for seed in range(50):
        credit = empg(Turns.from_episodes(batch(seed)))
        assert credit.advantage.mean() == pytest.approx(0, abs=1e-12)
        assert credit.components["weight"].mean() == pytest.approx(1)


def test_equal_entropies_leave_the_base_without_a_bonus() -> None:
    turns = two_turns(0.5, 0.5)
    even = dataclasses.replace(turns, entropy=np.full(4, 0.3))
    np.testing.assert_allclose(empg(even, clarity_weight=0).advantage, grpo(turns).advantage)


def test_it_needs_entropy_on_every_turn() -> None:
    turns = dataclasses.replace(two_turns(0.5, 0.5), entropy=np.array([0.1, np.nan, 0.2, 0.3]))
    with pytest.raises(InputError, match="'empg' needs 'entropy' on every turn, but turn 1 of episode 'A' has none"):
        empg(turns)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("gipgo", "Did you mean 'gigpo'"),
        ("graft:lma=1", "Did you mean 'lam'"),
        ("graft:lam", "Option 'base': got 'lam', expected name=value"),
    ],
)
def test_a_base_that_does_not_exist(base: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        assign(two_turns(0.1, 0.2), "empg", base=base)
