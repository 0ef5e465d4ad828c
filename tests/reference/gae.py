"""Turn-level GAE by loops: docs/methods/gae.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import rows_by_episode
from stepcredit.core.episodes import Episode


def gae(episodes: Sequence[Episode], values: Sequence[float], gamma: float = 0.95, lam: float = 0.95) -> list[float]:
    advantage, given = [], iter(values)
    for rows in rows_by_episode(episodes).values():
        v = [next(given) for _ in rows] + [0.0]
        delta = [row.reward + gamma * v[t + 1] - v[t] for t, row in enumerate(rows)]
        for t, row in enumerate(rows):
            tail = sum((gamma * lam) ** k * later for k, later in enumerate(delta[t:]))
            advantage.append(tail - row.penalty)
    return advantage
