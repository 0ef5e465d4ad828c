"""Layered layout: known layers, no needless crossings, no overlaps, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from stepcredit.core.credit import IntArray
from stepcredit.report.layout import FEWEST_ROWS, distance_layers, layered_layout


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int32)


def random_graph(nodes: int, edges: int, seed: int) -> tuple[IntArray, IntArray]:
    rng = np.random.default_rng([seed])
    grown = np.array([rng.integers(0, node) for node in range(1, nodes)])  # reachable from node 0
    source = np.concatenate([grown, rng.integers(0, nodes, edges)]).astype(np.int32)
    target = np.concatenate([np.arange(1, nodes), rng.integers(0, nodes, edges)]).astype(np.int32)
    return source, target


def test_layers_are_distances_whatever_leads_back() -> None:
    source, target = ints(0, 0, 1, 2, 3, 3), ints(1, 2, 3, 3, 0, 4)
    assert distance_layers(6, source, target, ints(0)).tolist() == [0, 1, 1, 2, 3, 0]


def test_two_lanes_do_not_cross() -> None:
    # 0 → 1 → 4 and 0 → 2 → 3: by number the last layer would stand crosswise.
    spot = layered_layout(5, ints(0, 0, 1, 2), ints(1, 2, 4, 3), np.ones(4), ints(0))
    assert spot[:, 0].tolist() == [0, 1, 1, 2, 2]
    assert (spot[1, 1] < spot[2, 1]) == (spot[4, 1] < spot[3, 1])


def test_a_chain_is_a_straight_line() -> None:
    spot = layered_layout(4, ints(0, 1, 2), ints(1, 2, 3), np.ones(3), ints(0))
    assert spot.tolist() == [[0, 0], [1, 0], [2, 0], [3, 0]]


def test_a_parent_stands_in_the_middle_of_its_children() -> None:
    spot = layered_layout(4, ints(0, 0, 0), ints(1, 2, 3), np.ones(3), ints(0))
    assert spot[0, 1] == pytest.approx(spot[1:, 1].mean())


@pytest.mark.parametrize("nodes", [1, 2, 17, 150, 1000])
def test_no_two_nodes_are_closer_than_one_row(nodes: int) -> None:
    source, target = random_graph(nodes, 2 * nodes, seed=nodes)
    spot = layered_layout(nodes, source, target, np.ones(len(source)), ints(0))
    for column in np.unique(spot[:, 0]):
        rows = np.sort(spot[spot[:, 0] == column, 1])
        assert (np.diff(rows) >= 1 - 1e-9).all()
    highest = max(FEWEST_ROWS, int(np.ceil(1.5 * np.sqrt(nodes))))
    assert spot[:, 1].min() >= 0
    assert spot[:, 1].max() <= highest - 1 + 1e-9


def test_equal_graphs_have_equal_places() -> None:
    source, target = random_graph(200, 300, seed=7)
    first, second = (layered_layout(200, source, target, np.ones(len(source)), ints(0)) for _ in range(2))
    assert (first == second).all()


def test_nothing_to_place() -> None:
    assert layered_layout(0, ints(), ints(), np.ones(0), ints()).shape == (0, 2)
