"""Particles: p of a candidate is Beta(A, B) given its evidence, candidates share what their clusters share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import beta, kstest

from stepcredit.allocation.grid import Evidence, mixture_grid, single_component
from stepcredit.allocation.mixture import Mixture
from stepcredit.allocation.particles import (
    ClusterCounts,
    Particles,
    conversion_curves,
    draw_particles,
    success_probabilities,
)

DRAWS = 40_000


def one_component(a: float, b: float, eta: float, rho: float, rng: np.random.Generator) -> Particles:
    return Particles(
        success=rng.standard_gamma(a, DRAWS),
        failure=rng.standard_gamma(b, DRAWS),
        history_trust=np.full(DRAWS, eta),
        semantic_trust=np.full(DRAWS, rho),
    )


def counts(*lines: tuple[int, int, int, int, float, bool]) -> ClusterCounts:
    """Lines (candidate, cluster, successes, failures, weight, current)."""
    candidate, cluster, successes, failures, weight, current = zip(*lines, strict=True)
    return ClusterCounts(
        np.array(candidate),
        np.array(cluster),
        np.array(successes),
        np.array(failures),
        np.array(weight, dtype=np.float64),
        np.array(current),
    )


MANY_CLUSTERS = counts(
    # two current clusters, one shared
    (0, -1, 0, 1, 1.0, True),
    (0, -2, 0, 1, 1.0, True),
    (1, -2, 0, 1, 1.0, True),
    (2, -3, 1, 0, 1.0, True),
    # an earlier cluster that all three saw differently, and two that one saw
    (0, 5, 2, 1, 0.9, False),
    (1, 5, 1, 3, 0.9, False),
    (2, 5, 0, 2, 0.9, False),
    (0, 6, 0, 4, 0.729, False),
    (2, 7, 3, 2, 0.5, False),
)
BORROWED = np.array([[0.5, 1.5], [0.0, 0.0], [2.0, 0.25]])


@pytest.mark.parametrize(
    ("a", "b", "eta", "rho"),
    [(0.5, 0.5, 1.0, 0.0), (0.05, 1.95, 0.125, 1.0), (3.0, 1.0, 0.0, 0.5), (2.5e-5, 9e-4, 0.5, 0.125)],
)
def test_probability_given_evidence_is_beta(a: float, b: float, eta: float, rho: float) -> None:
    rng = np.random.default_rng(3)
    drawn = success_probabilities(one_component(a, b, eta, rho, rng), MANY_CLUSTERS, BORROWED, rng)
    # per candidate: successes and failures of current clusters, and of earlier ones with their weights
    current = [(0, 2), (0, 1), (1, 0)]
    past = [(0.9 * 2, 0.9 * 1 + 0.729 * 4), (0.9 * 1, 0.9 * 3), (0.5 * 3, 0.9 * 2 + 0.5 * 2)]
    for candidate in range(3):
        big_a = a + current[candidate][0] + eta * past[candidate][0] + rho * BORROWED[candidate, 0]
        big_b = b + current[candidate][1] + eta * past[candidate][1] + rho * BORROWED[candidate, 1]
        if big_a > 0.01:  # below, p underflows to the point mass that it all but is
            assert kstest(drawn[candidate], beta(big_a, big_b).cdf).pvalue > 0.001
        assert drawn[candidate].mean() == pytest.approx(big_a / (big_a + big_b), abs=0.01)


def test_wrong_shares_would_be_noticed() -> None:
    rng = np.random.default_rng(3)
    drawn = success_probabilities(one_component(0.5, 0.5, 1.0, 0.0, rng), MANY_CLUSTERS, BORROWED, rng)
    assert kstest(drawn[0], beta(0.5 + 0.9 * 2 + 0.1, 0.5 + 2 + 0.9 + 0.729 * 4).cdf).pvalue < 1e-6


def test_candidates_that_saw_the_same_clusters_share_their_probability() -> None:
    same = counts(
        (0, -1, 0, 1, 1.0, True), (1, -1, 0, 1, 1.0, True), (0, 2, 3, 1, 0.5, False), (1, 2, 3, 1, 0.5, False)
    )
    rng = np.random.default_rng(0)
    drawn = success_probabilities(one_component(0.7, 0.3, 1.0, 1.0, rng), same, np.zeros((2, 2)), rng)
    np.testing.assert_array_equal(drawn[0], drawn[1])


def test_dependence_follows_the_shared_masses() -> None:
    shared = counts((0, 1, 0, 3, 1.0, True), (1, 1, 0, 3, 1.0, True), (1, 2, 0, 1, 1.0, True))
    apart = counts((0, 1, 0, 3, 1.0, True), (1, 3, 0, 3, 1.0, True), (1, 2, 0, 1, 1.0, True))
    correlation = []
    for lines in (shared, apart):
        rng = np.random.default_rng(1)
        particles = Particles(
            success=np.ones(DRAWS), failure=np.ones(DRAWS), history_trust=np.ones(DRAWS), semantic_trust=np.ones(DRAWS)
        )
        drawn = success_probabilities(particles, lines, np.zeros((2, 2)), rng)
        correlation.append(np.corrcoef(1 / drawn)[0, 1])  # 1/p − 1 = the failure mass
    # failure masses Γ(3) + shared part: correlation √(3/4) when shared, 0 when not
    assert correlation[0] == pytest.approx(np.sqrt(3 / 4), abs=0.02)
    assert correlation[1] == pytest.approx(0, abs=0.02)


def test_opposite_ends_of_a_cluster_are_disjoint() -> None:
    # One candidate saw only the cluster's two successes, the other only its two failures: independent masses.
    lines = counts((0, 1, 2, 0, 1.0, True), (1, 1, 0, 2, 1.0, True), (2, 1, 2, 2, 1.0, True))
    rng = np.random.default_rng(2)
    ones = np.ones(DRAWS)
    drawn = success_probabilities(Particles(ones, ones, ones, ones), lines, np.zeros((3, 2)), rng)
    success, failure = 1 / (1 - drawn[0]) - 1, 1 / drawn[1] - 1
    assert np.corrcoef(success, failure)[0, 1] == pytest.approx(0, abs=0.02)
    np.testing.assert_allclose(drawn[2], success / (success + failure), rtol=1e-9)


def test_drawn_components_follow_the_weights() -> None:
    grid = mixture_grid()
    weight = np.random.default_rng(0).exponential(size=grid.shape) ** 3
    mixture = Mixture(grid, weight / weight.sum())
    particles = draw_particles(mixture, 8192, np.random.default_rng(1))
    for level, share in zip(grid.history_trust.ravel(), mixture.weight.sum(axis=(0, 1, 3)), strict=True):
        assert (particles.history_trust == level).mean() == pytest.approx(share, abs=0.02)
    for level, share in zip(grid.semantic_trust.ravel(), mixture.weight.sum(axis=(0, 1, 2)), strict=True):
        assert (particles.semantic_trust == level).mean() == pytest.approx(share, abs=0.02)
    expected = float((mixture.weight * grid.a).sum())
    assert particles.success.mean() == pytest.approx(expected, rel=0.1)


def test_no_component_of_weight_zero_is_drawn() -> None:
    grid = mixture_grid()
    weight = np.zeros(grid.shape)
    weight[0, 0, 0, 0] = weight[-1, -1, -1, -1] = 0.5
    particles = draw_particles(Mixture(grid, weight), 512, np.random.default_rng(0))
    assert np.unique(particles.history_trust).tolist() == [0, 1]
    assert (particles.history_trust == 0).sum() == 256
    np.testing.assert_array_equal(particles.history_trust, particles.semantic_trust)


def test_conversion_curves_by_hand() -> None:
    curves = conversion_curves(np.array([[0.5, 0.0], [1.0, 0.25]]), 3)
    np.testing.assert_allclose(curves, [[0, 0.25, 0.375, 0.4375], [0, 0.625, 0.71875, 0.7890625]], rtol=1e-14)


def test_conversion_curve_estimates_the_closed_form() -> None:
    # After failures q = p ~ Beta(A, B): E[(1−q)^k] = B(A, B+k)/B(A, B).
    rng = np.random.default_rng(5)
    mixture = Mixture(single_component(0.5, 0.5), np.ones((1, 1, 1, 1)))
    particles = draw_particles(mixture, DRAWS, rng)
    evidence = Evidence(history_success=1.8, history_failure=0.9, current_failure=3)
    lines = counts(*((0, -1 - n, 0, 1, 1.0, True) for n in range(3)), (0, 4, 2, 1, 0.9, False))
    drawn = success_probabilities(particles, lines, np.zeros((1, 2)), rng)
    big_a, big_b, _ = (float(x.item()) for x in mixture.grid.posterior(evidence))
    k = np.arange(17)
    np.testing.assert_allclose(
        conversion_curves(drawn, 16)[0], 1 - np.exp(betaln(big_a, big_b + k) - betaln(big_a, big_b)), atol=0.006
    )
