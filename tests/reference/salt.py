"""SALT by loops: docs/methods/salt.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.grpo import grpo
from reference.rows import all_rows, by_key, mean
from stepcredit.core.episodes import Episode


def salt(episodes: Sequence[Episode], normalize: str = "mean_std", statistics: str = "turn") -> list[float]:
    rows, credit = all_rows(episodes), grpo(episodes, normalize, statistics)
    merged = list(credit)
    for edge in by_key(rows, lambda row: (row.task, row.state, row.action, row.next_state)):
        for index in edge:
            merged[index] = mean([credit[i] for i in edge])
    return merged
