"""The linear policy: probabilities and gradients against slow references, learning, and exact continuation."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import CheckpointError, InputError, NumericsError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.linear_gradient import (
    Batch,
    Decision,
    likelihood_step,
    policy_step,
    reference_penalty,
    surrogate,
)
from stepcredit.policy.settings import ImitateSettings, Objective, Replay, UpdateSettings
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.types import Request, Response, Rollout

ROOT = Path(__file__).resolve().parents[2]
SIZE = 64


def decisions(count: int = 5, *, seed: int = 0, temperature: float = 1.0) -> list[Decision]:
    """Random choices among one to four commands with one to six features each, some of them repeated."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        lengths = rng.integers(1, 7, size=rng.integers(1, 5)).astype(np.int32)
        indices = rng.integers(0, SIZE, size=lengths.sum()).astype(np.int32)
        made.append(Decision(indices, lengths, int(rng.integers(len(lengths))), temperature))
    return made


def slow_log_probs(decision: Decision, weights: np.ndarray) -> list[float]:
    """log π of every command, one feature at a time."""
    scores, start = [], 0
    for length in decision.lengths:
        scores.append(math.fsum(weights[i] for i in decision.indices[start : start + length]) / decision.temperature)
        start += length
    top = max(scores)
    normaliser = top + math.log(math.fsum(math.exp(score - top) for score in scores))
    return [score - normaliser for score in scores]


def random_weights(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SIZE)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.0])
def test_log_probs_equal_the_slow_reference(temperature: float):
    made, weights = decisions(20, temperature=temperature), random_weights()
    expected = np.concatenate([slow_log_probs(decision, weights) for decision in made])
    np.testing.assert_allclose(Batch.of(made).log_probs(weights), expected, atol=1e-12)


def numeric_gradient(loss: Any, weights: np.ndarray, step: float = 1e-6) -> np.ndarray:
    gradient = np.zeros_like(weights)
    for index in range(len(weights)):
        shifted = weights.copy()
        shifted[index] += step
        above = loss(shifted)
        shifted[index] -= 2 * step
        gradient[index] = (above - loss(shifted)) / (2 * step)
    return gradient


OBJECTIVES = [
    Objective(),
    Objective(dual_clip=None),
    Objective(entropy_coef=0.3),
    Objective(surrogate="turn-clip", clip_low=0.05, clip_high=0.1, dual_clip=None),
    Objective(aggregation="seq-mean-token-sum-norm", norm_length=7, entropy_coef=0.1),
    *(Objective(penalty=form, penalty_coef=0.2, tangent_bound=0.5) for form in ("k1", "abs", "k2", "k3", "tangent")),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_the_policy_gradient_equals_finite_differences(objective: Objective, temperature: float):
    made, weights, reference = decisions(12, temperature=temperature), random_weights(1), random_weights(2)
    batch = Batch.of(made)
    rng = np.random.default_rng(3)
    old = batch.log_probs(weights)[batch.chosen] + rng.normal(scale=0.6, size=12)
    advantage = rng.normal(size=12)

    def step(at: np.ndarray) -> Any:
        return policy_step(batch, at, old=old, advantage=advantage, objective=objective, reference=reference)

    found = step(weights)
    np.testing.assert_allclose(found.gradient, numeric_gradient(lambda at: step(at).loss, weights), atol=1e-7)
    assert 0 < found.clip_share < 1
    assert np.abs(found.gradient).max() > 1e-3


def test_the_likelihood_gradient_equals_finite_differences():
    batch, weights = Batch.of(decisions(12)), random_weights()
    weight = np.random.default_rng(4).uniform(0.1, 2.0, size=12)
    _, gradient = likelihood_step(batch, weights, weight)
    numeric = numeric_gradient(lambda at: likelihood_step(batch, at, weight)[0], weights)
    np.testing.assert_allclose(gradient, numeric, atol=1e-8)


def test_on_policy_the_gradient_is_the_policy_gradient():
    """(1/D) Σ A ∇log π, each ∇log π(a) = (φ(a) − Σ_b π(b) φ(b))/T, one decision at a time."""
    made, weights = decisions(8, temperature=0.5), random_weights()
    batch = Batch.of(made)
    advantage = np.random.default_rng(5).normal(size=8)
    old = batch.log_probs(weights)[batch.chosen]
    found = policy_step(batch, weights, old=old, advantage=advantage, objective=Objective(dual_clip=None))
    expected = np.zeros(SIZE)
    for decision, value in zip(made, advantage, strict=True):
        features = np.zeros((len(decision.lengths), SIZE))
        rows = np.repeat(np.arange(len(decision.lengths)), decision.lengths)
        np.add.at(features, (rows, decision.indices), 1.0)
        probs = np.exp(slow_log_probs(decision, weights))
        expected -= value * (features[decision.chosen] - probs @ features) / 0.5 / 8
    np.testing.assert_allclose(found.gradient, expected, atol=1e-12)
    assert found.ratio_deviation < 1e-12
    assert found.loss == pytest.approx(-advantage.mean())


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "slope"),
    [
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 2.0, 2.4, 0.0),
        (0.5, 2.0, 1.0, 1.0),
        (0.5, -1.0, -0.8, 0.0),
        (1.5, -1.0, -1.5, -1.5),
        (4.0, -1.0, -3.0, 0.0),
        (4.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_clipped_surrogate(ratio: float, advantage: float, gain: float, slope: float):
    found = surrogate(np.array([ratio]), np.array([advantage]), Objective())
    assert (found[0][0], found[1][0]) == pytest.approx((gain, slope))


@pytest.mark.parametrize("form", ["k1", "abs", "k2", "k3", "tangent"])
def test_values_equal_those_of_the_neural_policy(form: Any):
    torch = pytest.importorskip("torch")
    from stepcredit.policy import losses

    delta = np.array([-25.0, -3.0, -0.2, 0.0, 0.3, 2.0, 2.6, 9.0, 30.0])
    found, _ = reference_penalty(delta, Objective(penalty=form))
    zero = torch.zeros(len(delta), dtype=torch.float64)
    expected = losses.reference_penalty(zero, torch.from_numpy(delta), form)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)

    rng = np.random.default_rng(6)
    ratio, advantage = rng.uniform(0.2, 5.0, size=200), rng.normal(size=200)
    gain, _, clipped = surrogate(ratio, advantage, Objective(clip_high=0.3))
    expected, at_bound = losses.clipped_surrogate(
        torch.from_numpy(ratio), torch.from_numpy(advantage), low=0.2, high=0.3, dual=3.0
    )
    np.testing.assert_allclose(gain, expected.numpy(), rtol=1e-12)
    assert clipped.tolist() == at_bound.tolist()


# Sessions.


def request(key: int = 0, *, observation: str = "A red lamp burns.") -> Request:
    return Request(key, "Get outside.", (), observation, ("open blue door", "open green door", "open red door"), 9)


def trained_policy() -> LinearPolicy:
    policy = LinearPolicy(2**12)
    policy.weights = np.random.default_rng(8).normal(scale=0.7, size=2**12)
    return policy


def test_draws_follow_the_probabilities():
    for temperature in (0.5, 1.0):
        answers = trained_policy().session([1], temperature=temperature).respond([request(key) for key in range(3000)])
        probability = {answer.text: math.exp(answer.logprobs[0]) for answer in answers}
        assert math.fsum(probability.values()) == pytest.approx(1.0)
        for command, expected in probability.items():
            share = sum(answer.text == command for answer in answers) / 3000
            assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 3000))
        entropy = -math.fsum(p * math.log(p) for p in probability.values())
        assert answers[0].entropy == pytest.approx(entropy)


def test_temperature_zero_is_greedy():
    policy = trained_policy()
    sampled = policy.session([1]).respond([request(key) for key in range(200)])
    best = max(sampled, key=lambda answer: answer.logprobs[0]).text
    greedy = policy.session([2], temperature=0.0).respond([request(key) for key in range(20)])
    assert {answer.text for answer in greedy} == {best}
    assert {(answer.logprobs, answer.entropy) for answer in greedy} == {((0.0,), 0.0)}


def test_an_episode_does_not_depend_on_who_else_plays():
    policy = trained_policy()
    requests = [request(key, observation=f"A {colour} lamp burns.") for key, colour in enumerate(["red", "blue"] * 3)]
    together = policy.session([3]).respond(requests)
    alone = [policy.session([3]).respond([one])[0] for one in requests]
    assert [(answer.text, answer.logprobs) for answer in together] == [
        (answer.text, answer.logprobs) for answer in alone
    ]


def test_without_listed_commands_there_is_a_failure():
    free = Request(5, "g", (), "o", (), 9)
    answers = trained_policy().session([0]).respond([free, request(1), free])
    assert [bool(answer.failure) for answer in answers] == [True, False, True]
    assert trained_policy().session([0]).respond([free])[0].failure


def fingerprint() -> str:
    """Texts, log-probabilities and feature indices of a played batch."""
    suite = ChainSuite(length=3, doors=3)
    policy = trained_policy()
    rollouts = collect(policy, suite, suite.tasks("train")[:4], group_size=2, horizon=6, seed=[4]).rollouts
    return repr([
        (response.text, response.logprobs, response.record.indices.tolist())
        for rollout in rollouts
        for response in rollout.responses
    ])  # fmt: skip


def test_the_same_seed_gives_the_same_features_and_draws_in_every_process():
    code = "from tests.policy.test_linear import fingerprint; print(fingerprint())"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, cwd=ROOT, capture_output=True, text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert texts == {fingerprint() + "\n"}


def test_a_branch_sees_what_its_path_saw():
    """The first decision of a branch has the same features as the parent's decision it replaces."""
    suite = ChainSuite(length=4, doors=3)
    policy = trained_policy()
    [root] = collect(policy, suite, suite.tasks("train")[:1], group_size=1, horizon=9, seed=[1]).rollouts
    turn = len(root.responses) - 1
    [suffix] = branch(policy, suite, [Opening(root, turn, 1)], horizon=9, seed=[2]).rollouts
    np.testing.assert_array_equal(suffix.responses[0].record.indices, root.responses[turn].record.indices)


# Learning.

CHAIN = ChainSuite(length=3, doors=3)


def play(policy: LinearPolicy, seed: Sequence[int], *, temperature: float = 1.0) -> tuple[Rollout, ...]:
    tasks = CHAIN.tasks("train")[:8]
    return collect(policy, CHAIN, tasks, group_size=4, horizon=4, seed=seed, temperature=temperature).rollouts


def centred(rollouts: Sequence[Rollout]) -> np.ndarray:
    """Success minus its mean over the group of four, per turn."""
    success = np.array([rollout.episode.success for rollout in rollouts], dtype=float).reshape(-1, 4)
    by_episode = (success - success.mean(axis=1, keepdims=True)).ravel()
    return np.repeat(by_episode, [len(rollout.responses) for rollout in rollouts])


SETTINGS = UpdateSettings(objective=Objective(entropy_coef=0.002), lr=0.1, epochs=2, minibatch=16)


@pytest.mark.parametrize("seed", range(3))
def test_it_learns_the_chain(seed: int):
    policy = LinearPolicy(2**12)
    before = np.mean([rollout.episode.success for rollout in play(policy, [seed, 0])])
    for update in range(20):
        rollouts = play(policy, [seed, update])
        metrics = policy.update(rollouts, centred(rollouts), SETTINGS, [seed, update])
        assert metrics["ratio_deviation"] < 1e-12
    after = np.mean([rollout.episode.success for rollout in play(policy, [seed, 99])])
    assert before < 0.4
    assert after > 0.9


def test_it_learns_to_put_things_away():
    """Sixteen updates of 64 games from nothing; on games it never saw."""
    suite = make_suite("household", families=("pick",), train=256, valid_unseen=60)
    policy = LinearPolicy(2**16)

    def success(seed: int) -> float:
        tasks = suite.tasks("valid_unseen")
        played = collect(policy, suite, tasks, group_size=1, horizon=30, seed=[seed], temperature=0.4).rollouts
        return float(np.mean([rollout.episode.success for rollout in played]))

    before = success(0)
    for update in range(16):
        tasks = suite.tasks("train")[16 * update : 16 * (update + 1)]
        rollouts = collect(policy, suite, tasks, group_size=4, horizon=30, seed=[0, update]).rollouts
        credit = assign(Turns.from_episodes(rollout.episode for rollout in rollouts), "gigpo")
        policy.update(rollouts, credit.advantage, UpdateSettings(lr=0.05), [0, update])
    assert before < 0.2
    assert success(1) > 0.75


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_ratios_are_one_before_the_first_step(temperature: float):
    policy = trained_policy()
    rollouts = play(policy, [1], temperature=temperature)
    metrics = policy.update(rollouts, centred(rollouts), replace(SETTINGS, epochs=1, minibatch=99), [1])
    assert metrics["ratio_deviation"] < 1e-12
    assert metrics["clip_share"] == 0.0
    assert metrics["turns"] == sum(len(rollout.responses) for rollout in rollouts)


def test_a_turn_that_is_not_scored_changes_nothing():
    policy, other = trained_policy(), trained_policy()
    rollouts = play(policy, [1])
    advantage = centred(rollouts)
    whole = replace(SETTINGS, minibatch=99, objective=Objective())
    kept = len(rollouts[0].responses)
    policy.update(rollouts[:1], advantage[:kept], whole, [1])
    advantage[kept:] = np.nan
    metrics = other.update(rollouts, advantage, whole, [1])
    np.testing.assert_allclose(other.weights, policy.weights, atol=1e-14)
    assert metrics["turns"] == kept


def test_nothing_scored_is_no_step():
    policy = trained_policy()
    weights = policy.weights.copy()
    rollouts = play(policy, [1])
    metrics = policy.update(rollouts, np.full(len(centred(rollouts)), np.nan), SETTINGS, [1])
    np.testing.assert_array_equal(policy.weights, weights)
    assert (metrics["turns"], metrics["skipped_steps"]) == (0, 0)
    assert policy.update([], np.zeros(0), SETTINGS, [1])["turns"] == 0


def demonstrations(count: int = 8) -> tuple[list[Rollout], np.ndarray]:
    """The expert's way, each turn preceded by a masked wrong door."""
    rollouts, weight = [], []
    for task in CHAIN.tasks("train")[:count]:
        environment = CHAIN.make(task)
        observation, info = environment.reset()
        turns = []
        while (right := environment.right_command) is not None:
            wrong = next(command for command in info["admissible"] if command != right)
            extra = {"admissible": info["admissible"]}
            turns += [Turn(observation, wrong, extra=extra), Turn(observation, right, extra=extra)]
            weight += [0.0, 1.0]
            observation, *_ = environment.step(right)
        responses = tuple(Response(turn.action, (), 0.0) for turn in turns)
        episode = Episode(task.id, f"{task.id}#d", tuple(turns), observation, success=True)
        rollouts.append(Rollout(episode, task.goal, responses))
    return rollouts, np.array(weight)


def test_it_imitates():
    policy = LinearPolicy(2**12)
    rollouts, weight = demonstrations()
    losses = [
        policy.imitate(rollouts, weight, ImitateSettings(lr=0.05, minibatch=4), [0, epoch])["imitation_loss"]
        for epoch in range(20)
    ]
    assert losses[0] == pytest.approx(math.log(3), rel=0.1)
    assert losses[-1] < 0.05
    assert np.mean([rollout.episode.success for rollout in play(policy, [0])]) > 0.9


def test_replayed_demonstrations_enter_the_update():
    policy = LinearPolicy(2**12)
    rollouts, weight = demonstrations()
    settings = replace(SETTINGS, imitation_coef=1.0, lr=0.05)
    played = play(policy, [0])
    nothing = np.zeros(len(centred(played)))
    losses = [
        policy.update(played, nothing, settings, [0, n], Replay(rollouts, weight))["imitation_loss"] for n in range(12)
    ]
    assert losses[-1] < 0.2 < losses[0]
    assert policy.update(played, nothing, SETTINGS, [1], Replay(rollouts, weight))["imitation_loss"] == 0.0


def test_the_reference_penalty_holds_the_policy_back(tmp_path: Path):
    start = LinearPolicy(2**12)
    start.save(tmp_path)
    moved = []
    for coefficient in (0.0, 10.0):
        policy = LinearPolicy(2**12)
        policy.set_reference(tmp_path)
        settings = replace(SETTINGS, objective=Objective(penalty="k3", penalty_coef=coefficient), lr=0.01)
        for update in range(6):
            rollouts = play(policy, [update])
            policy.update(rollouts, centred(rollouts), settings, [update])
        moved.append(np.abs(policy.weights - start.weights).sum())
    assert moved[1] < 0.8 * moved[0]


def test_a_saved_policy_continues_bit_by_bit(tmp_path: Path):
    policy = LinearPolicy(2**12)
    rollouts = play(policy, [0])
    policy.update(rollouts, centred(rollouts), SETTINGS, [0])
    policy.save(tmp_path)
    restored = LinearPolicy(2**12)
    restored.load(tmp_path)
    for one in (policy, restored):
        later = play(one, [1])
        one.update(later, centred(later), SETTINGS, [1])
    assert restored.weights.tobytes() == policy.weights.tobytes()
    policy.save(tmp_path / "a")
    restored.save(tmp_path / "b")
    for file in ("linear.npz", "linear.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_gradient_that_is_not_finite_moves_nothing():
    policy = trained_policy()
    rollouts = play(policy, [1])
    weights = policy.weights.copy()
    huge = np.full(len(centred(rollouts)), 1e300)
    huge[::2] = -1e300
    with np.errstate(over="ignore", invalid="ignore"):
        metrics = policy.update(rollouts, huge, SETTINGS, [1])
    assert metrics["skipped_steps"] == 4
    np.testing.assert_array_equal(policy.weights, weights)


# Refusals.


def test_sizes_are_powers_of_two():
    with pytest.raises(OptionError, match="size is 100; expected a power of two"):
        LinearPolicy(100)


def test_wrong_columns_and_foreign_rollouts_are_refused():
    policy = trained_policy()
    rollouts = play(policy, [1])
    advantage = centred(rollouts)
    with pytest.raises(InputError, match="values of advantage for"):
        policy.update(rollouts, advantage[:-1], SETTINGS, [1])
    with pytest.raises(NumericsError, match="An advantage is infinite"):
        policy.update(rollouts, np.full(len(advantage), np.inf), SETTINGS, [1])
    with pytest.raises(OptionError, match="needs a reference policy"):
        policy.update(rollouts, advantage, replace(SETTINGS, objective=Objective(penalty_coef=0.1)), [1])
    greedy = play(policy, [1], temperature=0.0)
    with pytest.raises(InputError, match="'train/0#0' was not sampled by a linear policy at a temperature above 0"):
        policy.update(greedy, centred(greedy), SETTINGS, [1])
    shown, _ = demonstrations(1)
    with pytest.raises(InputError, match="was not sampled by a linear policy"):
        policy.update(shown, np.ones(6), SETTINGS, [1])


def test_demonstrations_need_their_admissible_commands():
    policy = trained_policy()
    rollouts, weight = demonstrations(1)
    bare = replace(rollouts[0].episode, turns=tuple(replace(turn, extra={}) for turn in rollouts[0].episode.turns))
    with pytest.raises(InputError, match="demonstrates 'open red door', which is not among the 0 admissible commands"):
        policy.imitate([replace(rollouts[0], episode=bare)], weight, ImitateSettings(), [0])
    with pytest.raises(InputError, match="Got 2 values of weight for 6 turns"):
        policy.imitate(rollouts, weight[:2], ImitateSettings(), [0])


def test_broken_checkpoints_are_refused(tmp_path: Path):
    policy = LinearPolicy(2**12)
    with pytest.raises(CheckpointError, match="does not hold a linear policy"):
        policy.load(tmp_path)
    LinearPolicy(2**10).save(tmp_path)
    with pytest.raises(CheckpointError, match="holds a linear policy of 1024 weights; expected 4096"):
        policy.load(tmp_path)
    policy.save(tmp_path)
    file = tmp_path / "linear.npz"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(CheckpointError, match="does not hold a linear policy"):
        policy.load(tmp_path)
