"""The look-ahead of Graph GAE, exact: mean δ over the edges that lie one, two, three … hops on.

Which nodes a hop stands on is a *set*, and the set one hop on depends on that set alone. So every distinct set is
expanded once, however many turns, nodes and hops meet it, and the sets form chains along which any turn can sum in
O(log T) steps. Nodes that no edge leaves add nothing to any hop and are left out of all sets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import BoolArray, FloatArray, IntArray
from stepcredit.credit.graph import Graph, need_scipy, ragged_range
from stepcredit.credit.groups import joint_groups

if TYPE_CHECKING:
    from scipy.sparse import csr_array

HopMean = Literal["raw", "distinct"]

_BLOCK = 4096
"""Nodes, and starting nodes, that are followed together: bounds the memory of one pass."""
_NEGLIGIBLE = 1e-18
"""Sum of all further hops, relative to the largest δ, below which looking on cannot change a 64-bit float."""
_KEY_BYTES = 16
"""A set of several nodes is known by the sum of its nodes' random 128-bit signatures: two differ but for 2^-128."""
_EMPTY = 0
"""Number of the empty set; set 1 + v holds node v alone."""
_UNEXPLORED = -1
"""Successor of a set that no hop has left yet."""


def hop_sums(
    graph: Graph, delta: FloatArray, *, discount: float, remaining: IntArray, hop_mean: HopMean, collapsed: bool
) -> FloatArray:
    """``[N]`` Σ_{k=1}^{T−t} (γλ)^k Ā_k(i): what Graph GAE adds to a turn's own δ.

    Ā_k(i) is the mean δ over E_k, E_1 all edges out of s'_i and E_{k+1} all edges out of the targets of E_k; the sum
    stops when E_k is empty. Hops whose remaining sum is below 1e-18 of the largest δ are left out.

    Args:
        delta: ``[N]`` δ of every raw edge.
        discount: γλ.
        remaining: ``[N]`` T − t, the hops a turn may look ahead.
        hop_mean: ``raw`` averages turns, ``distinct`` each (state, action, next state) once.
        collapsed: δ sums to zero over the departures of every node without endings. True under count weighting and
            raw means, where γΣV(v) = departures·V(u) by definition; such nodes then contribute exactly 0.
    """
    need_scipy()
    from scipy.sparse import csr_array

    horizon = _useful_hops(discount, int(remaining.max(initial=0)))
    total, edges = _edge_totals(graph, delta, hop_mean)
    if collapsed:
        total[graph.endings == 0] = 0.0
    sums = np.zeros(len(delta))
    if horizon == 0 or not total.any():
        return sums
    block, place, blocks = _pack(graph, total != 0)
    leads_on = edges > 0
    nodes, node_bound = _by_block(block, np.ones(len(graph), dtype=np.bool_), blocks)
    pairs, pair_bound = _by_block(block[graph.pair_source], leads_on[graph.pair_target], blocks)
    rows, row_bound = _by_block(block[graph.target], leads_on[graph.target], blocks)
    for index in range(blocks):
        own = nodes[node_bound[index] : node_bound[index + 1]]
        pair = pairs[pair_bound[index] : pair_bound[index + 1]]
        row = rows[row_bound[index] : row_bound[index + 1]]
        ends = place[graph.pair_source[pair]], place[graph.pair_target[pair]]
        steps = csr_array((np.ones(len(pair), dtype=np.bool_), ends), shape=(len(own), len(own)))
        target = place[graph.target[row]]
        chains = _SetChains(total[own], edges[own])
        chains.follow(steps, np.unique(target), horizon)
        sums[row] = chains.sums(1 + target, np.minimum(remaining[row], horizon), discount)
    return sums


def _useful_hops(discount: float, longest: int) -> int:
    """Hops after which the geometric tail is below ``_NEGLIGIBLE``, at most ``longest``."""
    if discount >= 1:
        return longest
    if discount <= 0:
        return 0
    return min(longest, math.ceil(math.log(_NEGLIGIBLE * (1 - discount)) / math.log(discount)))


def _edge_totals(graph: Graph, delta: FloatArray, hop_mean: HopMean) -> tuple[FloatArray, NDArray[np.int64]]:
    """``[V]`` sum of δ over the edges that leave each node, and their number."""
    source = graph.source
    if hop_mean == "distinct":
        _, row = np.unique(joint_groups(source, graph.action, graph.target), return_index=True)
        source, delta = source[row], delta[row]
    count = len(graph)
    total: FloatArray = np.bincount(source, weights=delta, minlength=count).astype(np.float64)
    return total, np.bincount(source, minlength=count)


def _pack(graph: Graph, informative: BoolArray) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Pack the connected parts of the graph into blocks of about ``_BLOCK`` nodes; a larger part is a block of its own.

    Parts without any informative node are left out: every hop in them is worth 0.

    Returns:
        ``[V]`` block of each node (−1: left out), ``[V]`` its place in the block, and the number of blocks.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(graph)
    ones = np.ones(len(graph.pair_source), dtype=np.int8)
    adjacency = coo_array((ones, (graph.pair_source, graph.pair_target)), shape=(count, count))
    parts, part = connected_components(adjacency, directed=False)
    kept = np.zeros(parts, dtype=np.bool_)
    kept[part[informative]] = True
    size = np.where(kept, np.bincount(part, minlength=parts), 0)
    before = np.cumsum(size) - size
    packed = np.unique(before[kept] // _BLOCK, return_inverse=True)[1]
    of_part = np.full(parts, -1)
    of_part[kept] = packed
    block = of_part[part]
    blocks = int(packed.max(initial=-1)) + 1
    order, bound = _by_block(block, np.ones(count, dtype=np.bool_), blocks)
    place = np.zeros(count, dtype=np.int64)
    place[order] = ragged_range(np.zeros(blocks, dtype=np.int64), np.diff(bound))
    return block, place, blocks


def _by_block(block: NDArray[np.int64], wanted: BoolArray, blocks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of what is wanted and in a block, block by block, and the bounds of each."""
    index = np.flatnonzero(wanted & (block >= 0))
    order = index[np.argsort(block[index], kind="stable")]
    return order, np.searchsorted(block[order], np.arange(blocks + 1))


class _SetChains:
    """Sets of nodes, numbered so that equal sets have equal numbers, each with its mean δ and the set one hop on."""

    def __init__(self, total: FloatArray, edges: NDArray[np.int64]) -> None:
        self._total = total
        self._edges = edges
        self._numbers: dict[bytes, int] = {}
        self._signature = np.random.default_rng([0]).integers(0, 2**64, size=(len(total), 2), dtype=np.uint64)
        self._following = np.full(1 + len(total), _UNEXPLORED)
        self._following[_EMPTY] = _EMPTY
        self._mean = np.append(0.0, total / np.maximum(edges, 1))

    def follow(self, steps: csr_array, start: NDArray[np.int64], horizon: int) -> None:
        """Expand every set that ``horizon`` hops from any of the starting nodes stand on.

        Args:
            steps: ``[V, V]`` bool, which nodes a hop leads from each node to.
        """
        from scipy.sparse import csr_array

        for begin in range(0, len(start), _BLOCK):
            part = start[begin : begin + _BLOCK]
            ones = np.ones(len(part), dtype=np.bool_)
            sets = csr_array((ones, part, np.arange(len(part) + 1)), shape=(len(part), steps.shape[0]))
            number = 1 + part
            for _ in range(horizon - 1):
                number, row = np.unique(number, return_index=True)
                unexplored = self._following[number] == _UNEXPLORED
                if not unexplored.any():
                    break
                sets = sets[row[unexplored]] @ steps
                before, number = number[unexplored], self._number(sets.indices, sets.indptr)
                self._following[before] = number

    def _number(self, indices: IntArray, indptr: IntArray) -> NDArray[np.int64]:
        """Numbers of the sets ``indices[indptr[j]:indptr[j + 1]]``; new sets get the next numbers."""
        width = np.diff(indptr)
        number = np.full(len(width), _EMPTY, dtype=np.int64)
        single = width == 1
        number[single] = 1 + indices[indptr[:-1][single]]
        several = np.flatnonzero(width > 1)
        if len(several):
            width = width[several]
            nodes = indices[ragged_range(indptr[several], width)]
            number[several] = self._number_several(nodes, np.cumsum(width) - width)
        return number

    def _number_several(self, nodes: IntArray, bound: NDArray[np.int64]) -> list[int]:
        """Numbers of sets of two or more nodes, which start at ``bound`` in ``nodes``."""
        keys = np.add.reduceat(self._signature[nodes], bound).tobytes()
        known = len(self._mean)
        found: list[int] = []
        fresh: list[int] = []
        for position, begin in enumerate(range(0, len(keys), _KEY_BYTES)):
            found.append(self._numbers.setdefault(keys[begin : begin + _KEY_BYTES], known + len(fresh)))
            if found[-1] == known + len(fresh):
                fresh.append(position)
        mean = np.add.reduceat(self._total[nodes], bound) / np.add.reduceat(self._edges[nodes], bound)
        self._mean = np.append(self._mean, mean[fresh])
        self._following = np.append(self._following, np.full(len(fresh), _UNEXPLORED))
        return found

    def sums(self, first: NDArray[np.int64], hops: IntArray, discount: float) -> FloatArray:
        """``[Q]`` Σ_{k=1}^{K} (γλ)^k mean(F_k) for every query: F_1 = ``first``, F_{k+1} one hop on, K = ``hops``.

        Binary lifting: in round j, ``weighted`` sums 2^j sets from each set on and ``jump`` leads 2^j sets further.
        """
        sums = np.zeros(len(first))
        at, scale = first, np.ones(len(first))
        weighted, jump, factor = discount * self._mean, np.maximum(self._following, _EMPTY), discount
        for bit in range(int(hops.max(initial=0)).bit_length()):
            taken = (hops >> bit) & 1 == 1
            sums[taken] += scale[taken] * weighted[at[taken]]
            at, scale = np.where(taken, jump[at], at), np.where(taken, scale * factor, scale)
            weighted, jump, factor = weighted + factor * weighted[jump], jump[jump], factor * factor
        return sums
