"""treepo (contrib): against plain loops, subtrees by hand, chains."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import chain, long_branch_chain, random_chains
from reference.compare import assert_matches_reference
from reference.treepo import treepo as reference
from stepcredit.core.episodes import Parent
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.groups import episode_returns


@pytest.mark.parametrize("block", range(3))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("treepo", reference, [{}], range(block * 150, block * 150 + 150))


def test_every_subtree_a_turn_lies_in_by_hand() -> None:
    episodes = [
        chain("t", "A", ["s", "u", "v"], rewards=[0, 0, 4]),
        chain("t", "B", ["v"], rewards=[0], parent=Parent("A", 2)),
        chain("t", "C", ["u"], rewards=[8], parent=Parent("A", 1)),
    ]
    # Under u: 4, 0, 8; under v: 4, 0. A's first turn lies under no split, and A is the task's only root.
    expected = [0, 2 - 4, ((4 - 4) + (4 - 2)) / 2, ((0 - 4) + (0 - 2)) / 2, 8 - 4]
    np.testing.assert_allclose(assign(Turns.from_episodes(episodes), "treepo").advantage, expected)


def test_on_chains_it_is_the_return_less_the_tasks_mean() -> None:
    for seed in range(50):
        turns = Turns.from_episodes(random_chains(seed))
        returns = episode_returns(turns)
        size = np.bincount(turns.episode_task)
        mean = np.bincount(turns.episode_task, weights=returns) / size
        expected = (returns - mean[turns.episode_task])[turns.episode]
        np.testing.assert_allclose(assign(turns, "treepo").advantage, expected, atol=1e-9)


@pytest.mark.parametrize("value", [0.35, 0.1, 1 / 3])
def test_equal_returns_are_exactly_zero(value: float) -> None:
    episodes = [chain("t", "0", ["s", "u", "v"], rewards=[0, 0, value])]
    episodes += [chain("t", f"{i}", ["u"], rewards=[value], parent=Parent("0", i % 3)) for i in range(1, 8)]
    episodes += [chain("t", "other", ["s"], rewards=[value])]
    assert assign(Turns.from_episodes(episodes), "treepo").advantage.tolist() == [0] * 11


def test_thousands_of_branches_of_branches_need_no_recursion() -> None:
    turns = Turns.from_episodes(long_branch_chain(2000))
    assert np.isfinite(assign(turns, "treepo").advantage).all()
