"""RLOO by loops: docs/methods/rloo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import all_rows, mean, returns, rows_by_episode
from stepcredit.core.episodes import Episode


def rloo(episodes: Sequence[Episode], statistics: str = "episode") -> list[float]:
    outcome, rows, own = returns(episodes), all_rows(episodes), rows_by_episode(episodes)
    if statistics == "turn":
        members = [(row.task, outcome[row.episode] - row.penalty) for row in rows]
    else:
        members = [
            (episode.task, outcome[episode.episode] - sum(row.penalty for row in own[episode.episode]))
            for episode in episodes
        ]
    credit = []
    for index, (task, score) in enumerate(members):
        others = [value for i, (group, value) in enumerate(members) if group == task and i != index]
        credit.append(score - mean(others) if others else 0.0)
    if statistics == "turn":
        return credit
    by_name = {episode.episode: value for episode, value in zip(episodes, credit, strict=True)}
    return [by_name[row.episode] for row in rows]
