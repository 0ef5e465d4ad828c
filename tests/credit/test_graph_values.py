"""State values and hops on the graph: two slow solvers, long cycles, and what sets of nodes do."""

from __future__ import annotations

import numpy as np
import pytest

from reference.batches import DEGENERATE, batch, chain
from reference.graph import Node, dense_solve, gauss_seidel, propagation_degrees, source, target
from reference.rows import all_rows
from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Episode
from stepcredit.core.errors import MissingExtraError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.credit.graph import Graph, propagation_degree, ragged_range
from stepcredit.credit.graph_hops import hop_sums
from stepcredit.credit.graph_values import ValueWeighting, solve_values


def by_name(episodes: list[Episode], values: FloatArray) -> dict[Node, float]:
    """Values by node number as values by (task, state)."""
    turns = Turns.from_episodes(episodes)
    named = {}
    for row, left, reached in zip(all_rows(episodes), turns.state, turns.next_state, strict=True):
        named[source(row)], named[target(row)] = float(values[left]), float(values[reached])
    return named


def values_of(episodes: list[Episode], gamma: float, weighting: ValueWeighting) -> dict[Node, float]:
    values, residual = solve_values(Graph.from_turns(Turns.from_episodes(episodes)), gamma, weighting)
    assert residual < 1e-14
    return by_name(episodes, values)


@pytest.mark.parametrize("weighting", ["count", "action"])
def test_solve_equals_the_dense_system(weighting: ValueWeighting) -> None:
    for seed in range(200):
        gamma = (0.99, 0.5, 1.0, 0.0)[seed % 4]
        solved = values_of(batch(seed), gamma, weighting)
        assert solved == pytest.approx(dense_solve(batch(seed), gamma, weighting), abs=1e-12), seed


@pytest.mark.parametrize("weighting", ["count", "action"])
def test_solve_equals_the_papers_sweeps(weighting: ValueWeighting) -> None:
    for seed in range(60):
        gamma = (0.99, 0.9)[seed % 2]
        solved = values_of(batch(seed), gamma, weighting)
        assert solved == pytest.approx(gauss_seidel(batch(seed), gamma, weighting), abs=1e-6), seed


def test_outcomes_at_one_sink_pool_and_a_left_sink_averages_its_visits() -> None:
    episodes = [
        chain("t", "A", ["s"], end="x", success=True),
        chain("t", "B", ["s"], end="x"),
        chain("t", "C", ["s", "x"], end="y", success=True),
    ]
    count, action = (values_of(episodes, 0.5, weighting) for weighting in ("count", "action"))
    assert count["t", "y"] == 1
    assert count["t", "x"] == pytest.approx((1 + 0 + 0.5 * 1) / 3)
    # One action leaves x and its two endings together are one more: (½ + ½·1)/2.
    assert action["t", "x"] == pytest.approx((0.5 + 0.5) / 2)


def test_where_only_failures_are_in_reach_values_are_exactly_zero() -> None:
    episodes = [chain("t", "A", ["a", "b", "a"], end="c"), chain("t", "B", ["d"], success=True)]
    values = values_of(episodes, 0.99, "count")
    assert [values["t", state] for state in "abc"] == [0, 0, 0]
    assert values["t", "d"] == pytest.approx(0.99)


def test_propagation_degree_counts_episodes_by_search() -> None:
    for seed in range(150):
        episodes = batch(seed)
        turns = Turns.from_episodes(episodes)
        graph = Graph.from_turns(turns)
        degree = propagation_degree(graph, turns)
        # The reference lists nodes in the order in which turns first leave them.
        first = dict.fromkeys(turns.state.tolist())
        assert degree[list(first)].tolist() == propagation_degrees(episodes), seed


def test_propagation_degree_beyond_one_word_of_episodes() -> None:
    episodes = [chain("t", f"{i}", ["s", f"u{i}"], end=f"e{i}") for i in range(130)]
    turns = Turns.from_episodes(episodes)
    degree = propagation_degree(Graph.from_turns(turns), turns)
    assert degree[turns.state[0]] == 130
    assert set(degree[turns.state[1::2]].tolist()) == {1}


def hops(episodes: list[Episode], delta: FloatArray, discount: float) -> FloatArray:
    turns = Turns.from_episodes(episodes)
    left = np.diff(turns.start)[turns.episode] - turns.turn
    return hop_sums(Graph.from_turns(turns), delta, discount=discount, remaining=left, hop_mean="raw", collapsed=False)


def test_a_chain_looks_along_itself() -> None:
    delta = np.array([1.0, 2.0, 4.0, 8.0])
    sums = hops([chain("t", "A", ["a", "b", "c", "d"])], delta, 0.5)
    np.testing.assert_allclose(sums, [2 / 2 + 4 / 4 + 8 / 8, 4 / 2 + 8 / 4, 8 / 2, 0])


def test_a_turn_looks_as_far_as_its_episode_has_turns_left() -> None:
    # Both episodes go round the same two-cycle; only the number of turns left differs.
    episodes = [chain("t", "A", ["a", "b"] * 3, end="a"), chain("t", "B", ["a"], end="b")]
    delta = np.array([1.0, -1.0] * 3 + [1.0])
    sums = hops(episodes, delta, 1.0)
    np.testing.assert_allclose(sums, [sum((-1) ** k for k in range(1, n + 1)) * s for n, s in _left_and_sign()])


def _left_and_sign() -> list[tuple[int, int]]:
    """Turns left and the sign of the turn's own δ: hop k of a turn with δ = s is worth s·(−1)^k."""
    return [(6 - t, 1 if t % 2 == 0 else -1) for t in range(6)] + [(1, 1)]


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_cycles_of_different_lengths_stay_exact_over_thousands_of_turns(discount: float) -> None:
    # Cycles of length 3 and 4 share "s": which states a hop stands on repeats with period 12 at the earliest.
    loops = [["s", "a1", "a2"], ["s", "b1", "b2", "b3"]]
    episodes = [chain("t", f"{i}", (loop * 2000)[:5000], end="end") for i, loop in enumerate(loops)]
    turns = Turns.from_episodes(episodes)
    graph = Graph.from_turns(turns)
    delta = np.random.default_rng([3]).normal(size=len(turns))
    sums = hops(episodes, delta, discount)
    total = np.bincount(graph.source, weights=delta, minlength=len(graph))
    count = np.bincount(graph.source, minlength=len(graph))
    step = np.zeros((len(graph), len(graph)), dtype=bool)
    step[graph.source, graph.target] = True
    for row in (0, 1, 4990, 4999, 5003):
        standing = np.zeros(len(graph), dtype=bool)
        standing[graph.target[row]] = True
        expected, left = 0.0, 5000 - int(turns.turn[row])
        for k in range(1, left + 1):
            if count[standing].sum() == 0:
                break
            expected += discount**k * total[standing].sum() / count[standing].sum()
            standing = step[standing].any(axis=0)
        assert sums[row] == pytest.approx(expected, abs=1e-9), row


@pytest.mark.parametrize("name", ["five thousand turns", "deep chain of branches", "two-cycle", "self-loop"])
@pytest.mark.parametrize("discount", [0.9405, 1.0])
def test_long_and_cyclic_batches_stay_finite(name: str, discount: float) -> None:
    episodes = DEGENERATE[name]
    graph = Graph.from_turns(Turns.from_episodes(episodes))
    values, residual = solve_values(graph, 0.99, "action")
    assert residual < 1e-14
    assert ((values >= 0) & (values <= 1)).all()
    assert np.isfinite(hops(episodes, 0.99 * values[graph.target] - values[graph.source], discount)).all()


def test_ragged_range() -> None:
    assert ragged_range(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    assert ragged_range(np.array([], dtype=int), np.array([], dtype=int)).tolist() == []


def test_without_scipy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepcredit.credit.graph.find_spec", lambda package: None)
    turns = Turns.from_episodes(next(iter(DEGENERATE.values())))
    with pytest.raises(MissingExtraError, match=r"Credit on graphs needs scipy.*pip install 'stepcredit\[graph\]'"):
        assign(turns, "graft")
