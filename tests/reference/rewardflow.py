"""RewardFlow by loops: docs/methods/rewardflow.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.graph import endings, source, target
from reference.grpo import grpo
from reference.rows import all_rows, mean, within
from stepcredit.core.episodes import Episode


def rewardflow(episodes: Sequence[Episode], gamma: float = 0.9, normalize: str = "mean_std") -> list[float]:
    rows = all_rows(episodes)
    value = {node: 0.0 for row in rows for node in (source(row), target(row))}
    value |= {node: mean(outcomes) for node, outcomes in endings(episodes).items()}
    for _ in rows:
        for row in rows:
            value[source(row)] = max(value[source(row)], gamma * value[target(row)])
    last = {(episode.episode, len(episode.turns) - 1) for episode in episodes}
    reward = [
        row.reward if (row.episode, row.turn) in last else value[target(row)] - value[source(row)] for row in rows
    ]
    step, episode = within(rows, reward, source, normalize), grpo(episodes, normalize)
    return [episode[i] + step[i] for i in range(len(rows))]
