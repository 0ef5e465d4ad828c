"""REINFORCE++ with a group baseline by loops: docs/methods/reinforce_pp.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import all_rows, normalise, returns, within
from stepcredit.core.episodes import Episode


def reinforce_pp(episodes: Sequence[Episode]) -> list[float]:
    outcome, rows = returns(episodes), all_rows(episodes)
    scores = [outcome[row.episode] - row.penalty for row in rows]
    return normalise(within(rows, scores, lambda row: row.task, "mean"), "mean_std")
