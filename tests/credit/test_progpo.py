"""progpo: against plain loops, and what is new on a path."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import batch, chain, long_branch_chain
from reference.grpo import grpo as reference_grpo
from reference.progpo import progpo as reference
from reference.rows import all_rows
from stepcredit.core.episodes import Episode, Parent
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.episode_level import grpo
from stepcredit.credit.modulation import first_visits


def failing(seed: int) -> list[Episode]:
    """A random batch of which every second one has no success at all."""
    return [Episode(e.task, e.episode, e.turns, e.final_observation, False, e.parent) for e in batch(seed)]


def test_equals_the_slow_reference() -> None:
    for seed in range(400):
        episodes = failing(seed) if seed % 3 == 0 else batch(seed)
        normalize = ("mean_std", "mean")[seed // 2 % 2]
        fast = assign(Turns.from_episodes(episodes), "progpo", normalize=normalize).advantage
        slow = reference(episodes, reference_grpo(episodes), normalize)
        np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9, err_msg=str(seed))


def test_first_visits_equal_a_search_along_the_path() -> None:
    for episodes in [*map(batch, range(200)), long_branch_chain(40)]:
        expected = [row.next_state not in row.history for row in all_rows(episodes)]
        assert first_visits(Turns.from_episodes(episodes)).tolist() == expected


def test_new_ground_by_hand() -> None:
    episodes = [
        chain("t", "A", ["s", "u", "s", "v"], end="v"),
        chain("t", "B", ["s", "s"], end="w", parent=Parent("A", 2)),
    ]
    credit = assign(Turns.from_episodes(episodes), "progpo", normalize="mean")
    # A: u new, back to s, v new, v again. B was in s and u by replay: s again, w new.
    assert credit.components["coverage"].tolist() == [1, 0, 1, 0, 0, 1]
    np.testing.assert_allclose(credit.advantage, [0.5, -0.5, 0.5, -0.5, -0.5, 0.5])
    assert credit.diagnostics["failed_groups"] == 1


def test_one_success_gives_the_whole_group_its_outcome_credit() -> None:
    episodes = [
        chain("won", "A", ["s", "u"], rewards=[0, 1], success=True),
        chain("won", "B", ["s", "s"], end="s"),
        chain("lost", "C", ["s", "s"], end="s"),
    ]
    turns = Turns.from_episodes(episodes)
    credit = assign(turns, "progpo")
    np.testing.assert_array_equal(credit.advantage[:4], grpo(turns).advantage[:4])
    assert credit.advantage[4:].tolist() == [0, 0]


@pytest.mark.parametrize("states", [["s", "s", "s"], ["a", "b", "c"]])
def test_equal_coverage_gives_exact_zeros(states: list[str]) -> None:
    episodes = [chain("t", f"{i}", states, end=states[0] if states[0] == "s" else "d") for i in range(3)]
    assert assign(Turns.from_episodes(episodes), "progpo").advantage.tolist() == [0] * 9
