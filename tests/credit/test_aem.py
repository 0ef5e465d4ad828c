"""aem: against plain loops, isolation of task groups, and when nothing changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reference.aem import aem as reference
from reference.batches import batch, chain
from reference.grpo import grpo as reference_grpo
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.episode_level import grpo
from stepcredit.credit.modulation import aem


def test_equals_the_slow_reference() -> None:
    for seed in range(300):
        episodes, rate = batch(seed), (1.0, 0.3, 5.0)[seed // 2 % 3]
        fast = assign(Turns.from_episodes(episodes), "aem", rate=rate).advantage
        np.testing.assert_allclose(fast, reference(episodes, reference_grpo(episodes), rate), atol=1e-9)


def test_by_hand() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "u"], rewards=[0, 1]), chain("t", "B", ["s"])])
    turns = dataclasses.replace(turns, entropy=np.array([2.0, 4.0, 3.0]))
    factor = np.exp(-np.array([0, 1, 0.5]))
    credit = aem(turns, base="grpo:normalize=mean")
    np.testing.assert_allclose(credit.advantage, np.array([1 / 3, 1 / 3, -2 / 3]) * factor / factor.mean())


@pytest.mark.parametrize("seed", range(10))
def test_rate_zero_changes_nothing(seed: int) -> None:
    turns = Turns.from_episodes(batch(seed))
    np.testing.assert_allclose(aem(turns, rate=0).advantage, grpo(turns).advantage, atol=1e-15)


def test_equal_entropies_in_a_group_change_nothing() -> None:
    # The helper records 0.5 everywhere.
    turns = Turns.from_episodes([chain("t", f"{i}", ["s"], rewards=[i]) for i in range(3)])
    np.testing.assert_allclose(aem(turns).advantage, grpo(turns).advantage)


def test_a_modulation_can_modulate_another() -> None:
    turns = Turns.from_episodes(batch(4))
    twice = assign(turns, "aem", base="aem:rate=2", rate=1.0)
    once = assign(turns, "aem", rate=2.0)
    np.testing.assert_allclose(twice.advantage, once.advantage * twice.components["weight"])
