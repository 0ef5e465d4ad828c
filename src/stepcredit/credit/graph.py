"""The trajectory graph of a batch: nodes are state keys, raw edges are turns, every task a separate block.

``N`` turns, ``E`` episodes, ``V`` nodes, ``M`` distinct (source, target) pairs. Keys of different tasks are different
nodes, so one graph holds the whole batch and no number ever crosses from one task to another. A branch adds its own
turns only: its replayed prefix stands in its parent's rows, and no edge counts twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.core.errors import missing_extra
from stepcredit.core.turns import Turns

Label = TypeVar("Label", FloatArray, NDArray[np.uint64])


def need_scipy() -> None:
    """Values and hops on a graph are sparse linear algebra, two thirds of what an installation would take.

    Raises:
        MissingExtraError: scipy is not installed.
    """
    if find_spec("scipy") is None:
        raise missing_extra("scipy", "graph", "Credit on graphs")


@dataclass(frozen=True, slots=True)
class Graph:
    """Where turns lead, and how episodes end.

    Attributes:
        source, target: ``[N]`` node a turn leaves and reaches, one raw edge a turn.
        action: ``[N]`` key of the parsed command.
        pair_source, pair_target: ``[M]`` the distinct edges, sorted by source, then target.
        departures: ``[V]`` raw edges that leave the node; 0 for a pure sink.
        endings: ``[V]`` episodes that end in the node. A node may have both endings and departures.
        outcome: ``[V]`` mean of y = 1 (success) or 0 over the node's endings; 0 where nothing ends.
        final: ``[E]`` node each episode ends in.
    """

    source: IntArray
    target: IntArray
    action: IntArray
    pair_source: IntArray
    pair_target: IntArray
    departures: NDArray[np.int64]
    endings: NDArray[np.int64]
    outcome: FloatArray
    final: IntArray

    @classmethod
    def from_turns(cls, turns: Turns, nodes: tuple[IntArray, IntArray] | None = None) -> Graph:
        """The graph of a batch.

        Args:
            nodes: ``[N]`` each, the nodes a turn leaves and reaches; None: every state key is its own node.
        """
        source, target = (turns.state, turns.next_state) if nodes is None else nodes
        final = target[turns.last]
        count = int(max(source.max(initial=-1), target.max(initial=-1))) + 1
        pair_source, pair_target = distinct_pairs(source, target, count)
        endings = np.bincount(final, minlength=count)
        succeeded = np.bincount(final, weights=turns.success, minlength=count)
        return cls(
            source=source,
            target=target,
            action=turns.action,
            pair_source=pair_source,
            pair_target=pair_target,
            departures=np.bincount(source, minlength=count),
            endings=endings,
            outcome=succeeded / np.maximum(endings, 1),
            final=final,
        )

    def __len__(self) -> int:
        """Number of nodes V."""
        return len(self.departures)


def distinct_pairs(source: IntArray, target: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """``[M]`` each, the distinct (source, target) pairs among ``count`` nodes, sorted by source, then target."""
    key = np.sort(source.astype(np.int64) * count + target, kind="stable")
    key = key[np.diff(key, prepend=-1) != 0]
    return (key // max(count, 1)).astype(np.int32), (key % max(count, 1)).astype(np.int32)


def propagate_back(
    source: IntArray, target: IntArray, label: Label, step: Callable[[Label], Label], combine: np.ufunc
) -> Label:
    """Carry labels against the edges until nothing changes: label[u] = combine(label[u], step(label[v])) for u → v.

    Only nodes whose label just changed are visited again, so the cost is that of the changes, not sweeps times edges.
    Cycles end where ``combine`` never loses anything (maximum, bitwise or) and ``step`` never improves a label.

    Args:
        source, target: ``[M]`` edges.
        label: ``[V]`` or ``[V, W]`` starting labels; all-zero or −inf rows carry nothing.
        step: label on the far side of an edge → its contribution on this side.
        combine: ``np.maximum`` or ``np.bitwise_or``.

    Returns:
        The final labels, shaped as ``label``.
    """
    order = np.argsort(target, kind="stable")
    into = source[order]
    bound = np.searchsorted(target[order], np.arange(len(label) + 1))
    label = label.copy()
    rows = tuple(range(1, label.ndim))
    changed = np.flatnonzero((label != (-np.inf if label.dtype.kind == "f" else 0)).any(axis=rows))
    while len(changed):
        width = bound[changed + 1] - bound[changed]
        edge = ragged_range(bound[changed], width)
        reached = into[edge]
        touched = np.unique(reached)
        before = label[touched]
        combine.at(label, reached, step(np.repeat(label[changed], width, axis=0)))
        changed = touched[(label[touched] != before).any(axis=rows)]
    return label


def ragged_range(first: NDArray[np.integer], width: NDArray[np.integer]) -> NDArray[np.int64]:
    """first[0] … first[0] + width[0] − 1, first[1] …, and so on, as one flat array."""
    end = np.cumsum(width)
    total = int(end[-1]) if len(end) else 0
    flat: NDArray[np.int64] = np.arange(total) + np.repeat(first - (end - width), width)
    return flat


def propagation_degree(graph: Graph, turns: Turns) -> NDArray[np.int64]:
    """``[V]`` information propagation degree: the distinct episodes whose outcome reaches the node through the graph.

    An episode counts at u when its final state can be reached from u along edges of any episodes of the task (u itself
    included). Each episode is one bit, numbered within its task.
    """
    by_task = np.argsort(turns.episode_task, kind="stable")
    per_task = np.bincount(turns.episode_task)
    bit = np.empty(len(by_task), dtype=np.int64)
    bit[by_task] = ragged_range(np.zeros(len(per_task), dtype=np.int64), per_task)
    words = np.zeros((len(graph), int(per_task.max(initial=1)) // 64 + 1), dtype=np.uint64)
    np.bitwise_or.at(words, (graph.final, bit // 64), np.uint64(1) << (bit % 64).astype(np.uint64))
    words = propagate_back(graph.pair_source, graph.pair_target, words, lambda word: word, np.bitwise_or)
    degree: NDArray[np.int64] = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return degree
