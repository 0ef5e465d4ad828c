"""Behaviour at a state, against closed forms on the chain."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from stepcredit.core.errors import EnvironmentFaultError, InputError, OptionError
from stepcredit.environments.chain import ChainSuite, success_probability
from stepcredit.evaluation.behaviour import action_diversity, behaviour_at, value_covariance
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.types import Rollout

from .players import DoorPolicy


@pytest.mark.parametrize(
    ("actions", "expected"),
    [(["a", "a"], 0.0), (["a", "b"], 1.0), (["a", "a", "b"], 2 / 3), (["a", "a", "b", "b"], 4 / 6), (list("abc"), 1.0)],
)
def test_diversity_by_hand(actions: list[str], expected: float) -> None:
    assert action_diversity(actions) == pytest.approx(expected, abs=1e-15)


def test_diversity_is_unbiased() -> None:
    """Mean over all sequences of 4 draws, weighted by their probability, is 1 − Σ π²."""
    policy = {"a": 0.5, "b": 0.3, "c": 0.2}
    total = 0.0
    for place in np.ndindex(3, 3, 3, 3):
        drawn = [list(policy)[index] for index in place]
        total += float(np.prod([policy[action] for action in drawn])) * action_diversity(drawn)
    assert total == pytest.approx(1 - sum(share**2 for share in policy.values()), abs=1e-12)


def test_covariance_by_hand() -> None:
    first, second = np.array([1.0, 0.0, 0.5]), np.array([0.8, 0.2, 0.5])
    assert value_covariance(first, second) == pytest.approx((0.5 * 0.3 + 0.5 * 0.3) / 2, abs=1e-15)
    assert value_covariance(first, first) == pytest.approx(np.var(first, ddof=1), abs=1e-15)
    assert value_covariance(first, np.full(3, 0.4)) == pytest.approx(0.0, abs=1e-15)


def test_covariance_does_not_count_the_noise_of_continuations() -> None:
    """All actions are worth the same: a single block's variance is p(1−p)/K, the covariance is 0 on average."""
    rng = np.random.default_rng(0)
    blocks = rng.binomial(4, 0.5, size=(4000, 2, 8)) / 4
    covariances = [value_covariance(*pair) for pair in blocks]
    variances = [float(np.var(pair[0], ddof=1)) for pair in blocks]
    assert np.mean(covariances) == pytest.approx(0.0, abs=3 * np.std(covariances) / np.sqrt(4000))
    assert np.mean(variances) == pytest.approx(0.25 / 4, abs=0.003)


def test_nothing_to_pair_is_refused() -> None:
    with pytest.raises(InputError, match="expected at least 2"):
        action_diversity(["a"])
    with pytest.raises(InputError, match="M >= 2"):
        value_covariance(np.array([1.0]), np.array([1.0]))
    with pytest.raises(InputError, match="M >= 2"):
        value_covariance(np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0]))


def root(suite: ChainSuite, policy: DoorPolicy, horizon: int) -> Rollout:
    """An episode that passes the first door rightly."""
    collected = collect(policy, suite, suite.tasks("test")[:1], group_size=20, horizon=horizon, seed=(7,))
    return next(one for one in collected.rollouts if len(one.episode.turns) > 1)


@pytest.mark.parametrize("snapshots", [True, False])
def test_at_a_state_of_the_chain(snapshots: bool) -> None:
    """Before the second of three doors: a right door leaves one door to pass, a wrong one ends the task."""
    p, horizon = 0.7, 3
    suite = ChainSuite(length=3, doors=2, mistake="fall", snapshots=snapshots)
    policy = DoorPolicy(p)
    seen = behaviour_at(
        policy, suite, root(suite, policy, horizon), 1, actions=120, continuations=10, horizon=horizon, seed=(1,)
    )
    value = success_probability(places=1, turns=1, right=p, mistake="fall")
    assert len(seen.actions) == 120
    assert seen.diversity == pytest.approx(2 * p * (1 - p), abs=0.08)
    assert seen.covariance == pytest.approx(p * (1 - p) * value**2, abs=0.04)
    right = np.array([action == max(set(seen.actions), key=seen.actions.count) for action in seen.actions])
    assert seen.values[:, ~right].max() == 0.0
    assert seen.values[:, right].mean() == pytest.approx(value, abs=0.04)


def test_a_state_where_actions_do_not_matter() -> None:
    """A wrong door changes nothing and there is time enough: actions differ, values do not."""
    suite = ChainSuite(length=2, doors=2, mistake="stay")
    policy = DoorPolicy(0.5)
    seen = behaviour_at(policy, suite, root(suite, policy, 40), 0, actions=40, continuations=4, horizon=40, seed=(1,))
    assert seen.diversity > 0.4
    assert seen.covariance == 0.0
    assert (seen.values == 1.0).all()


def test_the_same_seed_gives_the_same_numbers() -> None:
    suite = ChainSuite(length=3, doors=2, mistake="fall")
    policy = DoorPolicy(0.7)
    played = root(suite, policy, 3)
    once, again, other = (
        behaviour_at(policy, suite, played, 0, actions=20, continuations=3, horizon=3, seed=(seed,))
        for seed in (1, 1, 2)
    )
    assert once.actions == again.actions
    assert (once.values == again.values).all()
    assert once.actions != other.actions or (once.values != other.values).any()


def test_what_cannot_be_measured_is_refused() -> None:
    suite = ChainSuite(length=3, doors=2, mistake="fall")
    policy = DoorPolicy(0.7)
    played = root(suite, policy, 3)
    with pytest.raises(OptionError, match="at least 2 and at least 1"):
        behaviour_at(policy, suite, played, 0, actions=1, horizon=3, seed=(1,))
    # Three doors are other lamps: the replay differs from what was recorded.
    with pytest.raises(EnvironmentFaultError, match="a replay differed"):
        behaviour_at(policy, ChainSuite(length=4, doors=3), played, 1, horizon=3, seed=(1,))


def test_the_snippet_of_the_page_gives_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(snippet, "docs/evaluation.md", "exec"), {})
    diversity, covariance = map(float, re.findall(r"[\d.]+(?=,|$)", capsys.readouterr().out.strip()))
    assert diversity == pytest.approx(0.5, abs=0.1)
    assert covariance == pytest.approx(0.0625, abs=0.04)
