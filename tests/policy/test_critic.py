"""The critic of turn-level PPO: its loss, its gradient, its checkpoint, and that it learns values."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch

from policy.conftest import ONE_STEP, MakePolicy, play, random_advantage, turn_count
from stepcredit.core.errors import CheckpointError, InputError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.losses import value_loss
from stepcredit.policy.settings import Objective, Returns, UpdateSettings, find_objective
from stepcredit.rollouts.collect import collect

VALUES_ONLY = replace(ONE_STEP, objective=Objective(value_coef=1.0))


def test_value_loss_by_hand() -> None:
    """Inside the clip the squared error; beyond it, towards the target, the error at the clip, without gradient."""
    value = torch.tensor([1.0, 3.0, -2.0, 0.5], requires_grad=True)
    before, target = torch.zeros(4), torch.tensor([2.0, 4.0, 1.0, 0.0])
    loss = value_loss(value, before, target, 1.0)
    # (1−2)² = 1; V_c = 1: (1−4)² = 9; V = −2 is worse than V_c = −1: (−2−1)² = 9; (0.5)² = 0.25
    assert loss.item() == pytest.approx((1 + 9 + 9 + 0.25) / 2)
    (gradient,) = torch.autograd.grad(loss, value)
    assert gradient.tolist() == pytest.approx([-1.0, 0.0, -3.0, 0.5])
    assert value_loss(value, before, target, inf).item() == pytest.approx((1 + 1 + 9 + 0.25) / 2)


def test_a_fresh_critic_says_nothing(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    rollouts = play(policy, suite)
    assert policy.values(rollouts).tolist() == [0.0] * turn_count(rollouts)


def test_values_are_read_at_the_end_of_each_prompt(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """w·h + b, h by a plain forward over everything up to the prompt's last token; the response changes nothing."""
    policy = make_policy(double=True)
    rollouts = play(policy, suite)
    policy.values(rollouts)
    assert policy.critic is not None
    weight, bias = (parameter.detach() for parameter in policy.critic.parameters)
    torch.manual_seed(0)
    weight.normal_()
    bias.fill_(0.3)
    got = policy.values(rollouts)
    expected = []
    module = policy.model.module
    module.set_attn_implementation("sdpa")
    for rollout in rollouts:
        context: list[int] = []
        for response in rollout.responses:
            context += response.record.prompt.tolist()
            with torch.no_grad():
                hidden = module.base_model(input_ids=torch.tensor([context]), use_cache=False).last_hidden_state
            expected.append(float(hidden[0, -1] @ weight[0] + bias[0]))
            context += response.record.response.tolist()
    assert got == pytest.approx(expected, abs=1e-9)


def test_gradient_is_the_mean_over_turns_whatever_the_micro_batches(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """Head: ∂/∂w of (1/N) Σ ½(V − R)² at V = 0 is −(1/N) Σ R·h; one step of AdamW shows its sign, the loss its size."""
    losses = []
    for limit in (1, 1 << 20):
        policy = make_policy(double=True)
        rollouts = play(policy, suite)
        target = np.random.default_rng(3).normal(size=turn_count(rollouts))
        returns = Returns(target=target, value=policy.values(rollouts))
        settings = replace(VALUES_ONLY, micro_batch_tokens=limit)
        metrics = policy.update(rollouts, np.zeros(turn_count(rollouts)), settings, [0], returns=returns)
        losses.append(metrics["value_loss"])
        assert metrics["loss"] == pytest.approx(metrics["value_loss"])
        assert policy.critic is not None
        bias = policy.critic.parameters[1]
        assert np.sign(bias.item()) == np.sign(target.mean())
    assert losses == pytest.approx([np.mean(target**2) / 2] * 2, rel=1e-9)


def test_the_trunk_learns_from_values_too(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    rollouts = play(policy, suite)
    zeros = np.zeros(turn_count(rollouts))
    returns = Returns(target=random_advantage(rollouts), value=policy.values(rollouts))
    assert policy.update(rollouts, zeros, VALUES_ONLY, [0], returns=returns)["grad_norm"] == 0  # w is still 0
    assert policy.update(rollouts, zeros, VALUES_ONLY, [1], returns=returns)["grad_norm"] > 0


def test_where_the_policy_takes_no_step_the_head_takes_none(
    make_policy: MakePolicy, suite: ChainSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    rollouts = play(policy, suite)
    count = turn_count(rollouts)
    returns = Returns(target=np.ones(count), value=policy.values(rollouts))
    monkeypatch.setattr(policy.optimizer, "step", lambda loss, **_: None)
    metrics = policy.update(rollouts, np.zeros(count), VALUES_ONLY, [0], returns=returns)
    assert metrics["skipped_steps"] == 1
    assert policy.values(rollouts).tolist() == [0.0] * count


def test_ppo_learns_values_and_the_task(make_policy: MakePolicy) -> None:
    """Turn-level PPO with GAE: success rises from one half, and values come to tell what is won."""
    suite = ChainSuite(length=1, doors=2, mistake="fall")
    policy = make_policy()
    settings = UpdateSettings(objective=find_objective("ppo"), lr=3e-3, epochs=2, minibatch=32)
    success, error = [], []
    for update in range(14):
        rollouts = collect(
            policy, suite, suite.tasks("train")[:16], group_size=4, horizon=1, seed=[update], reward_scale=1.0
        ).rollouts
        turns = Turns.from_episodes(rollout.episode for rollout in rollouts)
        values = policy.values(rollouts)
        credit = assign(turns, "gae", values=values)
        returns = Returns(target=credit.advantage + turns.penalty + values, value=values)
        metrics = policy.update(rollouts, credit.advantage, settings, [update], returns=returns)
        success.append(np.mean([rollout.episode.success for rollout in rollouts]))
        error.append(metrics["value_loss"])
    assert success[0] < 0.7
    assert np.mean(success[-2:]) > 0.9
    assert np.mean(error[-2:]) < 0.5 * error[0]


def test_a_checkpoint_continues_bit_by_bit(make_policy: MakePolicy, suite: ChainSuite, tmp_path: Path) -> None:
    policy, again = make_policy(), make_policy()
    rollouts = play(policy, suite)
    advantage = random_advantage(rollouts)
    settings = replace(ONE_STEP, objective=find_objective("ppo"))
    returns = Returns(target=advantage, value=policy.values(rollouts))
    policy.update(rollouts, advantage, settings, [0], returns=returns)
    policy.save(tmp_path)
    again.load(tmp_path)
    assert np.array_equal(policy.values(rollouts), again.values(rollouts))
    for one in (policy, again):
        one.update(rollouts, advantage, settings, [1], returns=returns)
    assert np.array_equal(policy.values(rollouts), again.values(rollouts))
    assert policy.values(rollouts).any()
    (tmp_path / "critic.safetensors").write_bytes(b"broken")
    with pytest.raises(CheckpointError, match="Cannot read the critic"):
        make_policy().load(tmp_path)


def test_a_policy_without_critic_saves_none(make_policy: MakePolicy, tmp_path: Path) -> None:
    policy = make_policy()
    policy.save(tmp_path)
    assert not (tmp_path / "critic.safetensors").exists()
    policy.load(tmp_path)
    assert policy.critic is None


def test_refusals(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    rollouts = play(policy, suite, episodes=1)
    count = turn_count(rollouts)
    with pytest.raises(OptionError, match="needs returns"):
        policy.update(rollouts, np.zeros(count), VALUES_ONLY, [0])
    with pytest.raises(InputError, match="values of return"):
        policy.update(
            rollouts, np.zeros(count), VALUES_ONLY, [0], returns=Returns(np.zeros(count + 1), np.zeros(count))
        )
    with pytest.raises(OptionError, match="value_clip is 0"):
        Objective(value_clip=0)
