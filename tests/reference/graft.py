"""GRAFT by loops: docs/methods/graft.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.graph import Node, dense_solve, source, target
from reference.grpo import grpo
from reference.rows import EPSILON, Row, all_rows, mean, within
from stepcredit.core.episodes import Episode


def graft(
    episodes: Sequence[Episode],
    gamma: float = 0.99,
    lam: float = 0.95,
    gae: bool = True,
    value_weighting: str = "count",
    hop_mean: str = "raw",
    normalize: str = "node",
    episode_weight: float = 0.0,
) -> list[float]:
    rows, values = all_rows(episodes), dense_solve(episodes, gamma, value_weighting)
    advantage = [gamma * values[target(row)] - values[source(row)] for row in rows]
    if gae:
        left = {(episode.episode, t): len(episode.turns) - t for episode in episodes for t in range(len(episode.turns))}
        advantage = graph_gae(rows, advantage, [left[row.episode, row.turn] for row in rows], gamma * lam, hop_mean)
    if normalize == "node":
        advantage = _within_nodes(rows, advantage)
    episode = grpo(episodes) if episode_weight else [0.0] * len(rows)
    return [advantage[i] + episode_weight * episode[i] for i in range(len(rows))]


def graph_gae(
    rows: Sequence[Row], delta: Sequence[float], left: Sequence[int], discount: float, hop_mean: str
) -> list[float]:
    """δ_i + Σ_{k=1}^{T−t} (γλ)^k · mean δ over E_k, hop by hop."""
    edges: dict[Node, dict[object, tuple[Node, float]]] = {}
    for index, row in enumerate(rows):
        name = index if hop_mean == "raw" else (row.action, row.next_state)
        edges.setdefault(source(row), {})[name] = (target(row), delta[index])
    result = []
    for index, row in enumerate(rows):
        total, standing = delta[index], {target(row)}
        for hop in range(1, left[index] + 1):
            taken = [edge for node in sorted(standing) for edge in edges.get(node, {}).values()]
            if not taken:
                break
            total += discount**hop * mean([value for _, value in taken])
            standing = {reached for reached, _ in taken}
        result.append(total)
    return result


def _within_nodes(rows: Sequence[Row], advantage: Sequence[float]) -> list[float]:
    shared = within(rows, advantage, source, "mean_std")
    nodes = [source(row) for row in rows]
    signs = [0.0 if abs(value) <= 1e-9 else value / (abs(value) + EPSILON) for value in advantage]
    return [signs[i] if nodes.count(nodes[i]) == 1 else shared[i] for i in range(len(rows))]
