"""BiPACE by loops: docs/methods/bipace.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.grpo import grpo
from reference.rows import all_rows, mean
from stepcredit.core.episodes import Episode


def bipace(
    episodes: Sequence[Episode], gamma: float = 0.95, normalize: str = "mean_std", step_weight: float = 1.0
) -> list[float]:
    rows = all_rows(episodes)
    returns = [row.step_return(gamma) for row in rows]
    episode = grpo(episodes, normalize)
    credit = []
    for index, row in enumerate(rows):
        group = [i for i, other in enumerate(rows) if (other.task, other.state) == (row.task, row.state)]
        peers = [i for i in group if rows[i].action == row.action]
        others = [i for i in group if i != index]
        if not others:
            step = 0.0
        elif len(peers) > 1:
            step = mean([returns[i] for i in peers]) - mean([returns[i] for i in group])
        else:
            step = returns[index] - mean([returns[i] for i in others])
        credit.append(episode[index] + step_weight * step)
    return credit
