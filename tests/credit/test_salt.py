"""salt: against plain loops, and which rows merge."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import batch, chain
from reference.compare import assert_matches_reference
from reference.salt import salt as reference
from stepcredit.core.turns import Turns
from stepcredit.credit.episode_level import grpo
from stepcredit.credit.graph_baselines import salt


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    options = [{}, {"statistics": "episode"}, {"normalize": "mean"}]
    assert_matches_reference("salt", reference, options, range(block * 150, block * 150 + 150))


def test_what_both_did_is_judged_by_both() -> None:
    episodes = [
        chain("t", "A", ["s", "u"], actions=["go", "left"], rewards=[0, 1]),
        chain("t", "B", ["s", "u"], actions=["go", "right"], rewards=[0, 0]),
    ]
    credit = salt(Turns.from_episodes(episodes), normalize="mean")
    np.testing.assert_allclose(credit.advantage, [0, 0.5, 0, -0.5])
    np.testing.assert_allclose(credit.components["step"], [-0.5, 0, 0.5, 0])


def test_where_the_turn_leads_counts() -> None:
    episodes = [
        chain("t", "A", ["s", "u"], rewards=[0, 1]),
        chain("t", "B", ["s", "v"], rewards=[0, 0]),
    ]
    turns = Turns.from_episodes(episodes)
    np.testing.assert_array_equal(salt(turns).advantage, grpo(turns).advantage)


def test_credit_of_the_batch_keeps_its_sum() -> None:
    for seed in range(50):
        turns = Turns.from_episodes(batch(seed))
        assert salt(turns).advantage.sum() == pytest.approx(grpo(turns).advantage.sum(), abs=1e-9)


def test_equal_credit_on_one_edge_is_kept_to_the_last_bit() -> None:
    episodes = [chain("t", f"{i}", ["s"], actions=[f"{i % 2}"], rewards=[0.3 * (i % 2)]) for i in range(6)]
    turns = Turns.from_episodes(episodes)
    np.testing.assert_array_equal(salt(turns).advantage, grpo(turns).advantage)
