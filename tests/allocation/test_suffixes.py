"""The exact split of a suffix budget, against every combination; and the random control."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import allocation_suffixes as reference
from stepcredit.allocation.suffixes import best_suffixes, random_suffixes


def random_case(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Curves (some like F(k), some arbitrary), capacities, budget, opening."""
    count, most = int(rng.integers(1, 5)), int(rng.integers(1, 8))
    if rng.random() < 0.5:
        curves = 1 - (1 - rng.random(count)[:, None]) ** np.arange(most + 1)
    else:
        curves = np.sort(rng.integers(0, 6, (count, most + 1)) / 5.0, axis=1)
        curves[:, 0] = 0
    return curves, rng.integers(0, most + 3, count), int(rng.integers(0, 16)), int(rng.integers(1, 5))


def check_feasible(suffixes: np.ndarray, capacity: np.ndarray, budget: int, opening: int) -> None:
    assert suffixes.sum() <= budget
    assert ((suffixes == 0) | ((suffixes >= opening) & (suffixes <= capacity))).all()


def test_dynamic_program_equals_every_combination_on_thousands_of_cases() -> None:
    rng = np.random.default_rng(0)
    beaten = 0
    for _ in range(4000):
        curves, capacity, budget, opening = random_case(rng)
        suffixes = best_suffixes(curves, capacity, budget, opening)
        check_feasible(suffixes, capacity, budget, opening)
        assert (suffixes < curves.shape[1]).all()
        value = curves[np.arange(len(curves)), suffixes].sum()
        case = (curves.tolist(), capacity.tolist(), budget, opening)
        assert value == pytest.approx(reference.best_value(*case), abs=1e-12)
        greedy = reference.greedy_value(*case)
        assert value >= greedy - 1e-12
        beaten += value > greedy + 1e-9
    assert beaten > 100


def test_beats_greedy_by_hand() -> None:
    # Greedy opens A (.25 a suffix), prefers A's fourth (.24) to opening B (.233 a suffix), and then cannot open B.
    curves = np.array([[0, 0, 0, 0.75, 0.99, 1.0, 1.0], [0, 0, 0, 0.7, 0.71, 0.72, 0.73]])
    assert reference.greedy_value(curves.tolist(), [6, 6], 6, 3) == pytest.approx(1.0)
    assert best_suffixes(curves, np.array([6, 6]), 6, 3).tolist() == [3, 3]


def test_opening_capacity_and_budget_are_respected() -> None:
    curves = np.tile(1 - 0.5 ** np.arange(17.0), (3, 1))
    assert best_suffixes(curves, np.array([16, 16, 16]), 3, 4).tolist() == [0, 0, 0]
    assert best_suffixes(curves, np.array([3, 16, 5]), 11, 4).tolist() == [0, 6, 5]
    assert best_suffixes(curves, np.array([4, 4, 4]), 100, 4).tolist() == [4, 4, 4]


def test_among_equal_answers_later_candidates_take_fewer() -> None:
    curves = np.tile(np.minimum(np.arange(9.0), 4) / 4, (3, 1))
    assert best_suffixes(curves, np.full(3, 8), 8, 4).tolist() == [4, 4, 0]


def test_large_instance_spends_the_whole_budget() -> None:
    probability = np.random.default_rng(1).beta(0.4, 2, 400)
    curves = 1 - (1 - probability[:, None]) ** np.arange(17)
    suffixes = best_suffixes(curves, np.full(400, 16), 120, 4)
    check_feasible(suffixes, np.full(400, 16), 120, 4)
    assert suffixes.sum() == 120


@given(
    capacity=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    budget=st.integers(0, 60),
    opening=st.integers(1, 5),
    seed=st.integers(0, 5),
)
def test_random_control_spends_what_can_be_spent(capacity: list[int], budget: int, opening: int, seed: int) -> None:
    most = np.array(capacity)
    suffixes = random_suffixes(most, budget, opening, np.random.default_rng(seed))
    check_feasible(suffixes, most, budget, opening)
    able = np.sort(most[most >= opening])
    opened = min(len(able), budget // opening)
    assert np.count_nonzero(suffixes) == opened
    if suffixes.sum() < budget:
        chosen = suffixes > 0
        assert (suffixes[chosen] == most[chosen]).all()


def test_random_control_opens_every_candidate_equally_often() -> None:
    rng = np.random.default_rng(0)
    opened = sum((random_suffixes(np.full(5, 16), 8, 4, rng) > 0).astype(int) for _ in range(5000))
    np.testing.assert_allclose(opened / 5000, 2 / 5, atol=0.03)
