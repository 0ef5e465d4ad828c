"""TSBPO's tree credit by loops: docs/methods/tsbpo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import Row, mean, within
from reference.tree import Forest, Place, place
from stepcredit.core.episodes import Episode


def tsbpo(
    episodes: Sequence[Episode], gamma: float = 0.95, step_coef: float = 1.0, balance_cap: float | None = None
) -> list[float]:
    forest = Forest(episodes)
    rows = forest.rows
    starts = [forest.segment_start(row) for row in rows]
    own: dict[Place, list[Row]] = {}
    for row, start in zip(rows, starts, strict=True):
        if start is not None:
            own.setdefault(place(start), []).append(row)
    fallback = {
        name: [row for row, start in zip(rows, starts, strict=True) if start is None and row.episode == name]
        for name in forest.roots
    }
    trajectory = []
    for row, start in zip(rows, starts, strict=True):
        if start is None:
            peers = [name for name in forest.roots if _task(rows, name) == row.task]
            credit = _root_score(forest, row.episode) - mean([_root_score(forest, name) for name in sorted(peers)])
            masses = {name: len(fallback[name]) for name in sorted(peers) if fallback[name]}
            weight = balance(list(masses.values()), balance_cap)[list(masses).index(row.episode)]
        else:
            peers_there = forest.siblings(start)
            scores = [_segment_score(forest, own[place(peer)]) for peer in peers_there]
            mine = [place(peer) for peer in peers_there].index(place(start))
            credit = scores[mine] - mean(scores)
            weight = balance([len(own[place(peer)]) for peer in peers_there], balance_cap)[mine]
        trajectory.append(weight * credit)
    memo: dict[Place, float] = {}
    q = [_discounted(forest, row, gamma, memo) - row.penalty for row in rows]
    step = within(rows, q, lambda row: (row.task, row.state), "mean")
    return [trajectory[i] + step_coef * step[i] for i in range(len(rows))]


def balance(masses: Sequence[int], cap: float | None) -> list[float]:
    """w_c = clip(λ·m̄/m_c, 1/C, C) with Σ m_c w_c = Σ m_c, λ by 60 bisections."""
    if cap is None:
        return [1.0] * len(masses)
    shares = [mean(masses) / mass for mass in masses]
    low, high = 0.0, cap / min(shares)
    for _ in range(60):
        middle = (low + high) / 2
        weights = [min(max(middle * share, 1 / cap), cap) for share in shares]
        if sum(m * w for m, w in zip(masses, weights, strict=True)) > sum(masses):
            high = middle
        else:
            low = middle
    return [min(max(high * share, 1 / cap), cap) for share in shares]


def _segment_score(forest: Forest, segment: Sequence[Row]) -> float:
    return mean([forest.terminal(segment[-1]) - row.penalty for row in segment])


def _root_score(forest: Forest, name: str) -> float:
    return mean([forest.returns[name] - row.penalty for row in forest.rows if row.episode == name])


def _task(rows: Sequence[Row], name: str) -> str:
    return next(row.task for row in rows if row.episode == name)


def _discounted(forest: Forest, row: Row, gamma: float, memo: dict[Place, float]) -> float:
    """T of a turn: R at a leaf, else γ times the mean T of the turns that follow."""
    if place(row) not in memo:
        following = forest.followers(row)
        memo[place(row)] = (
            gamma * mean([_discounted(forest, after, gamma, memo) for after in following])
            if following
            else forest.returns[row.episode]
        )
    return memo[place(row)]
