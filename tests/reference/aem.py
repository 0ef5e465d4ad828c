"""AEM by loops: docs/methods/aem.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reference.empg import unit_entropy
from reference.rows import all_rows, by_key, mean
from stepcredit.core.episodes import Episode


def aem(episodes: Sequence[Episode], base: Sequence[float], rate: float = 1.0) -> list[float]:
    rows, advantage = all_rows(episodes), list(base)
    for group in by_key(rows, lambda row: row.task):
        members = [rows[i] for i in group]
        factor = [math.exp(-rate * h) for h in unit_entropy(members, members)]
        for i, scale in zip(group, factor, strict=True):
            advantage[i] = base[i] * scale / mean(factor)
    return advantage
