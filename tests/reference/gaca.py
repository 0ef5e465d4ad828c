"""GACA by loops: docs/methods/gaca.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.grpo import grpo
from reference.rows import all_rows, mean, rows_by_episode, within
from stepcredit.core.episodes import Episode


def gaca(
    episodes: Sequence[Episode],
    lambda0: float = 0.5,
    alpha: float = 0.5,
    gamma: float = 0.95,
    normalize: str = "mean_std",
    step: Sequence[float] | None = None,
    penalty_in_step: bool = False,
    score: str = "nll",
    fusion_share: float = 1.0,
) -> list[float]:
    """``step``: the step credit to mix in; None: the method's own."""
    rows = all_rows(episodes)
    episode = grpo(episodes, normalize)
    own = list(step) if step is not None else step_with_fallback(episodes, gamma, normalize, penalty_in_step)
    weights = mixing_weights(episodes, lambda0, alpha, gamma, 1.0 if score == "nll" else fusion_share)
    return [(1 - weights[i]) * episode[i] + weights[i] * own[i] for i in range(len(rows))]


def step_with_fallback(episodes: Sequence[Episode], gamma: float, normalize: str, penalty_in_step: bool) -> list[float]:
    rows = all_rows(episodes)
    values = [row.step_return(gamma) - (row.penalty if penalty_in_step else 0.0) for row in rows]
    by_state = within(rows, values, lambda row: (row.task, row.state), normalize)
    by_task = within(rows, values, lambda row: row.task, normalize)
    visited = [(row.task, row.state) for row in rows]
    return [by_task[i] if visited.count(visited[i]) == 1 else by_state[i] for i in range(len(rows))]


def mixing_weights(
    episodes: Sequence[Episode], lambda0: float, alpha: float, gamma: float, share: float
) -> list[float]:
    own = rows_by_episode(episodes)
    change = {}
    for rows in own.values():
        after = [row.step_return(gamma) for row in rows[1:]] + [0.0]
        for row, later in zip(rows, after, strict=True):
            change[row.episode, row.turn] = abs(later - row.step_return(gamma))
    weights = []
    for rows in own.values():
        path = rows[-1].path
        for row in rows:
            by_nll = _relative(row.nll or 0.0, [member.nll or 0.0 for member in path])
            by_return = _relative(
                change[row.episode, row.turn], [change[member.episode, member.turn] for member in path]
            )
            criticality = share * by_nll + (1 - share) * by_return
            weights.append(min(lambda0 * (1 + alpha * criticality), 1.0))
    return weights


def _relative(value: float, along_path: Sequence[float]) -> float:
    level = mean(along_path)
    return value / level if level != 0 else 1.0
