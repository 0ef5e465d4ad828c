"""Slow references of the mixture fit and of U(n): plain loops over components, with scipy's log-Beta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import betaln, comb
from scipy.stats import beta

TRUSTS = (0, 0.03125, 0.125, 0.5, 1)


@dataclass(frozen=True)
class PastGroup:
    """A complete group with the evidence before it: (hˢ, hᶠ, cˢ, cᶠ, mˢ, mᶠ)."""

    task: str
    round: int
    evidence: tuple[float, float, float, float, float, float]
    successes: int
    failures: int


@cache
def components() -> list[tuple[float, float, float, float]]:
    """(a, b, η, ρ) of all 19,375 components, in the order m, κ, η, ρ."""
    found = []
    for step in range(25):
        mean = 0.025 + step * 0.95 / 24
        for power in range(31):
            strength = 10 ** (-3 + 5 * power / 30)
            for eta in TRUSTS:
                for rho in TRUSTS:
                    found.append((mean * strength, (1 - mean) * strength, eta, rho))
    return found


def posterior(
    component: tuple[NDArray[np.float64], ...], evidence: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B."""
    a, b, eta, rho = component
    won, lost, now_won, now_lost, lent_won, lent_lost = evidence
    return a + eta * won + now_won + rho * lent_won, b + eta * lost + now_lost + rho * lent_lost


def weights(
    groups: Sequence[PastGroup], task: str, now: int, decay: float
) -> tuple[tuple[NDArray[np.float64], ...], NDArray[np.float64]]:
    """Components (columns a, b, η, ρ) and weights that ``task`` sees in round ``now``."""
    others = [group for group in groups if group.task != task]
    if len({group.task for group in others}) < 2:
        single = (np.array([0.5]), np.array([0.5]), np.array([1.0]), np.array([0.0]))
        return single, np.ones(1)
    columns = tuple(np.array(column) for column in zip(*components(), strict=True))
    logarithm = np.zeros(len(columns[0]))
    for group in others:
        siblings = sum(other.task == group.task and other.round == group.round for other in groups)
        c = decay ** (now - 1 - group.round) / siblings
        a, b = posterior(columns, group.evidence)
        s, f = group.successes, group.failures
        logarithm += c * (np.log(comb(s + f, s)) + betaln(a + s, b + f) - betaln(a, b))
    allowed = np.ones(len(logarithm), dtype=bool)
    if not any(group.evidence[0] + group.evidence[1] > 0 for group in others):
        allowed &= columns[2] == 1
    if not any(group.evidence[4] + group.evidence[5] > 0 for group in others):
        allowed &= columns[3] == 0
    weight = np.where(allowed, np.exp(logarithm - logarithm[allowed].max()), 0)
    return columns, weight / weight.sum()


def mixed(a: NDArray[np.float64], b: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """u(n; A, B) from log-Beta functions."""
    return 1 - np.exp(betaln(a + n, b) - betaln(a, b)) - np.exp(betaln(a, b + n) - betaln(a, b))


def mixed_by_quadrature(a: float, b: float, n: int) -> float:
    """∫ (1 − pⁿ − (1−p)ⁿ) Beta(p; a, b) dp."""
    value, _ = quad(lambda p: (1 - p**n - (1 - p) ** n) * beta.pdf(p, a, b), 0, 1, epsabs=1e-13, epsrel=1e-12)
    return float(value)
