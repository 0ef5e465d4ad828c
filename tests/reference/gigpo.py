"""GiGPO by loops: docs/methods/gigpo.md."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from reference.grpo import grpo
from reference.rows import Row, all_rows, within
from stepcredit.core.episodes import Episode


def gigpo(
    episodes: Sequence[Episode],
    gamma: float = 0.95,
    normalize: str = "mean_std",
    step_weight: float = 1.0,
    penalty_in_step: bool = True,
    matcher: str = "exact",
    threshold: float = 0.95,
) -> list[float]:
    rows = all_rows(episodes)
    values = [row.step_return(gamma) - (row.penalty if penalty_in_step else 0.0) for row in rows]
    cluster = clusters_by_text(rows, threshold) if matcher == "text" else lambda row: row.state
    step = within(rows, values, lambda row: (row.task, cluster(row)), normalize)
    episode = grpo(episodes, normalize)
    return [episode[i] + step_weight * step[i] for i in range(len(rows))]


def clusters_by_text(rows: Sequence[Row], threshold: float) -> Callable[[Row], str]:
    """Row → first member of its cluster; every row in canonical order joins the first cluster similar enough."""
    firsts: dict[str, list[str]] = {}
    found: dict[tuple[str, int], str] = {}
    for row in sorted(rows, key=lambda row: (row.task, row.episode, row.turn)):
        known = firsts.setdefault(row.task, [])
        similar = [first for first in known if difflib.SequenceMatcher(None, row.state, first).ratio() >= threshold]
        if not similar:
            known.append(row.state)
        found[row.episode, row.turn] = similar[0] if similar else row.state
    return lambda row: found[row.episode, row.turn]
