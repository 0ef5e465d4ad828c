"""reinforce_pp: against plain loops, and the coupling of tasks that batch whitening brings."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import batch, chain
from reference.compare import assert_matches_reference
from reference.reinforce_pp import reinforce_pp as reference
from stepcredit.core.turns import Turns
from stepcredit.credit.episode_level import grpo, reinforce_pp


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("reinforce_pp", reference, [{}], range(block * 100, block * 100 + 100))


@pytest.mark.parametrize("seed", range(40))
def test_is_white_over_the_batch(seed: int) -> None:
    advantage = reinforce_pp(Turns.from_episodes(batch(seed))).advantage
    if advantage.any():
        assert abs(advantage.mean()) < 1e-9
        assert advantage.std(ddof=1) == pytest.approx(1, abs=1e-4)


def test_with_one_task_it_is_grpo() -> None:
    turns = Turns.from_episodes([chain("t", f"{i}", ["s"] * (i + 1), rewards=[i] * (i + 1)) for i in range(4)])
    np.testing.assert_allclose(reinforce_pp(turns).advantage, grpo(turns).advantage, rtol=1e-12)


def test_one_tasks_spread_scales_anothers_credit() -> None:
    small = [chain("a", f"a{i}", ["s"], rewards=[i]) for i in range(2)]
    large = [chain("b", f"b{i}", ["s"], rewards=[100 * i]) for i in range(2)]
    alone = reinforce_pp(Turns.from_episodes(small)).advantage
    together = reinforce_pp(Turns.from_episodes(small + large)).advantage[:2]
    np.testing.assert_allclose(alone, [-0.707106, 0.707106], atol=2e-6)
    np.testing.assert_allclose(together, np.array([-0.5, 0.5]) / np.std([-0.5, 0.5, -50, 50], ddof=1), rtol=1e-6)
