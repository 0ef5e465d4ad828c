"""Segment balance: the equation it solves, its limits, and factors by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.tsbpo import balance
from stepcredit.credit.balance import balance_weights, worst_gap


@given(
    masses=st.lists(st.integers(1, 10_000), min_size=1, max_size=8),
    cap=st.sampled_from([1.0, 1.5, 6.0, 1000.0]),
)
def test_weights_keep_the_total_mass_and_stay_within_the_cap(masses: list[int], cap: float) -> None:
    mass = np.array(masses)
    weight = balance_weights(mass, np.zeros(len(mass), dtype=np.int32), cap)
    assert (mass * weight).sum() == pytest.approx(mass.sum(), rel=1e-12)
    assert weight.min() >= 1 / cap
    assert weight.max() <= cap
    # A shorter segment never weighs less per turn than a longer sibling.
    assert (np.diff(weight[np.argsort(mass)]) <= 1e-12).all()
    np.testing.assert_allclose(weight, balance(masses, cap), rtol=1e-12)


def test_without_a_binding_cap_all_segments_weigh_the_same() -> None:
    mass = np.array([1, 4, 7])
    np.testing.assert_allclose(mass * balance_weights(mass, np.zeros(3, dtype=np.int32), 100.0), [4, 4, 4])


def test_a_binding_cap_leaves_the_rest_to_the_others() -> None:
    # Masses 1 and 99 with C = 6: the short one gets 6, the long one what is left, 94/99.
    weight = balance_weights(np.array([1, 99]), np.zeros(2, dtype=np.int32), 6.0)
    np.testing.assert_allclose(weight, [6, 94 / 99])


@pytest.mark.parametrize(("masses", "cap"), [([5], 6.0), ([3, 3, 3], 6.0), ([1, 50], 1.0)])
def test_nothing_to_balance_gives_ones(masses: list[int], cap: float) -> None:
    weight = balance_weights(np.array(masses), np.zeros(len(masses), dtype=np.int32), cap)
    np.testing.assert_allclose(weight, 1, rtol=1e-15)


def test_groups_are_balanced_apart() -> None:
    siblings = np.array([1, 0, 1, 0], dtype=np.int32)
    weight = balance_weights(np.array([2, 5, 8, 5]), siblings, 6.0)
    np.testing.assert_allclose(weight, [2.5, 1, 0.625, 1])


def test_worst_gap() -> None:
    assert worst_gap(np.array([2.0, 8.0, 3.0]), np.array([0, 0, 1], dtype=np.int32)) == 4
    assert worst_gap(np.zeros(0), np.zeros(0, dtype=np.int32)) == 1
