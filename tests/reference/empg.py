"""EMPG by loops: docs/methods/empg.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reference.rows import Row, all_rows, mean
from stepcredit.core.episodes import Episode


def empg(
    episodes: Sequence[Episode],
    base: Sequence[float],
    scale_rate: float = 1.0,
    clarity_rate: float = 1.0,
    clarity_weight: float = 0.05,
) -> list[float]:
    rows = all_rows(episodes)
    entropy = unit_entropy(rows, rows)
    level = mean([math.exp(-scale_rate * h) for h in entropy])
    raw = []
    for i, row in enumerate(rows):
        value = base[i] * math.exp(-scale_rate * entropy[i]) / level
        if i + 1 < len(rows) and rows[i + 1].episode == row.episode:
            value += clarity_weight * math.exp(-clarity_rate * entropy[i + 1])
        raw.append(value)
    return [value - mean(raw) for value in raw]


def unit_entropy(rows: Sequence[Row], group: Sequence[Row]) -> list[float]:
    """Entropies of ``rows`` between the extremes of ``group``; 0 where these agree."""
    known = [row.entropy or 0.0 for row in group]
    spread = max(known) - min(known)
    return [((row.entropy or 0.0) - min(known)) / spread if spread else 0.0 for row in rows]
