"""What the allocator remembers: outcomes per task, and outcomes per (task, state) by sampling cluster.

Ages count finished rounds: in round r, what was observed in round r − 1 has age 0 and weight 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepcredit.allocation.states import StateGroup, identity
from stepcredit.core.credit import BoolArray, FloatArray

NEGLIGIBLE = 1e-9
"""Weight below which the outcomes of an old round are dropped from a state's history."""

NOT_REMEMBERED = -1
"""Row of a state that the memory does not hold."""

VectorArray = NDArray[np.float32]
RowArray = NDArray[np.int64]


class TaskMemory:
    """Decayed root outcomes per task, and the vector of its goal.

    A row is a task in order of first mention; ``names``, ``successes`` … are aligned.

    Args:
        decay: λ, the factor per round.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.names: list[str] = []
        self.goals: VectorArray = np.zeros((0, 0), dtype=np.float32)
        self._row: dict[str, int] = {}
        self._outcomes: FloatArray = np.zeros((0, 2))  # successes, failures as of the round last seen
        self._seen: RowArray = np.zeros(0, dtype=np.int64)  # 0: never

    def __len__(self) -> int:
        return len(self.names)

    def row(self, name: str) -> int:
        """Row of a task.

        Raises:
            KeyError: it was never added.
        """
        return self._row[name]

    def unknown(self, names: Sequence[str]) -> list[int]:
        """Positions in ``names`` of tasks without a row."""
        return [position for position, name in enumerate(names) if name not in self._row]

    def add(self, names: Sequence[str], goals: VectorArray) -> None:
        """Give new tasks their rows; ``goals`` is ``[n, d]``, d = 0 without an encoder."""
        for name in names:
            self._row[name] = len(self.names)
            self.names.append(name)
        self.goals = np.concatenate([self.goals, goals]) if len(self.goals) else goals
        self._outcomes = np.concatenate([self._outcomes, np.zeros((len(names), 2))])
        self._seen = np.concatenate([self._seen, np.zeros(len(names), dtype=np.int64)])

    def revisited(self, names: Sequence[str]) -> BoolArray:
        """Whether each task has been observed before."""
        rows = np.array([self._row.get(name, -1) for name in names], dtype=np.int64)
        return np.append(self._seen > 0, False)[rows]

    def history(self, round_: int) -> FloatArray:
        """``[T, 2]`` decayed successes and failures of every task, as seen in a round."""
        age = round_ - 1 - self._seen
        return self._outcomes * np.where(self._seen > 0, self.decay**age, 0.0)[:, None]

    def observe(self, round_: int, row: int, successes: int, failures: int) -> None:
        """Add the outcomes of a finished round."""
        aged = self._outcomes[row] * self.decay ** int(round_ - self._seen[row])
        self._outcomes[row] = aged + np.array([successes, failures])
        self._seen[row] = round_

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values, and arrays."""
        return {"names": list(self.names)}, {
            "goals": self.goals.copy(),
            "outcomes": self._outcomes.copy(),
            "seen": self._seen.copy(),
        }

    def load(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` described."""
        self.names = list(values["names"])
        self._row = {name: row for row, name in enumerate(self.names)}
        self.goals, self._outcomes, self._seen = (arrays[key].copy() for key in ("goals", "outcomes", "seen"))


class Outcomes(NamedTuple):
    """What the clusters of some states saw, flat; sorted by ``owner``, then from the oldest cluster to the newest."""

    owner: RowArray  # position among the rows that were asked for
    cluster: RowArray
    successes: RowArray
    failures: RowArray
    weight: FloatArray  # λ^age


class StateMemory:
    """Outcomes per (task, state), by cluster, of a bounded number of states; the longest unseen states go first.

    Columns are indexed by row; a row is reused when its state has gone.

    Args:
        decay: λ, the factor per round.
        capacity: most states held.
    """

    def __init__(self, decay: float, capacity: int) -> None:
        self.decay = decay
        self.capacity = capacity
        self._rows: dict[bytes, int] = {}
        self._keys = np.zeros((capacity, 16), dtype=np.uint8)
        self.task = np.zeros(capacity, dtype=np.int32)
        self.depth = np.full(capacity, -1, dtype=np.int32)  # −1: the row is free
        self.horizon = np.zeros(capacity, dtype=np.int32)
        self._seen = np.zeros(capacity, dtype=np.int32)
        # Half precision: 100,000 vectors of 384 numbers are 77 MB, and a cosine moves by about 1e-5.
        self._vectors = np.zeros((capacity, 0), dtype=np.float16)
        self._clusters = 0
        # One line per (state, cluster): row, cluster, round, successes, failures; sorted by row, then cluster.
        self._outcomes = np.zeros((0, 5), dtype=np.int32)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, groups: Sequence[StateGroup]) -> RowArray:
        """Row of each state, ``NOT_REMEMBERED`` where it has none."""
        keys = (identity(group.task, group.state) for group in groups)
        return np.array([self._rows.get(key, NOT_REMEMBERED) for key in keys], dtype=np.int64)

    def rows_at(self, depth: int, horizon: int) -> RowArray:
        """Rows of all states at one depth under one horizon, ascending."""
        return np.flatnonzero((self.depth == depth) & (self.horizon == horizon))

    def vectors(self, rows: RowArray) -> VectorArray:
        """``[n, d]`` vectors of the states' texts."""
        return self._vectors[rows].astype(np.float32)

    def outcomes(self, rows: RowArray, round_: int) -> Outcomes:
        """What was seen after each of the states, weighted as of a round; unremembered rows have nothing."""
        low = np.searchsorted(self._outcomes[:, 0], rows, side="left")
        count = np.searchsorted(self._outcomes[:, 0], rows, side="right") - low
        owner = np.repeat(np.arange(len(rows)), count)
        line = np.arange(len(owner)) + np.repeat(low - (np.cumsum(count) - count), count)
        _, cluster, seen, successes, failures = self._outcomes[line].astype(np.int64).T
        return Outcomes(owner, cluster, successes, failures, self.decay ** (round_ - 1.0 - seen))

    def remember(self, round_: int, groups: Sequence[StateGroup], tasks: Sequence[int], vectors: VectorArray) -> None:
        """Add the states of one finished round; rounds come in ascending order.

        Args:
            groups: distinct states; of more than ``capacity``, the first count.
            tasks: row of each group's task.
            vectors: ``[n, d]`` of the states' texts, d = 0 without an encoder.
        """
        groups = groups[: self.capacity]
        keys = [identity(group.task, group.state) for group in groups]
        new = [key for key in keys if key not in self._rows]
        for key in keys:
            if (known := self._rows.get(key)) is not None:
                self._seen[known] = round_
        self._forget(len(new))
        free = np.flatnonzero(self.depth < 0)[: len(new)].tolist()
        self._rows.update(zip(new, free, strict=True))
        rows = np.array([self._rows[key] for key in keys], dtype=np.int64)
        if rows.size:
            self._keys[rows] = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 16)
            self.task[rows] = tasks[: self.capacity]
            self.depth[rows] = [group.depth for group in groups]
            self.horizon[rows] = [group.horizon for group in groups]
            self._seen[rows] = round_
            if self._vectors.shape[1] != vectors.shape[1]:
                self._vectors = np.zeros((self.capacity, vectors.shape[1]), dtype=np.float16)
            self._vectors[rows] = vectors[: self.capacity]
        self._add_outcomes(round_, groups, rows)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values, and arrays; those of states are views."""
        end = int(np.flatnonzero(self.depth >= 0).max(initial=-1)) + 1
        columns = {name: column[:end] for name, column in self._columns().items()}
        return {"clusters": self._clusters}, {**columns, "vectors": self._vectors[:end], "lines": self._outcomes}

    def load(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become what ``state`` described."""
        self._clusters = values["clusters"]
        for name, column in self._columns().items():
            column[: len(arrays[name])] = arrays[name]
        self.depth[len(arrays["depth"]) :] = -1
        self._rows = {self._keys[row].tobytes(): row for row in np.flatnonzero(self.depth >= 0).tolist()}
        self._vectors = np.zeros((self.capacity, arrays["vectors"].shape[1]), dtype=np.float16)
        self._vectors[: len(arrays["vectors"])] = arrays["vectors"]
        self._outcomes = arrays["lines"].copy()

    def _columns(self) -> dict[str, NDArray[Any]]:
        return {
            "keys": self._keys,
            "task": self.task,
            "depth": self.depth,
            "horizon": self.horizon,
            "last": self._seen,
        }

    def _forget(self, needed: int) -> None:
        """Free rows until ``needed`` more fit."""
        excess = len(self._rows) + needed - self.capacity
        if excess <= 0:
            return
        held = np.flatnonzero(self.depth >= 0)
        gone = held[np.argsort(self._seen[held], kind="stable")[:excess]]
        for row in gone:
            del self._rows[self._keys[row].tobytes()]
        self.depth[gone] = -1
        self._outcomes = self._outcomes[~np.isin(self._outcomes[:, 0], gone)]

    def _add_outcomes(self, round_: int, groups: Sequence[StateGroup], rows: RowArray) -> None:
        cluster_of: dict[str, int] = {}
        lines = [
            (row, self._clusters + cluster_of.setdefault(visit.cluster, len(cluster_of)), round_, *visit[1:])
            for row, group in zip(rows.tolist(), groups, strict=True)
            for visit in group.visits
        ]
        self._clusters += len(cluster_of)
        kept = self._outcomes
        if self.decay < 1:
            kept = kept[kept[:, 2] >= round_ - math.log(NEGLIGIBLE) / math.log(self.decay)]
        merged = np.concatenate([kept, np.array(lines, dtype=np.int32).reshape(-1, 5)])
        self._outcomes = merged[np.lexsort((merged[:, 1], merged[:, 0]))]
