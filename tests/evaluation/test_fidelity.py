"""Measures of fidelity by hand, the identities between them, and the statements that they must reproduce."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepcredit.core.credit import FloatArray
from stepcredit.credit.catalogue import assign
from stepcredit.credit.tree import Segments
from stepcredit.evaluation.fidelity import (
    MixtureRisk,
    Truth,
    best_scale,
    bias_and_variance,
    cosines,
    group_gradients,
    measure,
    rank_correlation,
    relative_error,
    sign_agreement,
    slopes,
)
from stepcredit.evaluation.fidelity_games import chain_games, random_games, solve
from stepcredit.evaluation.fidelity_rollouts import Played, play_groups


def truth(advantage: list[float], group: list[int] | None = None, second: list[float] | None = None) -> Truth:
    """One block."""
    rows = np.array(advantage)
    zeros = np.zeros(len(rows), dtype=np.int64)
    groups = zeros if group is None else np.array(group)
    return Truth(rows, rows if second is None else np.array(second), groups, zeros)


def test_scale_and_error_by_hand() -> None:
    exact = truth([1.0, -1.0, 2.0])
    estimate = np.array([2.0, 0.0, 2.0])
    # c = (2 + 4)/8, error = ((1.5 − 1)² + 1 + (1.5 − 2)²)/6
    assert best_scale(estimate, exact)[0] == pytest.approx(0.75)
    assert relative_error(0.75 * estimate, exact)[0] == pytest.approx(1.5 / 6)
    assert best_scale(-estimate, exact)[0] == 0.0
    assert best_scale(np.zeros(3), exact)[0] == 0.0
    assert relative_error(np.zeros(3), exact)[0] == 1.0


def test_two_noisy_truths_measure_the_error_of_credit_alone() -> None:
    rng = np.random.default_rng(0)
    advantage = rng.normal(size=40_000)
    halves = [advantage + rng.normal(size=40_000) for _ in range(2)]
    zeros = np.zeros(40_000, dtype=np.int64)
    noisy = Truth(halves[0], halves[1], zeros, zeros)
    assert relative_error(advantage, noisy)[0] == pytest.approx(0.0, abs=0.03)
    assert best_scale(advantage, noisy)[0] == pytest.approx(1.0, abs=0.03)
    assert relative_error(np.zeros(40_000), noisy)[0] == 1.0


def test_sign_counts_noticeable_turns_and_half_for_silence() -> None:
    exact = truth([0.5, -0.5, 0.005, 0.3, -0.2])
    assert sign_agreement(np.array([1.0, 1.0, -1.0, 0.0, -3.0]), exact)[0] == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert math.isnan(sign_agreement(np.ones(1), truth([0.001]))[0])
    assert sign_agreement(np.ones(2), truth([0.5, 0.5], second=[0.5, -0.5]))[0] == 1.0


def test_rank_correlation_by_hand_with_ties() -> None:
    exact = truth([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], group=[0, 0, 0, 1, 1, 1])
    # Group 0: ranks 1 2.5 2.5 against 1 2 3: (1·1.5 + 0 + 1·.5)/√(1.5·2) = 1.5/√3; group 1 is silent.
    estimate = np.array([-1.0, 7.0, 7.0, 2.0, 2.0, 2.0])
    assert rank_correlation(estimate, exact)[0] == pytest.approx(1.5 / math.sqrt(3) / 2)
    assert rank_correlation(-exact.advantage, exact)[0] == pytest.approx(-1.0)


def test_bias_and_variance_by_hand() -> None:
    # Two cells, A = 1 and −1, each met once in two groups: m is 2 and −2, and m² by products across groups 3.
    exact = truth([1.0, 1.0, -1.0, -1.0], group=[0, 1, 0, 1])
    estimate = np.array([1.0, 3.0, -1.0, -3.0])
    bias, variance = bias_and_variance(estimate, exact, np.array([0, 0, 1, 1]))
    # c' = mean m·A / mean m² = 2/3; bias = 1 − 2·c'·2 + c'²·3 = −1/3; noise v = 5 − 3 = 2, variance = 4/9·2.
    assert bias[0] == pytest.approx(-1 / 3)
    assert variance[0] == pytest.approx(8 / 9)


def test_cells_of_one_group_alone_are_left_out() -> None:
    exact = truth([1.0, 1.0, 5.0], group=[0, 1, 1])
    bias, variance = bias_and_variance(np.array([2.0, 2.0, -9.0]), exact, np.array([0, 0, 1]))
    assert bias[0] == pytest.approx(0.0)
    assert variance[0] == pytest.approx(0.0)


def test_cosine_of_nothing_is_zero() -> None:
    np.testing.assert_allclose(
        cosines(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[3.0, 0.0], [1.0, 0.0]])), [0.6, 0]
    )


def test_group_gradient_equals_the_sum_of_score_functions() -> None:
    games = random_games(2, seed=0, levels=2, width=2, horizon=4, alike=2)
    played = play_groups(games, solve(games), groups=3, group_size=2, seed=0)
    estimate = np.random.default_rng(0).normal(size=len(played.turns))
    expected = np.zeros((6, *games.logits.shape[1:]))
    for row, value in enumerate(estimate):
        game, action = played.game[row], played.action[row]
        sees = games.sees[game, played.state[row]]
        expected[played.turns.task[row], sees] += value * (np.eye(3)[action] - games.policy[game, sees])
    np.testing.assert_allclose(group_gradients(estimate, played, games), expected.reshape(6, -1), atol=1e-12)


def test_the_exact_advantage_has_full_fidelity_and_its_gradient_is_the_exact_one_on_average() -> None:
    games = random_games(4, seed=0)
    solution = solve(games)
    played = play_groups(games, solution, groups=250, group_size=8, seed=0)
    found = measure(3.0 * played.advantage, played, games, solution)
    np.testing.assert_allclose(found.scale, 1 / 3)
    for name, value in {"error": 0, "bias": 0, "variance": 0, "sign": 1, "rank": 1}.items():
        np.testing.assert_allclose(getattr(found, name), value, atol=1e-9)
    assert (found.direction > 0.995).all()
    assert (found.cosine < found.direction).all()


def test_error_is_made_of_bias_and_variance() -> None:
    games = chain_games(3, places=2, turns=3, right=0.6)  # so small that every cell is met in several groups
    solution = solve(games)
    played = play_groups(games, solution, groups=200, group_size=8, seed=0)
    for method in ("grpo", "gigpo", "graft", "rtmc"):
        found = measure(assign(played.turns, method).advantage, played, games, solution)
        rest = 1 - found.bias
        np.testing.assert_allclose(found.error, 1 - rest**2 / (rest + found.variance), atol=1e-9)


def raw(played: Played, method: str, **options: object) -> FloatArray:
    """Credit in probability to win."""
    if method == "graft":
        return assign(played.turns, "graft", normalize="none", gamma=1.0).advantage
    return assign(played.turns, "gaca", alpha=0.0, normalize="mean", gamma=1.0, **options).advantage


@pytest.mark.parametrize("group_size", [4, 16])
def test_graft_proposition_1_graph_beats_states_beats_episodes_in_deterministic_games(group_size: int) -> None:
    games = random_games(8, seed=0, shape="layered", horizon=8)
    played = play_groups(games, solve(games), groups=256 // group_size, group_size=group_size, seed=0)
    exact = Truth.of(played)
    graph = relative_error(raw(played, "graft"), exact)
    states = relative_error(raw(played, "gaca", lambda0=1.0), exact)
    episodes = relative_error(raw(played, "gaca", lambda0=0.0), exact)
    assert (graph < 0.5 * np.minimum(states, episodes)).all()
    assert states.mean() < episodes.mean()


def test_graft_proposition_1_fails_where_a_deadline_counts() -> None:
    games = chain_games(4, places=5, turns=12, right=0.5)
    played = play_groups(games, solve(games), groups=16, group_size=16, seed=0)
    assert (relative_error(raw(played, "graft"), Truth.of(played)) > 1).all()


def test_gaca_minimiser_is_where_the_conditional_risk_is_least() -> None:
    rng = np.random.default_rng(0)
    exact = rng.normal(size=500)
    for spread in ((0.5, 2.0), (2.0, 0.5), (1.0, 1.0)):
        episode, step = (exact + scale * rng.normal(size=500) for scale in spread)
        risk = MixtureRisk.of(episode, step, exact)
        grid = [np.mean(((1 - weight) * episode + weight * step - exact) ** 2) for weight in np.linspace(0, 1, 101)]
        assert risk.at(0.3) == pytest.approx(grid[30])
        assert risk.minimiser == pytest.approx(np.argmin(grid) / 100, abs=0.005)
        assert risk.at(risk.minimiser) <= min(grid) + 1e-12


def test_gaca_minimiser_stays_in_the_unit_interval() -> None:
    assert MixtureRisk(episode=1.0, step=4.0, cross=2.0).minimiser == 0.0
    assert MixtureRisk(episode=4.0, step=1.0, cross=2.0).minimiser == 1.0
    assert MixtureRisk(episode=1.0, step=1.0, cross=1.0).minimiser == 0.0


def test_slopes_find_what_credit_is_made_of() -> None:
    games = random_games(2, seed=0)
    played = play_groups(games, solve(games), groups=4, group_size=4, seed=0)
    estimate = 0.7 * played.advantage + 0.2 * played.value + 5
    on_advantage, on_value = slopes(estimate, played, played.time > 0, np.array([[1.0, 1.0], [2.0, 0.0]]))
    np.testing.assert_allclose(on_advantage, 0.7)
    np.testing.assert_allclose(on_value, 0.2)


def test_tsbpo_siblings_of_one_occurrence_take_nothing_from_where_they_stand() -> None:
    games = random_games(8, seed=0, alike=4)
    played = play_groups(games, solve(games), groups=200, group_size=8, seed=0, forest=True)
    segments = Segments.from_turns(played.turns)
    first = np.zeros(len(played.turns), dtype=np.bool_)
    first[segments.head[~segments.above_splits]] = True
    everything = np.ones((1, len(games)))
    by_tree = slopes(assign(played.turns, "tsbpo", step_coef=0.0).advantage, played, first, everything)
    by_state = slopes(raw(played, "gaca", lambda0=1.0), played, first, everything)
    # Among five siblings one's own return counts in the mean: E[credit] = (1 − 1/5)·A, and nothing else.
    assert by_tree[0][0] == pytest.approx(0.8, abs=0.06)
    assert by_tree[1][0] == pytest.approx(0.0, abs=0.03)
    assert by_state[1][0] > 0.2
