"""HGPO by loops: docs/methods/hgpo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.grpo import grpo
from reference.rows import EPSILON, all_rows, normalise
from stepcredit.core.episodes import Episode


def hgpo(
    episodes: Sequence[Episode],
    gamma: float = 0.95,
    history: int = 2,
    level_power: float = 1.0,
    normalize: str = "mean_std",
    drop_zero: bool = True,
    episode_weight: float = 0.0,
) -> list[float]:
    rows = all_rows(episodes)
    values = [row.step_return(gamma) - row.penalty for row in rows]
    episode = grpo(episodes, normalize)
    credit = []
    for index, row in enumerate(rows):
        levels = [(episode_weight, episode[index])] if episode_weight > 0 else []
        for length in range(1, min(history + 1, len(row.path)) + 1):
            group = [
                i
                for i, other in enumerate(rows)
                if other.task == row.task
                and len(other.path) >= length
                and other.history[-length:] == row.history[-length:]
            ]
            if len(group) >= 2:
                advantage = normalise([values[i] for i in group], normalize, ddof=0)[group.index(index)]
                levels.append(((length + 1) ** level_power, advantage))
        if drop_zero:
            levels = [(weight, advantage) for weight, advantage in levels if abs(advantage) > 1e-9]
        total = sum(weight for weight, _ in levels)
        credit.append(sum(weight * advantage for weight, advantage in levels) / (total + EPSILON))
    return credit
