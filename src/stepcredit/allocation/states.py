"""State groups: the visits of one state within one task, gathered from a table of turns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepcredit.core.credit import BoolArray, IntArray
from stepcredit.core.episodes import Parent
from stepcredit.core.turns import NO_EPISODE, Turns


class Visits(NamedTuple):
    """Outcomes that one sampling cluster (a root episode with its branches) saw after passing a state."""

    cluster: str
    successes: int
    failures: int


@dataclass(frozen=True, slots=True)
class StateGroup:
    """One (task, state) of a batch.

    Attributes:
        task, state: task name and state key.
        depth: 0-based turn at which the representative occurrence stands on its path.
        horizon: turns an episode may take in all; ``horizon − depth`` is the deadline of a suffix.
        occurrence: where a branch would leave, as its ``Parent``; None where no occurrence can be replayed.
        visits: per cluster, sorted by first appearance in the batch.
        capacity: most suffixes this occurrence can take; None for the allocator's own limit.
    """

    task: str
    state: str
    depth: int
    horizon: int
    occurrence: Parent | None
    visits: tuple[Visits, ...]
    capacity: int | None = None

    @property
    def successes(self) -> int:
        """Successful outcomes over all clusters."""
        return sum(visit.successes for visit in self.visits)

    @property
    def failures(self) -> int:
        """Failed outcomes over all clusters."""
        return sum(visit.failures for visit in self.visits)

    @property
    def branchable(self) -> bool:
        """Whether it is a candidate: equal outcomes, a replayable occurrence, and turns left before the deadline."""
        uniform = (self.successes == 0) != (self.failures == 0)
        return uniform and self.occurrence is not None and self.depth < self.horizon


def state_groups(turns: Turns, *, horizon: int, replayable: BoolArray | None = None) -> list[StateGroup]:
    """Gather every (task, state) that an episode's own turns visited, in order of first appearance.

    An episode counts once per state, with its outcome, however often it returns. A branch counts at the state it left
    from and at the states it visited itself, not at its replayed prefix: those were passed on the way to a chosen
    state, so that its outcome says nothing unbiased about them.

    Args:
        turns: complete episodes; roots only to find candidates, the whole forest to remember a round.
        horizon: turns an episode may take in all.
        replayable: ``[N]`` whether the occurrence each row leaves can be reached again; None means all.

    Returns:
        Groups whose representative is the earliest replayable occurrence on a root episode (smallest depth, then first
        in the batch). Where there is none, ``occurrence`` is None and ``depth`` the smallest over all visits.
    """
    rows = len(turns)
    first_row = np.full(len(turns.state_names), rows)
    np.minimum.at(first_row, turns.state, np.arange(rows))
    usable = turns.episode_parent[turns.episode] == NO_EPISODE
    if replayable is not None:
        usable = usable & replayable
    representative = _earliest(turns.state, turns.depth, usable)
    anywhere = _earliest(turns.state, turns.depth, np.ones(rows, dtype=np.bool_))
    visits = _visits(turns)
    groups = []
    for state in np.argsort(first_row, kind="stable").tolist():
        if first_row[state] == rows:
            continue  # a final observation that no turn left
        row = representative.get(state)
        shown = anywhere[state] if row is None else row
        occurrence = None if row is None else Parent(turns.episode_names[turns.episode[row]], int(turns.turn[row]))
        groups.append(
            StateGroup(
                task=turns.task_names[turns.task[shown]],
                state=turns.state_names[state],
                depth=int(turns.depth[shown]),
                horizon=horizon,
                occurrence=occurrence,
                visits=visits[state],
            )
        )
    return groups


def identity(*parts: object) -> bytes:
    """16 bytes that stand for a sequence of names or numbers, equal in every process."""
    text = "\0".join(map(str, parts))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _earliest(state: IntArray, depth: IntArray, usable: BoolArray) -> dict[int, int]:
    """Per state, its usable row of smallest depth, the first in the batch among equals."""
    rows = np.flatnonzero(usable)
    rows = rows[np.lexsort((rows, depth[rows], state[rows]))]
    states, first = np.unique(state[rows], return_index=True)
    return dict(zip(states.tolist(), rows[first].tolist(), strict=True))


def _root_of(turns: Turns) -> IntArray:
    """``[E]`` the root episode each episode descends from."""
    root = np.arange(len(turns.episode_parent), dtype=np.int32)
    parent = np.where(turns.episode_parent == NO_EPISODE, root, turns.episode_parent)
    while (parent[root] != root).any():
        root = parent[root]
    return root


def _visits(turns: Turns) -> dict[int, tuple[Visits, ...]]:
    """Per state, the outcomes by cluster."""
    passed = np.unique(np.stack([turns.state, turns.episode], axis=1), axis=0)
    cluster = _root_of(turns)[passed[:, 1]]
    success = turns.success[passed[:, 1]]
    pairs, member = np.unique(np.stack([passed[:, 0], cluster], axis=1), axis=0, return_inverse=True)
    successes = np.bincount(member.ravel(), weights=success, minlength=len(pairs))
    total = np.bincount(member.ravel(), minlength=len(pairs))
    visits: dict[int, list[Visits]] = {}
    for (state, root), won, seen in zip(pairs.tolist(), successes.astype(int).tolist(), total.tolist(), strict=True):
        visits.setdefault(state, []).append(Visits(turns.episode_names[root], won, seen - won))
    return {state: tuple(found) for state, found in visits.items()}
