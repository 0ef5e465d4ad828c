"""U(n), the pool, the draw and the quotas of Root allocation."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import allocation_mixture as reference
from stepcredit.allocation.contrast import (
    affordable,
    contrast_gains,
    contrast_probability,
    draw_pool,
    draw_without_replacement,
    fitted_quotas,
    selection_weights,
    uniform_quotas,
)
from stepcredit.allocation.grid import Evidence, mixture_grid, single_component
from stepcredit.allocation.mixture import Mixture

JEFFREYS = Mixture(single_component(0.5, 0.5), np.ones((1, 1, 1, 1)))


def random_mixture(seed: int) -> Mixture:
    grid = mixture_grid()
    weight = np.random.default_rng(seed).exponential(size=grid.shape) ** 4
    return Mixture(grid, weight / weight.sum())


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, 20, 62])
@pytest.mark.parametrize(
    "evidence", [Evidence(), Evidence(3.3, 0.4), Evidence(semantic_failure=2.0), Evidence(0.5, 6.0, 1, 2, 0.3, 1.7)]
)
def test_probability_equals_log_beta_reference(evidence: Evidence, n: int) -> None:
    mixture = random_mixture(n)
    a, b = reference.posterior(tuple(np.array(reference.components()).T), evidence)
    expected = float((mixture.weight.ravel() * reference.mixed(a, b, n)).sum()) if n else 0.0
    assert contrast_probability(mixture, evidence, n) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1.0, 1.0), (2.5, 0.75), (40.0, 3.0)])
@pytest.mark.parametrize("n", [2, 3, 6, 20])
def test_probability_equals_quadrature(a: float, b: float, n: int) -> None:
    mixture = Mixture(single_component(a, b), np.ones((1, 1, 1, 1)))
    assert contrast_probability(mixture, Evidence(), n) == pytest.approx(
        reference.mixed_by_quadrature(a, b, n), abs=1e-9
    )


def test_jeffreys_values_by_hand() -> None:
    # E[2p(1−p)] = 2·(½·½)/(1·2) = 1/4; E[3p(1−p)] = 3/8
    assert contrast_probability(JEFFREYS, Evidence(), 2) == pytest.approx(0.25, abs=1e-15)
    assert contrast_probability(JEFFREYS, Evidence(), 3) == pytest.approx(0.375, abs=1e-15)


@pytest.mark.parametrize("evidence", [Evidence(), Evidence(0, 50.0), Evidence(50.0, 0), Evidence(4.0, 4.0)])
def test_marginal_gains_are_positive_and_diminish(evidence: Evidence) -> None:
    gains = list(islice(contrast_gains(random_mixture(7), evidence), 90))
    assert min(gains) > 0
    assert all(later < earlier for earlier, later in pairwise(gains))
    assert sum(gains) < 1


@given(revisited=st.lists(st.booleans(), max_size=60), size=st.integers(1, 40), seed=st.integers(0, 9))
def test_pool_is_full_and_at_most_half_revisited_while_fresh_tasks_last(
    revisited: list[bool], size: int, seed: int
) -> None:
    known = np.array(revisited, dtype=np.bool_)
    pool = draw_pool(known, size, np.random.default_rng(seed))
    assert len(set(pool.tolist())) == len(pool) == min(size, len(revisited))
    assert pool.tolist() == sorted(pool.tolist())
    fresh, from_known = int((~known).sum()), int(known[pool].sum())
    if len(pool) - fresh <= size // 2:
        assert from_known <= size // 2
    else:
        assert from_known == len(pool) - fresh


def test_pool_takes_the_whole_half_when_it_can() -> None:
    known = np.arange(300) < 100
    assert known[draw_pool(known, 120, np.random.default_rng(0))].sum() == 60


def test_selection_weights_by_hand() -> None:
    weight = selection_weights(np.array([0.0, 0.25 * np.log(3)]), exploration=0.3, temperature=0.25)
    np.testing.assert_allclose(weight, [0.15 + 0.7 * 0.25, 0.15 + 0.7 * 0.75], rtol=1e-14)


def test_draw_without_replacement_draws_one_after_the_other() -> None:
    weight = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(0)
    draws = 40_000
    seen = Counter(tuple(draw_without_replacement(weight, 2, rng).tolist()) for _ in range(draws))
    for first, second in ((i, j) for i, j in product(range(3), repeat=2) if i != j):
        expected = weight[first] * weight[second] / (1 - weight[first])
        assert seen[first, second] / draws == pytest.approx(expected, abs=0.01)


@given(
    probabilities=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4),
    extra=st.integers(0, 6),
)
def test_quotas_are_the_best_split(probabilities: list[float], extra: int) -> None:
    mixtures = [Mixture(single_component(9 * p, 9 * (1 - p)), np.ones((1, 1, 1, 1))) for p in probabilities]
    budget = 2 * len(mixtures) + extra
    quotas = fitted_quotas([contrast_gains(mixture, Evidence()) for mixture in mixtures], budget)
    assert sum(quotas) == budget
    assert min(quotas) >= 2

    def value(split: tuple[int, ...] | list[int]) -> float:
        return sum(contrast_probability(mixture, Evidence(), n) for mixture, n in zip(mixtures, split, strict=True))

    splits = (split for split in product(range(2, extra + 3), repeat=len(mixtures)) if sum(split) == budget)
    assert value(quotas) == pytest.approx(max(map(value, splits)), abs=1e-12)


def test_equal_tasks_share_equally_and_ties_go_to_the_earlier() -> None:
    assert fitted_quotas([contrast_gains(JEFFREYS, Evidence()) for _ in range(4)], 14) == [4, 4, 3, 3]


def test_open_tasks_get_the_rollouts_of_settled_ones() -> None:
    evidence = (Evidence(0, 40.0), Evidence(3.0, 3.0))
    assert fitted_quotas([contrast_gains(JEFFREYS, e) for e in evidence], 8) == [2, 6]


def test_uniform_quotas() -> None:
    assert uniform_quotas(4, 14) == [4, 4, 3, 3]
    assert affordable(15, 90) == 15
    assert affordable(15, 9) == 4
    assert affordable(15, 1) == 0
