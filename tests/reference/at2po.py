"""AT²PO's tree credit by loops: docs/methods/at2po.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reference.rows import Row, within
from reference.tree import Forest, Place, place
from stepcredit.core.episodes import Episode


def at2po(episodes: Sequence[Episode], temperature: float = 1.0, normalize: str = "mean_std") -> list[float]:
    forest = Forest(episodes)
    memo: dict[Place, float] = {}
    values = [_value(forest, row, temperature, memo) for row in forest.rows]
    return within(forest.rows, values, lambda row: row.task, normalize)


def _value(forest: Forest, row: Row, temperature: float, memo: dict[Place, float]) -> float:
    """Value of the occurrence a turn reaches."""
    if place(row) not in memo:
        following = forest.followers(row)
        weights = [math.exp((after.entropy or 0.0) / temperature) for after in following]
        memo[place(row)] = (
            sum(w * _value(forest, after, temperature, memo) for w, after in zip(weights, following, strict=True))
            / sum(weights)
            if following
            else forest.returns[row.episode]
        )
    return memo[place(row)]
