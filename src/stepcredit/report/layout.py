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
    for sweep in range(ORDER_SWEEPS):
        forward = sweep % 2 == 0
        for nodes in members if forward else reversed(members):
            # Neighbours on the side the sweep comes from; a node without any keeps its place.
            pull = _mean_place(place, layer, nodes, source, target, weight, before=forward)
            order = np.argsort(pull, kind="stable")
            place[nodes[order]] = _relative(len(nodes))
    rank = np.zeros(len(layer), dtype=np.int64)
    for nodes in members:
        rank[nodes[np.argsort(place[nodes], kind="stable")]] = np.arange(len(nodes))
    return rank


def _relative(count: int) -> FloatArray:
    return (np.arange(count) + 0.5) / count


def _mean_place(
    place: FloatArray,
    level: Index,
    nodes: Index,
    source: IntArray,
    target: IntArray,
    weight: FloatArray,
    *,
    before: bool | None = None,
) -> FloatArray:
    """Weighted mean place of each node's neighbours in lower levels (``before``), higher ones, or both (None)."""
    total, share = np.zeros(len(level)), np.zeros(len(level))
    for here, there in ((source, target), (target, source)):
        if before is None:
            used = level[there] != level[here]
        else:
            used = level[there] < level[here] if before else level[there] > level[here]
        np.add.at(total, here[used], weight[used] * place[there[used]])
        np.add.at(share, here[used], weight[used])
    found = share[nodes] > 0
    return np.where(found, total[nodes] / np.where(found, share[nodes], 1), place[nodes])


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
    for sweep in range(PLACE_SWEEPS):
        for nodes in members if sweep % 2 == 0 else reversed(members):
            wanted = _mean_place(row, column, nodes, source, target, weight)
            gaps = np.arange(len(nodes))
            # Rows keep inside the highest column, so that no column drifts away from the others.
            row[nodes] = np.clip(isotonic_regression(wanted - gaps).x, 0, highest - len(nodes)) + gaps
    row -= row.min()
    return row
