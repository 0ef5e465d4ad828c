"""Turns: the flat table every estimator reads, one row a turn, columns of numbers.

``N`` turns, ``E`` episodes. A chain and a tree are the same table: each row is an edge ``occurrence`` →
``next_occurrence``. Strings become integer keys once, while the table is built; equal keys mean equal strings
*within one task*, and keys of different tasks never coincide.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepcredit.core.credit import BoolArray, FloatArray, IntArray
from stepcredit.core.episodes import Episode
from stepcredit.core.errors import InputError

NO_ROW = -1
"""``previous`` of a turn that nothing precedes; ``next`` of the last turn of an episode."""
NO_EPISODE = -1
"""``episode_parent`` of a root episode."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A batch of episodes as columns. Rows stand in file order: episode after episode, turn after turn.

    Per turn, ``[N]``:
        task, episode: index into ``task_names`` and ``episode_names``.
        turn: 0-based index among the episode's own listed turns.
        depth: 0-based time on the physical path (``turn`` plus the replayed prefix's length).
        state, next_state: state key before and after the turn; index into ``state_names``.
        action: key of the parsed command; index into ``action_names``.
        occurrence, next_occurrence: physical node the turn leaves and reaches. Only a branch's first turn shares its
            occurrence with another row (the parent's turn it left from).
        previous: row of the preceding turn on the physical path, ``NO_ROW`` at a root's start.
        reward, penalty: reward units; nll, entropy: nats, NaN where not recorded. valid: bool.

    Per episode, ``[E]``:
        start: ``[E + 1]``, the rows of episode e are ``start[e]:start[e + 1]``.
        episode_task; episode_parent (``NO_EPISODE`` for roots); branch_row (row of the parent's turn whose occurrence
        the branch left from, ``NO_ROW`` for roots); success; score (NaN where absent).
    """

    task: IntArray
    episode: IntArray
    turn: IntArray
    depth: IntArray
    state: IntArray
    next_state: IntArray
    action: IntArray
    occurrence: IntArray
    next_occurrence: IntArray
    previous: IntArray
    reward: FloatArray
    penalty: FloatArray
    nll: FloatArray
    entropy: FloatArray
    valid: BoolArray
    start: IntArray
    episode_task: IntArray
    episode_parent: IntArray
    branch_row: IntArray
    success: BoolArray
    score: FloatArray
    task_names: tuple[str, ...]
    episode_names: tuple[str, ...]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.task)

    @property
    def last(self) -> IntArray:
        """``[E]`` row of each episode's last turn."""
        return self.start[1:] - 1

    @property
    def is_forest(self) -> bool:
        """Whether any episode is a branch."""
        return bool((self.episode_parent != NO_EPISODE).any())

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode]) -> Turns:
        """Build the table. A parent may stand before or after its branches.

        Raises:
            InputError: an episode without turns, a repeated or unknown episode name, a parent turn outside its
                episode, a parent of another task, or a cycle of parents.
        """
        builder = TurnsBuilder()
        for episode in episodes:
            builder.add(episode)
        return builder.build()


class TurnsBuilder:
    """Collects episodes one at a time, so that a file can stream through without its text being kept."""

    def __init__(self) -> None:
        self._tasks: dict[str, int] = {}
        self._episodes: dict[str, int] = {}
        self._states: dict[tuple[int, str], int] = {}
        self._actions: dict[tuple[int, str], int] = {}
        self._parents: list[tuple[str, int] | None] = []
        self._ints: dict[str, array[int]] = {
            name: array("i") for name in ("state", "next_state", "action", "length", "episode_task")
        }
        self._floats: dict[str, array[float]] = {
            name: array("d") for name in ("reward", "penalty", "nll", "entropy", "score")
        }
        self._valid = bytearray()
        self._success = bytearray()

    def add(self, episode: Episode) -> None:
        """Append one episode's rows."""
        if not episode.turns:
            raise InputError(f"Episode {episode.episode!r} has no turns; an episode lists at least one.")
        if episode.episode in self._episodes:
            raise InputError(f"Episode {episode.episode!r} appears twice; names must be unique within a batch.")
        self._episodes[episode.episode] = len(self._episodes)
        task = self._tasks.setdefault(episode.task, len(self._tasks))
        self._parents.append(None if episode.parent is None else (episode.parent.episode, episode.parent.turn))
        states, actions, ints, floats = self._states, self._actions, self._ints, self._floats
        keys: list[int] = []
        for turn in episode.turns:
            key = (task, turn.observation if turn.state is None else turn.state)
            keys.append(states.setdefault(key, len(states)))
            ints["action"].append(actions.setdefault((task, turn.action), len(actions)))
            floats["reward"].append(turn.reward)
            floats["penalty"].append(turn.penalty)
            nll = turn.mean_nll
            floats["nll"].append(np.nan if nll is None else nll)
            floats["entropy"].append(np.nan if turn.entropy is None else turn.entropy)
            self._valid.append(turn.valid)
        final = states.setdefault((task, episode.final_observation), len(states))
        ints["state"].extend(keys)
        ints["next_state"].extend(keys[1:])
        ints["next_state"].append(final)
        ints["length"].append(len(keys))
        ints["episode_task"].append(task)
        floats["score"].append(np.nan if episode.score is None else episode.score)
        self._success.append(episode.success)

    def build(self) -> Turns:
        """The finished table."""
        ints = {name: np.array(values, dtype=np.int32) for name, values in self._ints.items()}
        floats = {name: np.array(values, dtype=np.float64) for name, values in self._floats.items()}
        length = ints["length"]
        start = np.zeros(len(length) + 1, dtype=np.int32)
        np.cumsum(length, out=start[1:])
        count = int(start[-1])
        episode = np.repeat(np.arange(len(length), dtype=np.int32), length)
        turn = np.arange(count, dtype=np.int32) - start[episode]
        parent, branch_row = self._resolve_parents(start, ints["episode_task"])

        previous = np.arange(-1, count - 1, dtype=np.int32)
        first = start[:-1]
        previous[first] = NO_ROW
        depth = turn.copy()
        # Every turn leaves the occurrence its predecessor reached; row r reaches occurrence r, roots add one each.
        next_occurrence = np.arange(count, dtype=np.int32)
        occurrence = next_occurrence - 1
        roots = np.flatnonzero(parent == NO_EPISODE)
        occurrence[first[roots]] = count + np.arange(len(roots), dtype=np.int32)
        for branch in _parents_first(parent, self._names(self._episodes)):
            row, left = first[branch], branch_row[branch]
            previous[row] = previous[left]
            occurrence[row] = occurrence[left]
            depth[row : start[branch + 1]] += depth[left]
        return Turns(
            task=ints["episode_task"][episode],
            episode=episode,
            turn=turn,
            depth=depth,
            state=ints["state"],
            next_state=ints["next_state"],
            action=ints["action"],
            occurrence=occurrence,
            next_occurrence=next_occurrence,
            previous=previous,
            reward=floats["reward"],
            penalty=floats["penalty"],
            nll=floats["nll"],
            entropy=floats["entropy"],
            valid=np.frombuffer(bytes(self._valid), dtype=np.bool_),
            start=start,
            episode_task=ints["episode_task"],
            episode_parent=parent,
            branch_row=branch_row,
            success=np.frombuffer(bytes(self._success), dtype=np.bool_),
            score=floats["score"],
            task_names=self._names(self._tasks),
            episode_names=self._names(self._episodes),
            state_names=tuple(key for _, key in self._states),
            action_names=tuple(key for _, key in self._actions),
        )

    @staticmethod
    def _names(index: dict[str, int]) -> tuple[str, ...]:
        return tuple(index)

    def _resolve_parents(self, start: IntArray, episode_task: IntArray) -> tuple[IntArray, IntArray]:
        """Parent episode and branch row of every episode, checked."""
        parent = np.full(len(self._parents), NO_EPISODE, dtype=np.int32)
        branch_row = np.full(len(self._parents), NO_ROW, dtype=np.int32)
        names = self._names(self._episodes)
        for child, link in enumerate(self._parents):
            if link is None:
                continue
            name, turn = link
            found = self._episodes.get(name)
            if found is None:
                raise InputError(f"Episode {names[child]!r} names the parent {name!r}, which is not in the batch.")
            if episode_task[found] != episode_task[child]:
                raise InputError(f"Episode {names[child]!r} names the parent {name!r}, which belongs to another task.")
            length = int(start[found + 1] - start[found])
            if not 0 <= turn < length:
                raise InputError(
                    f"Episode {names[child]!r} leaves {name!r} at turn {turn}; expected 0 to {length - 1}, "
                    f"the parent's own turns."
                )
            parent[child] = found
            branch_row[child] = start[found] + turn
        return parent, branch_row


def _parents_first(parent: IntArray, names: tuple[str, ...]) -> list[int]:
    """All branches, each after its parent; iterative, so that deep chains of branches need no recursion.

    Raises:
        InputError: parents form a cycle.
    """
    placed = parent == NO_EPISODE
    order: list[int] = []
    for branch in np.flatnonzero(~placed):
        pending: list[int] = []
        at = int(branch)
        on_path: set[int] = set()
        while not placed[at]:
            if at in on_path:
                raise InputError(f"Episode {names[at]!r} is its own ancestor; parents must not form a cycle.")
            on_path.add(at)
            pending.append(at)
            at = int(parent[at])
        for child in reversed(pending):
            placed[child] = True
            order.append(child)
    return order
