"""GraphGPO by loops: docs/methods/graphgpo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.graph import source, target
from reference.grpo import grpo
from reference.rows import all_rows, within
from stepcredit.core.episodes import Episode


def graphgpo(
    episodes: Sequence[Episode], decay: float = 0.1, relative: bool = False, normalize: str = "mean_std"
) -> list[float]:
    rows = all_rows(episodes)
    won = {(episode.episode, len(episode.turns) - 1) for episode in episodes if episode.success}
    reached = [("goal",) if (row.episode, row.turn) in won else target(row) for row in rows]
    step_returns = [0.0] * len(rows)
    for task in {row.task for row in rows}:
        own = [i for i, row in enumerate(rows) if row.task == task]
        distance: dict[object, int] = {("goal",): 0}
        for _ in own:
            for i in own:
                if reached[i] in distance:
                    known = distance.get(source(rows[i]))
                    new = distance[reached[i]] + 1
                    distance[source(rows[i])] = new if known is None else min(known, new)
        beyond = max(distance.values()) + 1
        for i in own:
            exponent = distance.get(reached[i], beyond)
            if relative:
                exponent += 1 - distance.get(source(rows[i]), beyond)
            step_returns[i] = 10 * decay**exponent
    values = [step_returns[i] - rows[i].penalty for i in range(len(rows))]
    step, episode = within(rows, values, source, normalize), grpo(episodes, normalize)
    return [episode[i] + step[i] for i in range(len(rows))]
