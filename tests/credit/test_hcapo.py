"""hcapo: against plain loops, the ratio by hand, and what a successful episode is spared."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import batch, chain
from reference.grpo import grpo as reference_grpo
from reference.hcapo import hcapo as reference
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import InputError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.episode_level import grpo


def test_equals_the_slow_reference() -> None:
    for seed in range(300):
        episodes = batch(seed)
        turns = Turns.from_episodes(episodes)
        given = -np.random.default_rng([seed]).random(len(turns)) * (seed % 7 > 0)
        options = ({}, {"gamma": 1.0, "weight": 0.3}, {"gamma": 0.5})[seed // 2 % 3]
        fast = assign(turns, "hcapo", hindsight=given, **options).advantage
        slow = reference(episodes, given.tolist(), reference_grpo(episodes), **options)
        np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9)


def test_the_ratio_is_clipped_around_the_paths_mean() -> None:
    episodes = [
        chain("t", "A", ["s", "u", "v"], rewards=[0, 0, 1], success=True),
        chain("t", "B", ["v"], parent=Parent("A", 2)),
    ]
    given = np.array([-1.0, -1.1, -3.9, -0.9])
    ratio = assign(Turns.from_episodes(episodes), "hcapo", hindsight=given).components["ratio"]
    # A's mean is −2; B's path is A's first two turns and its own: mean −1.
    np.testing.assert_allclose(ratio, [0.8, 0.8, 1.2, 0.9])


def test_a_successful_episode_is_never_charged() -> None:
    for seed in range(100):
        turns = Turns.from_episodes(batch(seed))
        given = -np.random.default_rng([seed]).random(len(turns))
        step = assign(turns, "hcapo", hindsight=given).components["step"]
        assert (step[turns.success[turns.episode]] >= 0).all()
    assert (step[~turns.success[turns.episode]] < 0).any()


def test_zero_returns_leave_the_base() -> None:
    turns = Turns.from_episodes([chain("t", f"{i}", ["s", "u"], penalties=[0.1 * i, 0]) for i in range(3)])
    credit = assign(turns, "hcapo", hindsight=np.arange(6.0))
    np.testing.assert_array_equal(credit.advantage, grpo(turns).advantage)


def test_it_needs_hindsight() -> None:
    with pytest.raises(InputError, match="'hcapo' needs 'hindsight': pass an array"):
        assign(Turns.from_episodes(batch(0)), "hcapo")
