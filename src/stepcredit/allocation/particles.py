"""How likely suffixes are to convert a state: particles of a task, and the curve F(k) of every candidate.

All factual outcomes of a candidate agree. With success probability p, a suffix is of the opposite kind with
probability q = p after failures and 1 − p after successes, and k suffixes *convert* the state (make it mixed) with

    F(k) = E[1 − (1−q)^k],   estimated over particles.

**Particles.** A particle of a task draws one mixture component (a, b, η, ρ) and gamma masses that all candidates of the
task share, so that their p are dependent as their evidence is:

    X⁺ = Γ(a) + Σ_clusters (success part) + Γ(ρ·mˢ)       X⁻ = Γ(b) + Σ_clusters (failure part) + Γ(ρ·mᶠ)
    p = X⁺/(X⁺ + X⁻)

TSBPO leaves the split of a cluster's mass open; this is chosen here. A physical sampling cluster (a root episode with
its branches) carries a gamma process on [0, N], N the largest number of its outcomes that any candidate saw. For a
candidate that saw s successes and f failures of it, the success part is the process's mass on [0, s], the failure part
its mass on [N−f, N], and the mass between did not visit. A current cluster's process has intensity 1, an earlier one's
η·λ^age. Masses of disjoint intervals are independent and gamma distributed with shape intensity × length, so that
X⁺ ~ Γ(A), X⁻ ~ Γ(B) independently and p ~ Beta(A, B) exactly, A and B as in ``grid``; and two candidates that saw the
same clusters share the same masses. Semantic masses come from other tasks' clusters and are drawn per candidate.

Because Σ F is a sum over candidates, sharing correlates the estimates of F but leaves their expectation unchanged.

Source: TSBPO §4 and appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepcredit.allocation.mixture import Mixture
from stepcredit.core.credit import BoolArray, FloatArray

IntegerArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Particles:
    """``P`` draws that the candidates of one task share; each field is ``[P]``.

    Attributes:
        success, failure: base masses, Γ(a) and Γ(b).
        history_trust, semantic_trust: η and ρ of the drawn component.
    """

    success: FloatArray
    failure: FloatArray
    history_trust: FloatArray
    semantic_trust: FloatArray


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    """Outcomes of ``K`` (candidate, cluster) pairs of one task; each field is ``[K]``.

    Attributes:
        candidate: index of the candidate.
        cluster: any number that tells the clusters apart.
        successes, failures: outcomes of the cluster that the candidate saw.
        weight: λ^age of the cluster; 1 for a current one.
        current: whether the cluster belongs to this round (its intensity is then 1 rather than η·weight).
    """

    candidate: IntegerArray
    cluster: IntegerArray
    successes: IntegerArray
    failures: IntegerArray
    weight: FloatArray
    current: BoolArray


def draw_particles(mixture: Mixture, count: int, rng: np.random.Generator) -> Particles:
    """Draw components by stratified sampling of the mixture's weights, and their base masses."""
    shape = mixture.weight.shape
    cumulative = np.cumsum(mixture.weight)
    level = (np.arange(count) + rng.random(count)) / count * cumulative[-1]
    component = np.unravel_index(np.searchsorted(cumulative[:-1], level, side="right"), shape)

    def drawn(values: FloatArray) -> FloatArray:
        return np.broadcast_to(values, shape)[component]

    grid = mixture.grid
    return Particles(
        success=rng.standard_gamma(drawn(grid.a)),
        failure=rng.standard_gamma(drawn(grid.b)),
        history_trust=drawn(grid.history_trust),
        semantic_trust=drawn(grid.semantic_trust),
    )


def success_probabilities(
    particles: Particles, counts: ClusterCounts, semantic: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """``[C, P]`` p of every candidate under every particle.

    Args:
        counts: what the candidates' own clusters saw; every candidate has at least one current outcome.
        semantic: ``[C, 2]`` semantic masses (mˢ, mᶠ).
    """
    pieces = _split_clusters(counts, len(semantic))
    intensity = np.where(pieces.current[:, None], 1.0, particles.history_trust)
    mass = rng.standard_gamma(pieces.length[:, None] * intensity)
    borrowed = rng.standard_gamma(semantic[:, :, None] * particles.semantic_trust)
    success = particles.success + pieces.in_success @ mass + borrowed[:, 0]
    failure = particles.failure + pieces.in_failure @ mass + borrowed[:, 1]
    return success / (success + failure)


def conversion_curves(opposite: FloatArray, most: int) -> FloatArray:
    """``[C, most + 1]`` F(k) for k = 0 … ``most``, from ``[C, P]`` probabilities q of the opposite outcome."""
    same = 1 - opposite
    curves = np.zeros((len(opposite), most + 1))
    never = np.ones_like(opposite)
    for k in range(1, most + 1):
        never *= same
        curves[:, k] = 1 - never.mean(axis=1)
    return curves


@dataclass(frozen=True, slots=True)
class _Pieces:
    """``J`` independent gamma masses: shape per unit of intensity, and which candidates count them as what."""

    length: FloatArray  # [J]
    current: BoolArray  # [J]
    in_success: FloatArray  # [C, J] 0 or 1
    in_failure: FloatArray  # [C, J]


def _split_clusters(counts: ClusterCounts, candidates: int) -> _Pieces:
    """Cut every cluster's [0, N] where some candidate's part begins or ends; pieces always counted alike are joined."""
    clusters, member = np.unique(counts.cluster, return_inverse=True)
    extent = np.zeros(len(clusters), dtype=np.int64)
    np.maximum.at(extent, member, counts.successes + counts.failures)
    ends = np.concatenate([counts.successes, extent[member] - counts.failures, extent, np.zeros_like(extent)])
    every = np.arange(len(clusters))
    cuts = np.unique(np.stack([np.concatenate([member, member, every, every]), ends]), axis=1)
    inside = cuts[0, 1:] == cuts[0, :-1]
    cluster, low, high = cuts[0, 1:][inside], cuts[1, :-1][inside], cuts[1, 1:][inside]

    weight, current = np.zeros(len(clusters)), np.zeros(len(clusters), dtype=np.bool_)
    weight[member], current[member] = counts.weight, counts.current
    own = member[:, None] == cluster
    marks = np.zeros((2 * candidates + 1, len(cluster)), dtype=np.uint8)  # in success, in failure, current
    entry, piece = np.nonzero(own & (high <= counts.successes[:, None]))
    marks[counts.candidate[entry], piece] = 1
    entry, piece = np.nonzero(own & (low >= (extent[member] - counts.failures)[:, None]))
    marks[candidates + counts.candidate[entry], piece] = 1
    counted = marks.any(axis=0)
    marks[-1] = current[cluster]
    kinds, kind = np.unique(marks[:, counted], axis=1, return_inverse=True)
    lengths = ((high - low) * weight[cluster])[counted]
    return _Pieces(
        length=np.bincount(kind.ravel(), weights=lengths, minlength=kinds.shape[1]).astype(np.float64),
        current=kinds[-1].astype(np.bool_),
        in_success=kinds[:candidates].astype(np.float64),
        in_failure=kinds[candidates:-1].astype(np.float64),
    )
