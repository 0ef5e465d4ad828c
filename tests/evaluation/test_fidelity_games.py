"""Solved games against enumeration, closed forms, finite differences and their own rollouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepcredit.environments.chain import Mistake, success_probability
from stepcredit.evaluation.fidelity_games import LOST, WON, Games, chain_games, random_games, solve, win_probability
from stepcredit.evaluation.fidelity_rollouts import play_groups

TINY = random_games(3, seed=5, levels=2, width=2, actions=2, horizon=3, slip=0.3, alike=2, success=0.35)


def win_by_enumeration(games: Games, game: int, state: int, time: int) -> float:
    """Sum over every sequence of actions and moves of its probability, where it wins."""
    states = games.move.shape[1]
    if state == states + WON:
        return 1.0
    if state == states + LOST or time == games.horizon:
        return 0.0
    total = 0.0
    for action, chosen in enumerate(games.policy[game, games.sees[game, state]]):
        for after, reached in enumerate(games.move[game, state, action]):
            if reached > 0:
                total += chosen * reached * win_by_enumeration(games, game, after, time + 1)
    return total


def test_values_and_advantages_equal_enumeration() -> None:
    solution = solve(TINY)
    states = TINY.move.shape[1]
    for game in range(len(TINY)):
        for state in range(states - 2):
            for time in range(TINY.horizon):
                value = win_by_enumeration(TINY, game, state, time)
                assert solution.value[game, time, state] == pytest.approx(value, abs=1e-12)
                for action in range(2):
                    q = sum(
                        TINY.move[game, state, action, after] * win_by_enumeration(TINY, game, after, time + 1)
                        for after in range(states)
                    )
                    assert solution.advantage[game, time, state, action] == pytest.approx(q - value, abs=1e-12)


def test_gradient_equals_finite_differences() -> None:
    exact = solve(TINY).gradient
    assert np.abs(exact).max() > 0.01
    for index in np.ndindex(*TINY.logits.shape[1:]):
        shift = np.zeros_like(TINY.logits)
        shift[(slice(None), *index)] = 1e-5
        up, down = (win_probability(replace(TINY, logits=TINY.logits + sign * shift)) for sign in (1, -1))
        np.testing.assert_allclose(exact[(slice(None), *index)], (up - down) / 2e-5, atol=1e-8)


@pytest.mark.parametrize("mistake", ["stay", "fall"])
def test_chain_has_the_closed_form_at_every_place_and_time(mistake: Mistake) -> None:
    solution = solve(chain_games(2, places=4, turns=7, right=0.7, mistake=mistake))
    for place in range(4):
        for time in range(7):
            exact = success_probability(places=4 - place, turns=7 - time, right=0.7, mistake=mistake)
            assert solution.value[1, time, place] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("shape", ["layered", "roaming"])
def test_moves_are_distributions_and_policies_win_as_often_as_asked(shape: str) -> None:
    games = random_games(6, seed=2, shape=shape, levels=4, horizon=8, slip=0.2, success=0.3)  # type: ignore[arg-type]
    np.testing.assert_allclose(games.move[:, :WON].sum(axis=-1), 1.0)
    np.testing.assert_allclose(games.policy.sum(axis=-1), 1.0)
    np.testing.assert_allclose(solve(games).success, 0.3, atol=1e-6)
    np.testing.assert_allclose(win_probability(games), 0.3, atol=1e-6)


def test_states_that_look_alike_share_one_observation() -> None:
    games = random_games(4, seed=0, alike=4)
    counts = np.stack([np.bincount(row[:WON], minlength=8)[:8] for row in games.sees])
    assert (counts == 4).all()
    assert len(np.unique(games.sees[0, WON:])) == 2
    assert not np.isin(games.sees[:, WON:], games.sees[:, :WON]).any()


def test_rollouts_show_the_policy_and_win_as_often_as_solved() -> None:
    games = random_games(4, seed=1, levels=3, horizon=6, slip=0.25, success=0.5)
    solution = solve(games)
    played = play_groups(games, solution, groups=500, group_size=4, seed=0)
    turns = played.turns
    assert len(turns.task_names) == 4 * 500
    assert len(turns.episode_names) == 4 * 500 * 4
    by_game = turns.success.reshape(4, -1).mean(axis=1)
    np.testing.assert_allclose(by_game, 0.5, atol=4 * np.sqrt(0.25 / 2000))
    sees = games.sees[played.game, played.state]
    np.testing.assert_allclose(np.exp(-turns.nll), games.policy[played.game, sees, played.action])
    # Conditioned on time, state and action, the share of episodes won is Q; on average over turns too.
    won = turns.success[turns.episode]
    q = solution.q[played.game, played.time, played.state, played.action]
    assert abs(np.mean(won - q)) < 0.02
    # Bayes: P(a | outcome)·P(outcome) = π(a)·P(outcome | a).
    left = np.exp(played.hindsight) * np.where(won, played.value, 1 - played.value)
    np.testing.assert_allclose(left, np.exp(-turns.nll) * np.where(won, q, 1 - q))


def test_suffixes_leave_occurrences_of_their_root_and_keep_its_deadline() -> None:
    games = random_games(3, seed=3, levels=3, horizon=6)
    played = play_groups(games, solve(games), groups=20, group_size=16, seed=0, forest=True)
    turns = played.turns
    branch = np.flatnonzero(turns.episode_parent >= 0)
    assert len(branch) == 3 * 20 * 8
    assert len(np.unique(turns.branch_row[branch])) == 3 * 20 * 2
    first, left = turns.start[branch], turns.branch_row[branch]
    np.testing.assert_array_equal(played.state[first], played.state[left])
    np.testing.assert_array_equal(turns.state[first], turns.state[left])
    np.testing.assert_array_equal(turns.task[first], turns.task[left])
    assert int(turns.depth.max()) < games.horizon


def test_the_same_seed_plays_the_same() -> None:
    games = random_games(2, seed=0)
    solution = solve(games)
    one, two, other = (play_groups(games, solution, groups=4, group_size=4, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one.advantage, two.advantage)
    assert len(one.advantage) != len(other.advantage) or (one.action != other.action).any()
