"""dpepo (contrib): against plain loops, and what counts as new."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import batch, chain
from reference.compare import assert_matches_reference
from reference.dpepo import dpepo as reference
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.episode_level import grpo


@pytest.mark.parametrize("block", range(3))
def test_equals_the_slow_reference(block: int) -> None:
    options = [{}, {"action_weight": 0.0, "normalize": "mean"}, {"transition_weight": 1.0}]
    assert_matches_reference("dpepo", reference, options, range(block * 100, block * 100 + 100))


def test_what_others_did_not_do_is_worth_a_bonus() -> None:
    episodes = [
        chain("t", "A", ["s"], end="x", actions=["left"]),
        chain("t", "B", ["s"], end="x", actions=["left"]),
        chain("t", "C", ["s"], end="x", actions=["right"]),
    ]
    step = assign(Turns.from_episodes(episodes), "dpepo", action_weight=1.0).components["step"]
    # Novelty of left: one of two others did it too, ½. Of right: 1. All reach x, so transitions are not new.
    np.testing.assert_allclose(step, [0.5 - 2 / 3, 0.5 - 2 / 3, 1 - 2 / 3])


def test_repeating_oneself_is_neither_new_nor_old() -> None:
    once = [chain("t", "A", ["s"], actions=["left"]), chain("t", "B", ["s"], actions=["right"])]
    often = [chain("t", "A", ["s"] * 4, actions=["left"] * 4), once[1]]
    for episodes in (once, often):
        bonus = assign(Turns.from_episodes(episodes), "dpepo", transition_weight=0.0).components["step"]
        assert not bonus.any()


def test_the_bonus_moves_credit_within_a_task_and_adds_none() -> None:
    for seed in range(50):
        turns = Turns.from_episodes(batch(seed))
        step = assign(turns, "dpepo").components["step"]
        np.testing.assert_allclose(np.bincount(turns.task, weights=step), 0, atol=1e-9)


def test_a_lone_episode_gets_no_bonus() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "u"], rewards=[0, 1])])
    np.testing.assert_array_equal(assign(turns, "dpepo").advantage, grpo(turns).advantage)
