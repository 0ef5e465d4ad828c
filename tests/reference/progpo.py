"""ProGPO by loops: docs/methods/progpo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import all_rows, within
from stepcredit.core.episodes import Episode


def progpo(episodes: Sequence[Episode], base: Sequence[float], normalize: str = "mean_std") -> list[float]:
    rows = all_rows(episodes)
    solved = {episode.task for episode in episodes if episode.success}
    coverage = [float(row.next_state not in row.history) for row in rows]
    explored = within(rows, coverage, lambda row: row.task, normalize)
    return [base[i] if row.task in solved else explored[i] for i, row in enumerate(rows)]
