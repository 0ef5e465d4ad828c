"""RTMC by loops: docs/methods/rtmc.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import all_rows, mean
from stepcredit.core.episodes import Episode


def rtmc(episodes: Sequence[Episode], gamma: float = 0.95, shrinkage: float = 0.0) -> list[float]:
    rows = all_rows(episodes)
    credit = []
    for row in rows:
        state = [other for other in rows if (other.task, other.state) == (row.task, row.state)]
        action = [other for other in state if other.action == row.action]
        gap = mean([other.step_return(gamma) for other in action]) - mean([other.step_return(gamma) for other in state])
        credit.append(len(action) / (len(action) + shrinkage) * gap)
    return credit
