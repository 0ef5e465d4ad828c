"""Predictions kept beside what happened, so that one can see whether the allocator's probabilities are honest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepcredit.core.credit import FloatArray

BINS = 10
_MOST_KEPT = 100_000


class Calibration:
    """The latest 100,000 pairs of a predicted probability and whether the event happened."""

    def __init__(self) -> None:
        self._pairs: FloatArray = np.zeros((0, 2))

    def add(self, pairs: list[tuple[float, bool]]) -> None:
        """Append pairs (probability, happened)."""
        new = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        self._pairs = np.concatenate([self._pairs, new])[-_MOST_KEPT:]

    def summary(self) -> dict[str, Any]:
        """Number of predictions, Brier score, means, and reliability bins.

        Keys: ``count``; ``brier`` = mean (p − y)²; ``predicted`` and ``observed`` = means of p and y; ``bins`` = the
        non-empty ones of ten equal bins of p, each with ``low``, ``high``, ``count``, ``predicted`` and ``observed``.
        Means are None without predictions.
        """
        if not len(self._pairs):
            return {"count": 0, "brier": None, "predicted": None, "observed": None, "bins": []}
        probability, happened = self._pairs.T
        place = np.minimum((probability * BINS).astype(int), BINS - 1)
        bins = []
        for number in np.unique(place).tolist():
            inside = place == number
            bins.append(
                {
                    "low": number / BINS,
                    "high": (number + 1) / BINS,
                    "count": int(inside.sum()),
                    "predicted": float(probability[inside].mean()),
                    "observed": float(happened[inside].mean()),
                }
            )
        return {
            "count": len(self._pairs),
            "brier": float(((probability - happened) ** 2).mean()),
            "predicted": float(probability.mean()),
            "observed": float(happened.mean()),
            "bins": bins,
        }

    def state(self) -> dict[str, FloatArray]:
        """The pairs, ``[n, 2]``."""
        return {"pairs": self._pairs.copy()}

    def load(self, arrays: Mapping[str, FloatArray]) -> None:
        """Become what ``state`` described."""
        self._pairs = arrays["pairs"].copy()
