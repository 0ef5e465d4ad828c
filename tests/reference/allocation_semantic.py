"""Slow references of semantic evidence: one borrower after the other, rule after rule."""

from __future__ import annotations

from collections.abc import Sequence


def scaled(pair: tuple[float, float], most: float) -> tuple[float, float]:
    """The pair, scaled down to a sum of at most ``most``."""
    total = pair[0] + pair[1]
    return pair if total <= most else (pair[0] * most / total, pair[1] * most / total)


def root_masses(cosines: Sequence[float], history: Sequence[tuple[float, float]], own: int) -> tuple[float, float]:
    """What task ``own`` borrows."""
    donors = [
        (((cosine - 0.95) / 0.05) ** 2, task)
        for task, cosine in enumerate(cosines)
        if task != own and cosine >= 0.95 and sum(history[task]) > 0
    ]
    donors.sort(key=lambda donor: (-donor[0], donor[1]))
    won = lost = 0.0
    for weight, task in donors[:8]:
        pair = scaled(history[task], 6)
        won += weight * pair[0]
        lost += weight * pair[1]
    return scaled((won, lost), 4)


def branch_masses(
    donors: Sequence[tuple[float, Sequence[tuple[int, float, float]]]], own_clusters: set[int]
) -> tuple[float, float]:
    """What a state borrows.

    Args:
        donors: (kernel weight, [(cluster, decayed successes, decayed failures)]), nearest first, at most 8 count.
        own_clusters: clusters that are the borrower's own evidence.
    """
    used: set[int] = set()
    won = lost = 0.0
    for weight, clusters in donors[:8]:
        for cluster, successes, failures in clusters:
            if cluster in used or cluster in own_clusters:
                continue
            used.add(cluster)
            pair = scaled((successes, failures), 1)
            won += weight * pair[0]
            lost += weight * pair[1]
    return scaled((won, lost), 4)
