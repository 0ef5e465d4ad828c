"""Objectives: hand-computed values and gradients, identities, and a slow loop on random batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from reference.losses_objective import TokenTurn
from reference.losses_objective import loss as slow_loss
from stepcredit.policy.losses import (
    clipped_surrogate,
    log_ratio,
    policy_loss,
    reference_penalty,
    token_weights,
    turn_log_ratio,
)
from stepcredit.policy.settings import OBJECTIVES, Objective

DOUBLE = torch.float64


def column(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=DOUBLE, requires_grad=grad)


# Surrogates.


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "slope", "clipped"),
    [
        (1.0, 2.0, 2.0, 2.0, False),
        (1.1, 2.0, 2.2, 2.0, False),
        (1.5, 2.0, 2.4, 0.0, True),  # above 1 + ε: bounded
        (0.5, 2.0, 1.0, 2.0, False),  # below, but the gain would rise: not bounded
        (0.5, -2.0, -1.6, 0.0, True),
        (1.5, -2.0, -3.0, -2.0, False),
        (4.0, -2.0, -6.0, 0.0, True),  # dual clip: never below 3·A
        (4.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_clip_by_hand(ratio: float, advantage: float, gain: float, slope: float, clipped: bool) -> None:
    rho = column(ratio, grad=True)
    value, at_bound = clipped_surrogate(rho, column(advantage), low=0.2, high=0.2, dual=3.0)
    value.sum().backward()
    assert value.item() == pytest.approx(gain)
    assert rho.grad is not None
    assert rho.grad.item() == pytest.approx(slope)
    assert at_bound.item() is clipped


def test_asymmetric_range_and_no_dual_clip() -> None:
    value, _ = clipped_surrogate(
        column(1.25, 1.5, 0.75, 9.0), column(1.0, 1.0, -1.0, -1.0), low=0.2, high=0.28, dual=None
    )
    assert value.tolist() == pytest.approx([1.25, 1.28, -0.8, -9.0])


def test_turn_ratio_is_the_geometric_mean_of_its_tokens() -> None:
    """Tokens with ratios 2 and 1/2 make a turn of ratio 1; a lone token keeps its own."""
    shift = turn_log_ratio(
        column(math.log(2), -math.log(2), 0.3), column(0.0, 0.0, 0.0), torch.tensor([0, 0, 1]), turns=2
    )
    assert shift.exp().tolist() == pytest.approx([1.0, 1.0, math.exp(0.3)])


def test_extreme_log_ratios_give_finite_losses_and_gradients() -> None:
    new = column(0.0, -800.0, 0.0, -800.0, grad=True)
    loss, _ = policy_loss(
        Objective(),
        logprob=new,
        old=column(-800.0, 0.0, -800.0, 0.0),
        advantage=column(1.0, 1.0, -1.0, -1.0),
        turn=torch.arange(4),
        turns=4,
        weight=column(1, 1, 1, 1),
        entropy=column(0, 0, 0, 0),
    )
    loss.backward()
    assert new.grad is not None
    assert torch.isfinite(new.grad).all()
    assert math.isfinite(loss.item())
    assert log_ratio(column(0.0), column(-800.0)).item() == 20.0


# Aggregation.


def test_token_weights_by_hand() -> None:
    """Two turns of one and three tokens."""
    turn = torch.tensor([0, 1, 1, 1])
    expected = {
        "token-mean": [1 / 4] * 4,
        "seq-mean-token-mean": [1 / 2, 1 / 6, 1 / 6, 1 / 6],
        "seq-mean-token-sum": [1 / 2] * 4,
        "seq-mean-token-sum-norm": [1 / 20] * 4,
    }
    for aggregation, weights in expected.items():
        assert token_weights(turn, 2, aggregation, norm_length=10).tolist() == pytest.approx(weights, abs=1e-15)


def test_length_normalisation_changes_which_turn_is_preferred() -> None:
    """The counter-example of TSBPO's appendix B.3 in small: two turns of equal advantage, one four times as long.

    The complete turn pulls each with the gradient of its own log-probability; dividing by the length pulls the long
    one's tokens with a quarter of that, so the policy that learns prefers short responses of equal worth.
    """
    new = column(*[-1.0] * 5, grad=True)
    turn = torch.tensor([0, 1, 1, 1, 1])
    gradient = {}
    for aggregation in ("seq-mean-token-sum", "seq-mean-token-mean"):
        new.grad = None
        _loss(Objective(aggregation=aggregation), new, new.detach(), turn, [1.0, 1.0]).backward()
        assert new.grad is not None
        gradient[aggregation] = new.grad.clone().tolist()
    assert gradient["seq-mean-token-sum"] == pytest.approx([-1 / 2] * 5)
    assert gradient["seq-mean-token-mean"] == pytest.approx([-1 / 2] + [-1 / 8] * 4)


def _loss(objective: Objective, new: Tensor, old: Tensor, turn: Tensor, advantage: list[float]) -> Tensor:
    turns = len(advantage)
    kind = "seq-mean-token-mean" if objective.surrogate == "turn-clip" else objective.aggregation
    loss, _ = policy_loss(
        objective,
        logprob=new,
        old=old,
        advantage=column(*advantage)[turn],
        turn=turn,
        turns=turns,
        weight=token_weights(turn, turns, kind, objective.norm_length),
        entropy=torch.zeros_like(new),
    )
    return loss


def test_complete_turn_gradient_is_that_of_the_log_likelihood() -> None:
    """At π = π_old: ∇loss = −(1/N) Σ A_i ∇log π(y_i); with turn-clip each turn is divided by its length."""
    new = column(-0.3, -1.0, -0.2, -2.0, -0.7, grad=True)
    turn = torch.tensor([0, 0, 1, 1, 1])
    advantage = [1.5, -0.5]
    _loss(Objective(aggregation="seq-mean-token-sum"), new, new.detach(), turn, advantage).backward()
    assert new.grad is not None
    assert new.grad.tolist() == pytest.approx([-0.75, -0.75, 0.25, 0.25, 0.25], abs=1e-15)
    new.grad = None
    _loss(Objective(surrogate="turn-clip"), new, new.detach(), turn, advantage).backward()
    assert new.grad.tolist() == pytest.approx([-0.375, -0.375, 1 / 12, 1 / 12, 1 / 12], abs=1e-15)


# Penalties.


@pytest.mark.parametrize(
    ("form", "delta", "value", "slope"),
    [
        ("k1", 0.7, -0.7, -1.0),
        ("abs", -0.7, 0.7, -1.0),
        ("abs", 0.7, 0.7, 1.0),
        ("k2", -2.0, 2.0, -2.0),
        ("k3", 1.0, math.e - 2, math.e - 1),
        ("k3", -1.0, math.exp(-1), math.exp(-1) - 1),
        ("k3", 5.0, 10.0, 0.0),  # clamped: no pull from far away, which tangent repairs
        ("tangent", 1.0, math.e - 2, math.e - 1),
        ("tangent", -3.0, math.exp(-3) + 2, math.exp(-3) - 1),
        ("tangent", 5.0, 10 - math.log(11) + 10 * (5 - math.log(11)), 10.0),
        ("tangent", 900.0, 10 - math.log(11) + 10 * (900 - math.log(11)), 10.0),
    ],
)
def test_penalties_by_hand(form: str, delta: float, value: float, slope: float) -> None:
    """``slope`` is with respect to δ = log π_ref − log π, hence the opposite of the gradient with respect to log π."""
    new = column(-1.0, grad=True)
    cost = reference_penalty(new, column(-1.0 + delta), form)
    cost.sum().backward()
    assert cost.item() == pytest.approx(value)
    assert new.grad is not None
    assert -new.grad.item() == pytest.approx(slope)


def test_tangent_is_continuous_in_value_and_slope() -> None:
    knee = math.log(11)
    around = column(knee - 1e-7, knee + 1e-7, grad=True)
    cost = reference_penalty(column(0.0, 0.0), around, "tangent")
    cost.sum().backward()
    assert around.grad is not None
    assert cost[0].item() == pytest.approx(cost[1].item(), abs=1e-5)
    assert around.grad[0].item() == pytest.approx(around.grad[1].item(), abs=1e-5)


@given(st.floats(-5, 2.39), st.floats(-4, 0))
def test_below_the_knee_tangent_is_k3(delta: float, new: float) -> None:
    pair = [reference_penalty(column(new), column(new + delta), form).item() for form in ("tangent", "k3")]
    assert pair[0] == pytest.approx(pair[1], abs=1e-12)
    assert pair[0] >= 0


# Whole objective.

turn_strategy = st.integers(1, 4).flatmap(
    lambda length: st.builds(
        TokenTurn,
        *[st.lists(st.floats(-3, 0), min_size=length, max_size=length) for _ in range(4)],
        advantage=st.floats(-2, 2),
    )
)
objective_strategy = st.builds(
    Objective,
    surrogate=st.sampled_from(["clip", "turn-clip"]),
    aggregation=st.sampled_from(["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]),
    clip_low=st.floats(0, 0.9),
    clip_high=st.floats(0, 2),
    dual_clip=st.none() | st.floats(1.5, 4),
    norm_length=st.integers(1, 9),
    penalty=st.sampled_from(["k1", "abs", "k2", "k3", "tangent"]),
    penalty_coef=st.floats(0, 1),
    entropy_coef=st.floats(0, 1),
)


@given(st.lists(turn_strategy, min_size=1, max_size=5), objective_strategy)
def test_objective_equals_the_slow_loop(turns: list[TokenTurn], objective: Objective) -> None:
    turn = torch.from_numpy(np.repeat(np.arange(len(turns)), [len(one.new) for one in turns]))
    flat = {
        name: column(*[value for one in turns for value in getattr(one, name)])
        for name in ("new", "old", "reference", "entropy")
    }
    kind = "seq-mean-token-mean" if objective.surrogate == "turn-clip" else objective.aggregation
    loss, _ = policy_loss(
        objective,
        logprob=flat["new"],
        old=flat["old"],
        advantage=column(*[one.advantage for one in turns])[turn],
        turn=turn,
        turns=len(turns),
        weight=token_weights(turn, len(turns), kind, objective.norm_length),
        entropy=-flat["entropy"],
        reference=flat["reference"],
    )
    slow = slow_loss([replace(one, entropy=[-value for value in one.entropy]) for one in turns], objective)
    assert loss.item() == pytest.approx(slow, rel=1e-9, abs=1e-9)


def test_presets_by_their_papers_numbers() -> None:
    assert set(OBJECTIVES) == {"gigpo", "gaca", "graft", "tsbpo", "grpo", "dr-grpo", "dapo", "gspo", "ppo"}
    tsbpo, gaca, dapo, gspo = (OBJECTIVES[name] for name in ("tsbpo", "gaca", "dapo", "gspo"))
    assert (tsbpo.aggregation, tsbpo.penalty, tsbpo.penalty_coef, tsbpo.entropy_coef) == (
        "seq-mean-token-sum",
        "tangent",
        0.05,
        0.0,
    )
    assert (gaca.aggregation, gaca.penalty, gaca.penalty_coef, gaca.entropy_coef) == ("token-mean", "k3", 0.01, 0.001)
    assert (dapo.clip_low, dapo.clip_high) == (0.2, 0.28)
    assert (gspo.surrogate, gspo.clip_low, gspo.clip_high) == ("turn-clip", 3e-4, 4e-4)
    assert OBJECTIVES["graft"].surrogate == "turn-clip"
