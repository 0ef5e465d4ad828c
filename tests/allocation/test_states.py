"""State groups of hand-made batches."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from stepcredit.allocation.states import StateGroup, Visits, identity, state_groups
from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.turns import Turns


def episode(name: str, states: str, *, success: bool, task: str = "t", parent: Parent | None = None) -> Episode:
    turns = tuple(Turn(observation=state, action="go") for state in states)
    return Episode(task, name, turns, "end", success, parent)


ROOTS = [
    episode("r0", "abca", success=False),
    episode("r1", "bad", success=False),
    episode("r2", "ad", success=True),
    episode("u0", "ab", success=True, task="u"),
]


def by_key(groups: list[StateGroup]) -> dict[tuple[str, str], StateGroup]:
    return {(group.task, group.state): group for group in groups}


def test_groups_of_root_episodes() -> None:
    groups = state_groups(Turns.from_episodes(ROOTS), horizon=10)
    assert [(group.task, group.state) for group in groups] == [
        ("t", "a"),
        ("t", "b"),
        ("t", "c"),
        ("t", "d"),
        ("u", "a"),
        ("u", "b"),
    ]
    found = by_key(groups)
    # r0 passes a twice but counts once
    assert found["t", "a"].visits == (Visits("r0", 0, 1), Visits("r1", 0, 1), Visits("r2", 1, 0))
    assert (found["t", "a"].depth, found["t", "a"].occurrence) == (0, Parent("r0", 0))
    assert (found["t", "b"].depth, found["t", "b"].occurrence) == (0, Parent("r1", 0))
    assert (found["t", "c"].depth, found["t", "c"].horizon) == (2, 10)
    assert found["t", "d"].visits == (Visits("r1", 0, 1), Visits("r2", 1, 0))
    assert [group.state for group in groups if group.branchable] == ["b", "c", "a", "b"]


def test_final_observations_are_not_states_of_a_turn() -> None:
    assert "end" not in {group.state for group in state_groups(Turns.from_episodes(ROOTS), horizon=10)}


def test_the_earliest_replayable_occurrence_represents_the_group() -> None:
    turns = Turns.from_episodes(ROOTS)
    replayable = np.ones(len(turns), dtype=np.bool_)
    replayable[[0, 7]] = False  # a at the start of r0 and of r2
    found = by_key(state_groups(turns, horizon=10, replayable=replayable))
    assert (found["t", "a"].depth, found["t", "a"].occurrence) == (1, Parent("r1", 1))
    replayable[2] = False  # c, visited once
    lost = by_key(state_groups(turns, horizon=10, replayable=replayable))["t", "c"]
    assert (lost.depth, lost.occurrence, lost.branchable) == (2, None, False)
    assert lost.visits == (Visits("r0", 0, 1),)


def test_a_forest_counts_branches_where_they_went_not_at_their_prefix() -> None:
    forest = [
        *ROOTS,
        episode("r0/c", "cdx", success=True, parent=Parent("r0", 2)),
        episode("r0/c/x", "xb", success=False, parent=Parent("r0/c", 2)),
    ]
    found = by_key(state_groups(Turns.from_episodes(forest), horizon=10))
    assert found["t", "a"].visits == (Visits("r0", 0, 1), Visits("r1", 0, 1), Visits("r2", 1, 0))
    assert found["t", "c"].visits == (Visits("r0", 1, 1),)
    assert found["t", "d"].visits == (Visits("r0", 1, 0), Visits("r1", 0, 1), Visits("r2", 1, 0))
    # only branches went to x: it is remembered, but nothing can branch there by a root's occurrence
    assert found["t", "x"].visits == (Visits("r0", 1, 1),)
    assert (found["t", "x"].depth, found["t", "x"].occurrence) == (4, None)
    assert found["t", "b"].visits == (Visits("r0", 0, 2), Visits("r1", 0, 1))


@pytest.mark.parametrize(
    ("visits", "depth", "occurrence", "expected"),
    [
        ((Visits("e", 0, 1), Visits("f", 0, 1)), 3, Parent("e", 3), True),
        ((Visits("e", 1, 0),), 3, Parent("e", 3), True),
        ((Visits("e", 1, 0), Visits("f", 0, 1)), 3, Parent("e", 3), False),
        ((Visits("e", 1, 0),), 4, Parent("e", 4), False),  # the horizon is 4: no turn is left
        ((Visits("e", 1, 0),), 3, None, False),
        ((), 3, Parent("e", 3), False),
    ],
)
def test_branchable(visits: tuple[Visits, ...], depth: int, occurrence: Parent | None, expected: bool) -> None:
    assert StateGroup("t", "s", depth, 4, occurrence, visits).branchable is expected


def test_identity_is_equal_in_every_process() -> None:
    code = "from stepcredit.allocation.states import identity; print(identity(3, 'task', 'state').hex())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert printed == {identity(3, "task", "state").hex()}
    assert len({identity("ab", "c"), identity("a", "bc"), identity("abc"), identity("lone \ud800")}) == 4
