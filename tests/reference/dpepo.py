"""DPEPO's diversity credit by loops: docs/methods/dpepo.md."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from reference.grpo import grpo
from reference.rows import Row, all_rows, within
from stepcredit.core.episodes import Episode


def dpepo(
    episodes: Sequence[Episode],
    action_weight: float = 0.1,
    transition_weight: float = 0.1,
    normalize: str = "mean_std",
) -> list[float]:
    rows, episode = all_rows(episodes), grpo(episodes, normalize)
    action = novelty(rows, lambda row: (row.task, row.state, row.action))
    transition = novelty(rows, lambda row: (row.task, row.state, row.next_state))
    bonus = [action_weight * a + transition_weight * s for a, s in zip(action, transition, strict=True)]
    step = within(rows, bonus, lambda row: row.task, "mean")
    return [episode[i] + step[i] for i in range(len(rows))]


def novelty(rows: Sequence[Row], kind: Callable[[Row], Hashable]) -> list[float]:
    """1 − share of the other episodes of the task in which the turn's kind occurs."""
    found = []
    for row in rows:
        others = {other.episode for other in rows if other.task == row.task} - {row.episode}
        same = {other.episode for other in rows if kind(other) == kind(row)} - {row.episode}
        found.append(1 - len(same) / len(others) if others else 0.0)
    return found
