"""Slow reference of the suffix split: every combination, and the greedy rule it must beat."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product


def options(capacity: int, opening: int) -> list[int]:
    """Numbers of suffixes one candidate may take."""
    return [0, *range(opening, capacity + 1)]


def best_value(curves: Sequence[Sequence[float]], capacity: Sequence[int], budget: int, opening: int) -> float:
    """Largest Σ F(k) over all feasible combinations."""
    choices = [options(min(most, len(curve) - 1), opening) for most, curve in zip(capacity, curves, strict=True)]
    return max(
        sum(curve[k] for curve, k in zip(curves, picked, strict=True))
        for picked in product(*choices)
        if sum(picked) <= budget
    )


def greedy_value(curves: Sequence[Sequence[float]], capacity: Sequence[int], budget: int, opening: int) -> float:
    """Always the feasible step (opening, or one more) of largest gain per suffix."""
    taken = [0] * len(curves)
    left = budget
    while True:
        steps = []
        for candidate, curve in enumerate(curves):
            have = taken[candidate]
            size = 1 if have else opening
            if size <= left and have + size <= min(capacity[candidate], len(curve) - 1):
                steps.append(((curve[have + size] - curve[have]) / size, -candidate, size))
        if not steps:
            return sum(curve[k] for curve, k in zip(curves, taken, strict=True))
        _, candidate, size = max(steps)
        taken[-candidate] += size
        left -= size
