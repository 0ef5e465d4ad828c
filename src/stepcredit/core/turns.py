"""Turns: the flat table every estimator reads, one row a turn, columns of numbers.

``N`` turns, ``E`` episodes. A chain and a tree are the same table: each row is an edge ``occurrence`` →
``next_occurrence``. Strings become integer keys once, while the table is built; equal keys mean equal strings
*within one task*, and keys of different tasks never coincide.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.core.credit import BoolArray, FloatArray, IntArray
from stepcredit.core.episodes import Episode, Parent
from stepcredit.core.errors import FileFormatError, InputError, NumericsError

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
            NumericsError: a reward or penalty that is not finite.
        """
        builder = TurnsBuilder()
        for episode in episodes:
            builder.add(episode)
        return builder.build()


class _Numbering(dict[str, int]):
    """Numbers one task's keys in order of first appearance.

    ``names`` is shared by the numberings of all tasks, so that numbers of different tasks never coincide.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, key: str) -> int:
        number = self[key] = len(self._names)
        self._names.append(key)
        return number


class TurnsBuilder:
    """Collects episodes one at a time, so that a file can stream through without its text being kept.

    Args:
        source: name of the file whose line ``e + 1`` holds episode ``e``; faults then name ``FILE:LINE``.
    """

    def __init__(self, source: str | None = None) -> None:
        self._source = source
        self._tasks: dict[str, tuple[int, _Numbering, _Numbering]] = {}
        self._episodes: dict[str, int] = {}
        self._parents: dict[int, Parent] = {}
        self._state_names: list[str] = []
        self._action_names: list[str] = []
        self._ints = {name: array("i") for name in ("state", "next_state", "action", "length", "episode_task")}
        self._floats = {name: array("d") for name in ("reward", "penalty", "nll", "entropy", "score")}
        self._valid = bytearray()
        self._success = bytearray()

    def add(self, episode: Episode) -> None:
        """Append one episode's rows."""
        turns = episode.turns
        self.add_columns(
            task=episode.task,
            episode=episode.episode,
            parent=episode.parent,
            states=[turn.observation if turn.state is None else turn.state for turn in turns],
            actions=[turn.action for turn in turns],
            reward=[turn.reward for turn in turns],
            penalty=[turn.penalty for turn in turns],
            nll=[math.nan if (nll := turn.mean_nll) is None else nll for turn in turns],
            entropy=[math.nan if turn.entropy is None else turn.entropy for turn in turns],
            valid=[turn.valid for turn in turns],
            final_state=episode.final_observation,
            success=episode.success,
            score=math.nan if episode.score is None else episode.score,
        )

    def add_columns(
        self,
        *,
        task: str,
        episode: str,
        parent: Parent | None,
        states: Sequence[str],
        actions: Sequence[str],
        reward: Sequence[float],
        penalty: Sequence[float],
        nll: Sequence[float],
        entropy: Sequence[float],
        valid: Sequence[bool],
        final_state: str,
        success: bool,
        score: float,
    ) -> None:
        """Append one episode given column by column: one item a turn, NaN where a number was not recorded."""
        index = len(self._episodes)
        if not states:
            raise self._fault(index, episode, "turns", "an empty list", "at least one turn")
        if episode in self._episodes:
            raise self._fault(index, episode, "episode", f"{episode!r} a second time", "a name used once in the batch")
        self._episodes[episode] = index
        if parent is not None:
            self._parents[index] = parent
        if task not in self._tasks:
            self._tasks[task] = len(self._tasks), _Numbering(self._state_names), _Numbering(self._action_names)
        task_number, state_numbers, action_numbers = self._tasks[task]
        ints, floats = self._ints, self._floats
        numbers = array("i", map(state_numbers.__getitem__, states))
        ints["state"].extend(numbers)
        ints["next_state"].extend(numbers[1:])
        ints["next_state"].append(state_numbers[final_state])
        ints["action"].extend(map(action_numbers.__getitem__, actions))
        ints["length"].append(len(numbers))
        ints["episode_task"].append(task_number)
        floats["reward"].extend(reward)
        floats["penalty"].extend(penalty)
        floats["nll"].extend(nll)
        floats["entropy"].extend(entropy)
        floats["score"].append(score)
        self._valid.extend(valid)
        self._success.append(success)

    def build(self) -> Turns:
        """The finished table; the builder is used up.

        Raises:
            InputError: a parent that is missing, of another task, its own descendant, or shorter than the branch says.
            NumericsError: a reward or penalty that is not finite.
        """
        # The columns become the table's own memory: a batch of millions of turns is never held twice.
        ints = {name: np.frombuffer(values, dtype=np.int32) for name, values in self._ints.items()}
        floats = {name: np.frombuffer(values, dtype=np.float64) for name, values in self._floats.items()}
        length, episode_task = ints["length"], ints["episode_task"]
        start = np.zeros(len(length) + 1, dtype=np.int32)
        np.cumsum(length, out=start[1:])
        count = int(start[-1])
        episode = np.repeat(np.arange(len(length), dtype=np.int32), length)
        turn = np.arange(count, dtype=np.int32) - start[episode]
        parent, branch_row = self._resolve_parents(start, episode_task)
        finite = np.isfinite(floats["reward"]) & np.isfinite(floats["penalty"])
        if not finite.all():
            row = int(np.argmin(finite))
            where = f"turn {turn[row]} of episode {tuple(self._episodes)[episode[row]]!r}"
            raise NumericsError(f"Reward or penalty of {where} is not finite; leave the episode out.")

        previous = np.arange(-1, count - 1, dtype=np.int32)
        first = start[:-1]
        previous[first] = NO_ROW
        depth = turn.copy()
        # Every turn leaves the occurrence its predecessor reached; row r reaches occurrence r, roots add one each.
        next_occurrence = np.arange(count, dtype=np.int32)
        occurrence = next_occurrence - 1
        roots = np.flatnonzero(parent == NO_EPISODE)
        occurrence[first[roots]] = count + np.arange(len(roots), dtype=np.int32)
        for branch in self._parents_first():
            row, left = first[branch], branch_row[branch]
            previous[row] = previous[left]
            occurrence[row] = occurrence[left]
            depth[row : start[branch + 1]] += depth[left]
        return Turns(
            task=episode_task[episode],
            episode=episode,
            turn=turn,
            depth=depth,
            occurrence=occurrence,
            next_occurrence=next_occurrence,
            previous=previous,
            state=ints["state"],
            next_state=ints["next_state"],
            action=ints["action"],
            reward=floats["reward"],
            penalty=floats["penalty"],
            nll=floats["nll"],
            entropy=floats["entropy"],
            valid=np.frombuffer(self._valid, dtype=np.bool_),
            start=start,
            episode_task=episode_task,
            episode_parent=parent,
            branch_row=branch_row,
            success=np.frombuffer(self._success, dtype=np.bool_),
            score=floats["score"],
            task_names=tuple(self._tasks),
            episode_names=tuple(self._episodes),
            state_names=tuple(self._state_names),
            action_names=tuple(self._action_names),
        )

    def _resolve_parents(self, start: IntArray, episode_task: IntArray) -> tuple[IntArray, IntArray]:
        """Parent episode and branch row of every episode, checked."""
        parent = np.full(len(episode_task), NO_EPISODE, dtype=np.int32)
        branch_row = np.full(len(episode_task), NO_ROW, dtype=np.int32)
        names = tuple(self._episodes)
        for child, link in self._parents.items():
            found = self._episodes.get(link.episode)
            if found is None:
                expected = "the name of an episode of the same batch"
                raise self._fault(child, names[child], "parent.episode", repr(link.episode), expected)
            if episode_task[found] != episode_task[child]:
                got = f"{link.episode!r}, an episode of another task"
                raise self._fault(child, names[child], "parent.episode", got, "a parent of the same task")
            length = int(start[found + 1] - start[found])
            if not 0 <= link.turn < length:
                expected = f"0 to {length - 1}, the own turns of {link.episode!r}"
                raise self._fault(child, names[child], "parent.turn", str(link.turn), expected)
            parent[child] = found
            branch_row[child] = start[found] + link.turn
        return parent, branch_row

    def _parents_first(self) -> list[int]:
        """All branches, each after its parent; iterative, so that deep chains of branches need no recursion."""
        placed: set[int] = set()
        order: list[int] = []
        for branch in self._parents:
            pending: dict[int, None] = {}
            at = branch
            while at in self._parents and at not in placed:
                if at in pending:
                    name = tuple(self._episodes)[at]
                    got = f"{name!r} among its own ancestors"
                    raise self._fault(at, name, "parent", got, "parents that lead to a root")
                pending[at] = None
                at = self._episodes[self._parents[at].episode]
            order.extend(reversed(pending))
            placed.update(pending)
        return order

    def _fault(self, index: int, episode: str, field: str, got: str, expected: str) -> InputError:
        """The error for episode number ``index``."""
        if self._source is None:
            return InputError(f"Episode {episode!r}: {field}: got {got}, expected {expected}.")
        return FileFormatError(f"{self._source}:{index + 1}: {field}: got {got}, expected {expected}.")
