"""State values on the trajectory graph, solved exactly, and advantages that look several hops ahead."""

from __future__ import annotations

import hashlib
import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.credit.graph import Graph, ragged_range
from stepcredit.credit.groups import group_sizes, joint_groups

ValueWeighting = Literal["count", "action"]
HopMean = Literal["raw", "distinct"]

_STARTS = 4096
"""Starting nodes whose frontiers grow together; bounds the memory of one pass."""
_UNEXPLORED = -1
"""``following`` of a set that no hop has left yet."""
_DIGEST_BYTES = 17
"""Sets longer than this are numbered by a 136-bit digest; not a multiple of four, so no short set looks like one."""
_NEGLIGIBLE = 1e-18
"""Sum of all further hops, relative to the largest δ, below which looking on cannot change a 64-bit float."""


def solve_values(graph: Graph, gamma: float, weighting: ValueWeighting) -> tuple[FloatArray, float]:
    """``[V]`` V(u) = (Σ y over the endings in u + γ Σ V(v) over the departures u → v) / (endings + departures).

    That is ``weighting="count"``: every visit counts once. ``"action"``: V(u) is the uniform mean over the distinct
    actions taken in u of γ·mean V over that action's targets; all endings in u together are one more action, worth
    mean y. A pure sink is worth its mean y, a state from which only failures can be reached exactly 0.

    The system (I − γP)V = b is strictly diagonally dominant for γ < 1; for γ = 1 it is regular, because every state
    leads to an ending. One sparse LU of the whole batch solves it; its blocks, the tasks, do not fill into one another.

    Returns:
        The values and the largest absolute residual of the system.
    """
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import splu

    share, ending_share = _visit_shares(graph, weighting)
    count = len(graph)
    constant = ending_share * graph.outcome
    system = eye_array(count, format="csc") - csc_array(
        (gamma * share, (graph.source, graph.target)), shape=(count, count)
    )
    options = {"SymmetricMode": True}
    values = splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve(constant)
    return values, float(np.abs(system @ values - constant).max(initial=0.0))


def _visit_shares(graph: Graph, weighting: ValueWeighting) -> tuple[FloatArray, FloatArray]:
    """``[N]`` share of its source's value a raw edge stands for, and ``[V]`` the share of the node's endings."""
    if weighting == "count":
        visits = np.maximum(graph.departures + graph.endings, 1)
        return 1 / visits[graph.source], graph.endings / visits
    choice = joint_groups(graph.source, graph.action)
    repeats = group_sizes(choice)[choice]
    actions = np.rint(np.bincount(graph.source, weights=1 / repeats, minlength=len(graph)))
    ends = graph.endings > 0
    branches = np.maximum(actions + ends, 1)
    return 1 / (branches[graph.source] * repeats), ends / branches


def hop_sums(
    graph: Graph, delta: FloatArray, *, discount: float, remaining: IntArray, hop_mean: HopMean, collapsed: bool
) -> FloatArray:
    """``[N]`` Σ_{k=1}^{T−t} (γλ)^k Ā_k(i): what Graph GAE adds to a turn's own δ.

    Ā_k(i) is the mean δ over E_k, E_1 all edges out of s'_i and E_{k+1} all edges out of the targets of E_k; the sum
    stops when E_k is empty. The set of nodes that E_k leaves depends only on the set before it, so every distinct set
    is expanded once however many turns, nodes and hops meet it; each turn then sums along a chain of sets, in
    O(log(T − t)) doubling steps.

    Args:
        delta: ``[N]`` δ of every raw edge.
        discount: γλ.
        remaining: ``[N]`` T − t, the hops a turn may look ahead.
        hop_mean: ``raw`` averages turns, ``distinct`` each (state, action, next state) once.
        collapsed: δ sums to zero over the departures of every node without endings. True under count weighting and
            raw means, where γΣV(v) = departures·V(u) by definition; such nodes then contribute exactly 0.
    """
    horizon = _useful_hops(discount, int(remaining.max(initial=0)))
    total, edges = _edge_totals(graph, delta, hop_mean)
    if collapsed:
        total[graph.endings == 0] = 0.0
    sums = np.zeros(len(delta))
    starts = _informative(graph, total)[graph.target] & (edges[graph.target] > 0)
    if horizon == 0 or not starts.any():
        return sums
    following, mean, first = _frontier_chain(graph, total, edges, np.unique(graph.target[starts]), horizon)
    hops = np.minimum(remaining[starts], horizon)
    sums[starts] = _chain_sums(following, mean, first[graph.target[starts]], hops, discount)
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


def _informative(graph: Graph, total: FloatArray) -> NDArray[np.bool_]:
    """``[V]`` whether a node lies in a connected part of the graph in which any δ total differs from 0."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(graph)
    ones = np.ones(len(graph.pair_source), dtype=np.int8)
    adjacency = coo_array((ones, (graph.pair_source, graph.pair_target)), shape=(count, count))
    parts, part = connected_components(adjacency, directed=False)
    nonzero = np.zeros(parts, dtype=np.bool_)
    nonzero[part[total != 0]] = True
    informative: NDArray[np.bool_] = nonzero[part]
    return informative


def _frontier_chain(
    graph: Graph, total: FloatArray, edges: NDArray[np.int64], start: IntArray, horizon: int
) -> tuple[NDArray[np.int64], FloatArray, NDArray[np.int64]]:
    """Follow the sets of nodes that hops stand on from every node in ``start``, up to ``horizon`` sets long.

    Returns:
        ``following`` ``[S]``: the set one hop on (set 0 is empty and follows itself); ``mean`` ``[S]``: mean δ over the
        edges that leave the set; ``first`` ``[V]``: the set {v} of each node v in ``start``.
    """
    from scipy.sparse import csr_array

    count = len(graph)
    inside = edges[graph.pair_target] > 0
    ones = np.ones(int(inside.sum()), dtype=np.bool_)
    steps = csr_array((ones, (graph.pair_source[inside], graph.pair_target[inside])), shape=(count, count))
    table = _SetTable(total, edges)
    first = np.zeros(count, dtype=np.int64)
    for begin in range(0, len(start), _STARTS):
        part = start[begin : begin + _STARTS]
        ones = np.ones(len(part), dtype=np.bool_)
        sets = csr_array((ones, part, np.arange(len(part) + 1)), shape=(len(part), count))
        number = first[part] = table.number(sets.indices, sets.indptr)
        for _ in range(horizon - 1):
            number, row = np.unique(number, return_index=True)
            unexplored = table.following[number] == _UNEXPLORED
            if not unexplored.any():
                break
            sets = sets[row[unexplored]] @ steps
            sets.sort_indices()
            before, number = number[unexplored], table.number(sets.indices, sets.indptr)
            table.following[before] = number
    return np.maximum(table.following, 0), table.mean, first


class _SetTable:
    """Numbers sets of nodes, equal sets alike. Set 0 is the empty set."""

    def __init__(self, total: FloatArray, edges: NDArray[np.int64]) -> None:
        self._total = total
        self._edges = edges
        self._numbers: dict[bytes, int] = {b"": 0}
        self.following = np.zeros(1, dtype=np.int64)
        self.mean = np.zeros(1)

    def number(self, indices: IntArray, indptr: IntArray) -> NDArray[np.int64]:
        """Numbers of the sets ``indices[indptr[j]:indptr[j + 1]]``, each sorted; new sets get the next numbers."""
        numbers = self._numbers
        known = len(numbers)
        content = indices.astype(np.int32).tobytes()
        bound = (4 * indptr.astype(np.int64)).tolist()
        found = np.empty(len(indptr) - 1, dtype=np.int64)
        fresh: list[int] = []
        for row in range(len(found)):
            key = content[bound[row] : bound[row + 1]]
            if len(key) > _DIGEST_BYTES:
                key = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
            found[row] = numbers.setdefault(key, len(numbers))
            if found[row] == known + len(fresh):
                fresh.append(row)
        self._describe(indices, indptr, np.array(fresh, dtype=np.int64))
        return found

    def _describe(self, indices: IntArray, indptr: IntArray, rows: NDArray[np.int64]) -> None:
        """Append the means of the new sets in ``rows``; only the empty set has no elements, and it is never new."""
        if len(rows) == 0:
            return
        width = np.diff(indptr)[rows]
        nodes = indices[ragged_range(indptr[rows], width)]
        bound = np.cumsum(width) - width
        mean = np.add.reduceat(self._total[nodes], bound) / np.add.reduceat(self._edges[nodes], bound)
        self.mean = np.concatenate([self.mean, mean])
        self.following = np.concatenate([self.following, np.full(len(rows), _UNEXPLORED)])


def _chain_sums(
    following: NDArray[np.int64], mean: FloatArray, first: NDArray[np.int64], hops: IntArray, discount: float
) -> FloatArray:
    """``[Q]`` Σ_{k=1}^{K} (γλ)^k mean(F_k) for every query (F_1 = ``first``, K = ``hops``), F_{k+1} = following[F_k].

    Binary lifting: after round j, ``weighted`` sums 2^j sets from each set on and ``jump`` leads 2^j sets further.
    """
    sums = np.zeros(len(first))
    at, scale = first, np.ones(len(first))
    weighted, jump, factor = discount * mean, following, discount
    for round_bit in range(int(hops.max(initial=0)).bit_length()):
        taken = (hops >> round_bit) & 1 == 1
        sums[taken] += scale[taken] * weighted[at[taken]]
        at, scale = np.where(taken, jump[at], at), np.where(taken, scale * factor, scale)
        weighted, jump, factor = weighted + factor * weighted[jump], jump[jump], factor * factor
    return sums
