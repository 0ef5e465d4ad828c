"""HCAPO by loops: docs/methods/hcapo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import all_rows, mean, returns, rows_by_episode, within
from stepcredit.core.episodes import Episode


def hcapo(
    episodes: Sequence[Episode],
    hindsight: Sequence[float],
    base: Sequence[float],
    gamma: float = 0.95,
    weight: float = 1.0,
) -> list[float]:
    rows, outcome, own = all_rows(episodes), returns(episodes), rows_by_episode(episodes)
    given = {(row.episode, row.turn): hindsight[i] for i, row in enumerate(rows)}
    success = {episode.episode: episode.success for episode in episodes}
    q = []
    for row in rows:
        level = mean([given[member.episode, member.turn] for member in own[row.episode][-1].path])
        ratio = given[row.episode, row.turn] / level if level != 0 else 1.0
        left = len(own[row.episode]) - row.turn
        q.append(min(max(ratio, 0.8), 1.2) * gamma**left * outcome[row.episode])
    micro = within(rows, q, lambda row: row.task, "mean_std")
    micro = [max(z, 0.0) if success[row.episode] else z for z, row in zip(micro, rows, strict=True)]
    return [base[i] + weight * micro[i] for i in range(len(rows))]
