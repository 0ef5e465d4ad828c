"""The grid of Beta components, and what one group of outcomes says about each of them.

A component says how a task's (or state's) success probability p is distributed once its evidence is known:
p ~ Beta(A, B), with

    A = a + η·hˢ + cˢ + ρ·mˢ      B = b + η·hᶠ + cᶠ + ρ·mᶠ      a = m·κ,  b = (1 − m)·κ

Axes of every grid array: mean m, strength κ, trust in history η, trust in semantic neighbours ρ. An axis on which
nothing depends has length 1, so that numpy's broadcasting saves the work.

Source: TSBPO §4 and appendix C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepcredit.core.credit import FloatArray

TRUSTS = (0.0, 0.03125, 0.125, 0.5, 1.0)
"""Values of η and of ρ."""

_FACTORS_PER_LOGARITHM = 64  # (1e4)^64 is still finite: evidence of many thousand outcomes cannot overflow


class Evidence(NamedTuple):
    """Masses of successes and failures (numbers of outcomes, fractional after decay) known before a prediction."""

    history_success: float = 0.0
    history_failure: float = 0.0
    current_success: float = 0.0
    current_failure: float = 0.0
    semantic_success: float = 0.0
    semantic_failure: float = 0.0

    @property
    def has_history(self) -> bool:
        """Whether η matters."""
        return self.history_success > 0 or self.history_failure > 0

    @property
    def has_semantic(self) -> bool:
        """Whether ρ matters."""
        return self.semantic_success > 0 or self.semantic_failure > 0


@dataclass(frozen=True, slots=True)
class Grid:
    """Components as broadcastable arrays with axes [m, κ, η, ρ].

    Attributes:
        a, b: prior masses of success and failure, > 0.
        total: a + b = κ.
        history_trust: η.
        semantic_trust: ρ.
    """

    a: FloatArray
    b: FloatArray
    total: FloatArray
    history_trust: FloatArray
    semantic_trust: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes [m, κ, η, ρ]; their product is the number of components."""
        return np.broadcast_shapes(self.a.shape, self.history_trust.shape, self.semantic_trust.shape)

    def posterior(self, evidence: Evidence) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A, B and A + B of every component, each > 0; axes on which they do not depend have length 1."""
        history = self.history_trust if evidence.has_history else np.zeros((1, 1, 1, 1))
        semantic = self.semantic_trust if evidence.has_semantic else np.zeros((1, 1, 1, 1))
        success = history * evidence.history_success + evidence.current_success + semantic * evidence.semantic_success
        failure = history * evidence.history_failure + evidence.current_failure + semantic * evidence.semantic_failure
        return self.a + success, self.b + failure, self.total + (success + failure)

    def log_likelihood(self, evidence: Evidence, successes: int, failures: int) -> FloatArray:
        """log C(s+f, s) + log B(A+s, B+f) − log B(A, B), the Beta-binomial probability of a group's outcomes.

        Counts are integers, so the Beta functions are products of s + f factors: exact to a few ulp and an order of
        magnitude faster than log-gamma.

        Returns:
            Broadcastable to ``shape``.
        """
        a, b, total = self.posterior(evidence)
        choices = math.lgamma(successes + failures + 1) - math.lgamma(successes + 1) - math.lgamma(failures + 1)
        return log_rising(a, successes) + log_rising(b, failures) - log_rising(total, successes + failures) + choices

    def narrowed(self, *, history_trust: float | None, semantic_trust: float | None) -> tuple[Grid, tuple[slice, ...]]:
        """The subgrid with η and ρ fixed (None leaves an axis whole), and the index that cuts arrays to it."""
        index = (
            slice(None),
            slice(None),
            _axis_slice(self.history_trust, history_trust),
            _axis_slice(self.semantic_trust, semantic_trust),
        )
        history, semantic = self.history_trust[:, :, index[2]], self.semantic_trust[..., index[3]]
        return Grid(self.a, self.b, self.total, history, semantic), index


def mixture_grid(*, semantic: bool = True) -> Grid:
    """The 19,375 components: m in 25 even steps .025 … .975, κ in 31 logarithmic steps 1e-3 … 1e2, η and ρ in TRUSTS.

    Args:
        semantic: False leaves ρ = 0 only (3,875 components): what the full grid reduces to without semantic evidence.
    """
    mean = np.linspace(0.025, 0.975, 25)[:, None, None, None]
    strength = np.logspace(-3, 2, 31)[None, :, None, None]
    trusts = np.array(TRUSTS)
    return Grid(
        a=mean * strength,
        b=(1 - mean) * strength,
        total=strength,
        history_trust=trusts[None, None, :, None],
        semantic_trust=(trusts if semantic else trusts[:1])[None, None, None, :],
    )


def single_component(a: float, b: float) -> Grid:
    """The grid of one component that trusts history fully (η = 1) and semantic neighbours not at all (ρ = 0)."""
    cell = np.ones((1, 1, 1, 1))
    return Grid(a=a * cell, b=b * cell, total=(a + b) * cell, history_trust=cell, semantic_trust=0 * cell)


def log_rising(x: FloatArray, count: int) -> FloatArray:
    """log of the rising factorial x·(x+1)·…·(x+count−1), element by element; 0 for count = 0. x > 0."""
    logarithm = np.zeros_like(x)
    for low in range(0, count, _FACTORS_PER_LOGARITHM):
        product = x + low
        for step in range(low + 1, min(low + _FACTORS_PER_LOGARITHM, count)):
            product *= x + step
        logarithm += np.log(product)
    return logarithm


def _axis_slice(values: FloatArray, wanted: float | None) -> slice:
    if wanted is None:
        return slice(None)
    position = int(np.flatnonzero(values.ravel() == wanted)[0])
    return slice(position, position + 1)
