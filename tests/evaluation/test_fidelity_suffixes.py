"""Advantages found by playing on, against the chain's closed form."""

from __future__ import annotations

import numpy as np
import pytest

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import OptionError
from stepcredit.credit.catalogue import assign
from stepcredit.environments.chain import ChainSuite, success_probability
from stepcredit.evaluation.fidelity_suffixes import Sounded, measure_sounded, sound, task_gradients
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.linear_gradient import Batch

PLACES, HORIZON = 3, 7


@pytest.fixture(scope="module")
def sounded() -> Sounded:
    """A policy that opens either of two doors alike."""
    suite = ChainSuite(length=PLACES)
    return sound(
        LinearPolicy(2**10), suite, suite.tasks("train")[:6], group_size=6, horizon=HORIZON, suffixes=40, seed=(0,)
    )


def exact_advantage(sounded: Sounded) -> FloatArray:
    """From the place that every observation names, and the turns left."""
    found: list[float] = []
    for rollout in sounded.rollouts:
        here = [int(turn.observation.split()[1]) - 1 for turn in rollout.episode.turns]
        before = [
            success_probability(places=PLACES - place, turns=HORIZON - time, right=0.5)
            for time, place in enumerate(here)
        ]
        found.extend(np.diff([*before, float(rollout.episode.success)]))
    return np.array(found)


def test_both_estimates_are_unbiased_and_independent(sounded: Sounded) -> None:
    exact = exact_advantage(sounded)
    errors = [sounded.truth.advantage - exact, sounded.truth.second - exact]
    # A mean of 20 suffixes before and after a turn errs by √(2·.25/20) ≈ .16 at most.
    for error in errors:
        assert abs(error.mean()) < 0.03
        assert 0.05 < error.std() < 0.17
    assert abs(float(np.mean(errors[0] * errors[1]))) < 0.3 * float(np.mean(errors[0] ** 2))


def test_the_exact_advantage_measures_well_and_silence_measures_nothing(sounded: Sounded) -> None:
    found = measure_sounded(sounded, exact_advantage(sounded))
    assert found["error"].mean == pytest.approx(0.0, abs=0.05)
    assert found["error"].low <= found["error"].mean <= found["error"].high
    assert found["sign"].mean > 0.98
    assert found["cosine"].mean == pytest.approx(1.0, abs=0.03)
    silent = measure_sounded(sounded, np.zeros(len(sounded.turns)))
    assert (silent["error"].mean, silent["sign"].mean, silent["rank"].mean, silent["cosine"].mean) == (1, 0.5, 0, 0)
    episode = measure_sounded(sounded, assign(sounded.turns, "grpo").advantage)
    assert 0.3 < episode["error"].mean < 1
    assert episode["cosine"].mean < found["cosine"].mean


def test_task_gradients_are_the_policy_gradient_by_finite_differences(sounded: Sounded) -> None:
    decisions = [response.record for rollout in sounded.rollouts for response in rollout.responses]
    estimate = np.random.default_rng(0).normal(size=len(decisions))
    batch = Batch.of(decisions)
    gradients = task_gradients(decisions, sounded.turns.task, sounded.weights, estimate)
    used = np.unique(batch.indices)
    assert gradients.shape == (6, len(used))
    for place in range(0, len(used), max(len(used) // 5, 1)):
        moved = []
        for sign in (1, -1):
            weights = sounded.weights.copy()
            weights[used[place]] += sign * 1e-5
            logs = batch.log_probs(weights)[batch.chosen]
            moved.append(np.bincount(sounded.turns.task, weights=estimate * logs))
        np.testing.assert_allclose(gradients[:, place], (moved[0] - moved[1]) / 2e-5, atol=1e-6)


def test_an_odd_number_of_suffixes_is_refused() -> None:
    suite = ChainSuite()
    with pytest.raises(OptionError, match="suffixes is 3; expected an even number"):
        sound(LinearPolicy(2**10), suite, suite.tasks("train")[:1], group_size=2, horizon=4, suffixes=3, seed=(0,))
