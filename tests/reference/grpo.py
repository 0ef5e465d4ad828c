"""GRPO by loops: docs/methods/grpo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import all_rows, normalise, returns, rows_by_episode, within
from stepcredit.core.episodes import Episode


def grpo(
    episodes: Sequence[Episode], normalize: str = "mean_std", statistics: str = "turn", singleton: str = "zero"
) -> list[float]:
    outcome, rows = returns(episodes), all_rows(episodes)
    if statistics == "turn":
        scores = [outcome[row.episode] - row.penalty for row in rows]
        credit = within(rows, scores, lambda row: row.task, normalize)
        lonely = {row.task for row in rows if sum(other.task == row.task for other in rows) == 1}
    else:
        own = rows_by_episode(episodes)
        score = {name: outcome[name] - sum(row.penalty for row in own[name]) for name in own}
        value: dict[str, float] = {}
        for task in {episode.task for episode in episodes}:
            members = [episode.episode for episode in episodes if episode.task == task]
            value |= dict(zip(members, normalise([score[name] for name in members], normalize), strict=True))
        scores, credit = [score[row.episode] for row in rows], [value[row.episode] for row in rows]
        tasks = [episode.task for episode in episodes]
        lonely = {task for task in tasks if tasks.count(task) == 1}
    if singleton == "raw":
        return [scores[i] if row.task in lonely else credit[i] for i, row in enumerate(rows)]
    return credit
