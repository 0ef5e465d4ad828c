"""A batch's trajectory graph as dictionaries, its values by two plain solvers: docs/methods/graft.md."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from reference.rows import Row, all_rows, mean
from stepcredit.core.episodes import Episode

Node = tuple[str, str]
"""(task, state key)."""


def source(row: Row) -> Node:
    return row.task, row.state


def target(row: Row) -> Node:
    return row.task, row.next_state


def endings(episodes: Sequence[Episode]) -> dict[Node, list[float]]:
    """Outcome y of every episode that ends in a node."""
    found: dict[Node, list[float]] = {}
    for episode in episodes:
        node = (episode.task, episode.final_observation)
        found.setdefault(node, []).append(1.0 if episode.success else 0.0)
    return found


def departures(episodes: Sequence[Episode]) -> dict[Node, list[Row]]:
    """The turns that leave a node."""
    found: dict[Node, list[Row]] = {}
    for row in all_rows(episodes):
        found.setdefault(source(row), []).append(row)
    return found


def equations(episodes: Sequence[Episode], weighting: str) -> dict[Node, tuple[float, dict[Node, float]]]:
    """V(u) = constant + γ·Σ weight(v)·V(v) of every node: the constant and the weights."""
    leaving, ending = departures(episodes), endings(episodes)
    return {
        node: _equation(leaving.get(node, []), ending.get(node, []), weighting)
        for node in dict.fromkeys([*leaving, *ending])
    }


def _equation(out: list[Row], outcomes: list[float], weighting: str) -> tuple[float, dict[Node, float]]:
    weights: dict[Node, float] = {}
    if not out:
        return mean(outcomes), weights
    if weighting == "count":
        visits = len(out) + len(outcomes)
        for row in out:
            weights[target(row)] = weights.get(target(row), 0.0) + 1 / visits
        return math.fsum(outcomes) / visits, weights
    actions = {row.action for row in out}
    choices = len(actions) + (1 if outcomes else 0)
    for row in out:
        repeats = sum(other.action == row.action for other in out)
        weights[target(row)] = weights.get(target(row), 0.0) + 1 / (choices * repeats)
    return (mean(outcomes) / choices if outcomes else 0.0), weights


def gauss_seidel(episodes: Sequence[Episode], gamma: float, weighting: str) -> dict[Node, float]:
    """The paper's solver: sweeps in reverse breadth-first order from the sinks, tolerance 1e-8."""
    system = equations(episodes, weighting)
    into: dict[Node, list[Node]] = {}
    for node, (_, weights) in system.items():
        for reached in weights:
            into.setdefault(reached, []).append(node)
    order = dict.fromkeys(endings(episodes))
    queue = deque(order)
    while queue:
        for node in into.get(queue.popleft(), []):
            if node not in order:
                order[node] = None
                queue.append(node)
    values = dict.fromkeys(system, 0.0)
    tolerance = 1e-8
    for _ in range(math.ceil(math.log(tolerance) / math.log(gamma)) + 50):
        change = 0.0
        for node in order:
            constant, weights = system[node]
            new = constant + gamma * math.fsum(weight * values[v] for v, weight in weights.items())
            change = max(change, abs(new - values[node]))
            values[node] = new
        if change < tolerance:
            break
    return values


def dense_solve(episodes: Sequence[Episode], gamma: float, weighting: str) -> dict[Node, float]:
    """The same equations written out row by row as one dense matrix: exact to rounding."""
    system = equations(episodes, weighting)
    place = {node: i for i, node in enumerate(system)}
    matrix, right = np.eye(len(place)), np.zeros(len(place))
    for node, (constant, weights) in system.items():
        right[place[node]] = constant
        for reached, weight in weights.items():
            matrix[place[node], place[reached]] -= gamma * weight
    return dict(zip(place, np.linalg.solve(matrix, right).tolist(), strict=True))


def propagation_degrees(episodes: Sequence[Episode]) -> list[int]:
    """For every node that a turn leaves: the episodes whose final state can be reached from it."""
    leaving = departures(episodes)
    degrees = []
    for start in leaving:
        seen, queue = {start}, deque([start])
        while queue:
            for row in leaving.get(queue.popleft(), []):
                if target(row) not in seen:
                    seen.add(target(row))
                    queue.append(target(row))
        degrees.append(sum((episode.task, episode.final_observation) in seen for episode in episodes))
    return degrees
