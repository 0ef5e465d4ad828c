"""Layered layout of a directed graph, cycles allowed: layers by distance from the start, few crossings, even spacing.

``V`` nodes, ``M`` edges. Deterministic: the same graph in the same order gives the same places.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray, IntArray

Index = NDArray[np.int64]

ORDER_SWEEPS = 12
PLACE_SWEEPS = 6
ROWS_PER_ROOT = 1.5
"""A layer with more than this times √V nodes is spread over several columns, so that a graph stays as wide as high."""
FEWEST_ROWS = 8


def layered_layout(count: int, source: IntArray, target: IntArray, weight: FloatArray, starts: IntArray) -> FloatArray:
    """``[V, 2]`` column (from 0, left to right) and row (in units of the smallest gap, top is 0) of each node.

    Layer = fewest edges from any of ``starts``; what cannot be reached stands in the first layer. Within a layer,
    nodes are ordered by the weighted mean place of their neighbours (the barycentre rule, alternating directions), and
    then placed as near to it as order and gaps allow, which is an isotonic regression.

    Args:
        count: V.
        source, target: ``[M]`` edges; those within a layer do not influence the layout.
        weight: ``[M]`` how strongly an edge pulls its ends together, > 0.
        starts: nodes of the first layer.
    """
    if count == 0:
        return np.zeros((0, 2))
    layer = distance_layers(count, source, target, starts)
    rank = _order(layer, source, target, weight)
    column, rank = _columns(layer, rank)
    row = _place(column, rank, source, target, weight)
    return np.stack([column.astype(np.float64), row], axis=1)


def distance_layers(count: int, source: IntArray, target: IntArray, starts: IntArray) -> Index:
    """``[V]`` fewest edges from a start; 0 for what cannot be reached."""
    layer = np.full(count, -1, dtype=np.int64)
    layer[starts] = 0
    front, depth = np.unique(starts), 0
    while len(front):
        depth += 1
        reached = target[np.isin(source, front)]
        front = np.unique(reached[layer[reached] < 0])
        layer[front] = depth
    return np.maximum(layer, 0)


def _order(layer: Index, source: IntArray, target: IntArray, weight: FloatArray) -> Index:
    """``[V]`` place of every node within its layer."""
    members = [np.flatnonzero(layer == depth) for depth in range(int(layer.max()) + 1)]
    place = np.zeros(len(layer))
    for nodes in members:
        place[nodes] = _relative(len(nodes))
    earlier = _earlier_neighbours(layer, source, target, weight)
    # Forward sweeps follow the neighbours in earlier layers, backward sweeps those in later ones.
    forward = [_Pull(nodes, earlier) for nodes in members]
    backward = [_Pull(nodes, earlier.T) for nodes in reversed(members)]
    for sweep in range(ORDER_SWEEPS):
        for pull in forward if sweep % 2 == 0 else backward:
            order = np.argsort(pull.means(place), kind="stable")
            place[pull.nodes[order]] = _relative(len(pull.nodes))
    rank = np.zeros(len(layer), dtype=np.int64)
    for nodes in members:
        rank[nodes[np.argsort(place[nodes], kind="stable")]] = np.arange(len(nodes))
    return rank


def _relative(count: int) -> FloatArray:
    return (np.arange(count) + 0.5) / count


def _earlier_neighbours(level: Index, source: IntArray, target: IntArray, weight: FloatArray) -> FloatArray:
    """``[V, V]`` weight between a node (row) and its neighbours of smaller level, whichever way the edges point."""
    across = level[source] != level[target]
    ahead = (level[source] < level[target])[across]
    one, other = source[across], target[across]
    where = (np.where(ahead, other, one), np.where(ahead, one, other))
    # Dense: most drawn graphs have fifty nodes and none has thousands; small products are what a layout is made of.
    weights = np.zeros((len(level), len(level)))
    np.add.at(weights, where, weight[across])
    return weights


class _Pull:
    """Where the neighbours of some nodes stand, on the average."""

    def __init__(self, nodes: Index, weights: FloatArray) -> None:
        self.nodes = nodes
        self._weights = weights[nodes]
        share = self._weights.sum(axis=1)
        self._found = share > 0
        self._share = np.where(self._found, share, 1)

    def means(self, place: FloatArray) -> FloatArray:
        """Weighted mean place of each node's neighbours; its own place where it has none."""
        return np.where(self._found, self._weights @ place / self._share, place[self.nodes])


def _columns(layer: Index, rank: Index) -> tuple[Index, Index]:
    """Column and place within it: a layer that is too high takes several columns, neighbours side by side."""
    rows = max(FEWEST_ROWS, math.ceil(ROWS_PER_ROOT * math.sqrt(len(layer))))
    size = np.bincount(layer)
    width = -(-size // rows)
    first = np.cumsum(width) - width
    return first[layer] + rank % width[layer], rank // width[layer]


def _place(column: Index, rank: Index, source: IntArray, target: IntArray, weight: FloatArray) -> FloatArray:
    """``[V]`` row of every node: near its neighbours, in order, at least 1 apart."""
    from scipy.optimize import isotonic_regression

    members = [np.flatnonzero(column == at) for at in range(int(column.max()) + 1)]
    members = [nodes[np.argsort(rank[nodes], kind="stable")] for nodes in members]
    highest = max(map(len, members))
    row = np.zeros(len(column))
    for nodes in members:
        row[nodes] = np.arange(len(nodes)) + (highest - len(nodes)) / 2
    earlier = _earlier_neighbours(column, source, target, weight)
    both = earlier + earlier.T
    pulls = [_Pull(nodes, both) for nodes in members]
    for sweep in range(PLACE_SWEEPS):
        for pull in pulls if sweep % 2 == 0 else reversed(pulls):
            gaps = np.arange(len(pull.nodes))
            fitted = isotonic_regression(pull.means(row) - gaps).x
            # Rows keep inside the highest column, so that no column drifts away from the others.
            row[pull.nodes] = np.clip(fitted, 0, highest - len(gaps)) + gaps
    row -= row.min()
    return row
