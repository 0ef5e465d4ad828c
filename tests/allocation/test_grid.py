"""The component grid and the Beta-binomial likelihood of a group."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaln, comb, gammaln

from reference import allocation_mixture as reference
from stepcredit.allocation.grid import Evidence, log_rising, mixture_grid, single_component


def test_grid_has_the_components_of_the_definition_in_order() -> None:
    grid = mixture_grid()
    columns = np.array(reference.components()).T
    assert grid.shape == (25, 31, 5, 5)
    assert columns.shape == (4, 19375)
    for values, expected in zip((grid.a, grid.b, grid.history_trust, grid.semantic_trust), columns, strict=True):
        np.testing.assert_allclose(np.broadcast_to(values, grid.shape).ravel(), expected, rtol=1e-13)
    np.testing.assert_allclose(grid.a + grid.b, np.broadcast_to(grid.total, (25, 31, 1, 1)), rtol=1e-14)


def test_grid_without_semantic_evidence_is_the_slice_at_rho_zero() -> None:
    small, (narrow, index) = (
        mixture_grid(semantic=False),
        mixture_grid().narrowed(history_trust=None, semantic_trust=0.0),
    )
    assert small.shape == narrow.shape == (25, 31, 5, 1)
    assert np.zeros((25, 31, 5, 5))[index].shape == narrow.shape


def test_narrowed_keeps_the_wanted_trusts() -> None:
    grid, index = mixture_grid().narrowed(history_trust=1.0, semantic_trust=0.5)
    assert grid.shape == (25, 31, 1, 1)
    assert grid.history_trust.item() == 1
    assert grid.semantic_trust.item() == 0.5
    assert index[2:] == (slice(4, 5), slice(3, 4))


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 200])
def test_log_rising_equals_log_gamma_difference(count: int) -> None:
    x = np.array([2.5e-5, 0.3, 1.0, 97.5, 3000.0])
    np.testing.assert_allclose(log_rising(x, count), gammaln(x + count) - gammaln(x), rtol=1e-11, atol=1e-11)


def test_log_rising_of_large_values_does_not_overflow() -> None:
    assert np.isfinite(log_rising(np.array([9000.0]), 500)).all()


@pytest.mark.parametrize(
    ("evidence", "shape"),
    [
        (Evidence(), (25, 31, 1, 1)),
        (Evidence(0, 0, 2, 1), (25, 31, 1, 1)),
        (Evidence(0, 1.5, 0, 3), (25, 31, 5, 1)),
        (Evidence(0, 0, 1, 0, 0.4, 0), (25, 31, 1, 5)),
        (Evidence(3.2, 0.7, 0, 2, 0.3, 3.1), (25, 31, 5, 5)),
    ],
)
@pytest.mark.parametrize(("successes", "failures"), [(0, 0), (4, 0), (0, 7), (3, 5), (60, 30)])
def test_log_likelihood_equals_log_beta(
    evidence: Evidence, shape: tuple[int, ...], successes: int, failures: int
) -> None:
    grid = mixture_grid()
    got = grid.log_likelihood(evidence, successes, failures)
    assert np.broadcast_shapes(got.shape, shape) == shape
    columns = tuple(np.array(reference.components()).T)
    a, b = reference.posterior(columns, evidence)
    expected = np.log(comb(successes + failures, successes)) + betaln(a + successes, b + failures) - betaln(a, b)
    np.testing.assert_allclose(np.broadcast_to(got, grid.shape).ravel(), expected, rtol=1e-9, atol=1e-9)


def test_likelihoods_of_all_outcomes_sum_to_one() -> None:
    evidence = Evidence(1.3, 0.2, 0, 2, 0.5, 0.5)
    total = sum(np.exp(mixture_grid().log_likelihood(evidence, s, 7 - s)) for s in range(8))
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def test_single_component_trusts_history_and_not_neighbours() -> None:
    a, b, total = single_component(0.5, 0.5).posterior(Evidence(2, 1, 1, 0, 3, 3))
    assert (a.item(), b.item(), total.item()) == (3.5, 1.5, 5.0)
