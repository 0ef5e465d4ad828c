"""Whole updates on batches whose rows share their beginnings: equal to each row computed apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from policy.conftest import COMPACT, WINDOW, MakePolicy
from policy.test_update import gradient_of, on_policy, sequences_of
from stepcredit.core.credit import FloatArray
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy import packing
from stepcredit.policy.gradient import read_in_parts
from stepcredit.policy.packing import pack, prefix_order
from stepcredit.policy.sequences import PolicySequence, imitation_sequences
from stepcredit.policy.settings import ImitateSettings, Objective
from stepcredit.policy.supervised import backward_imitation
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import Rollout


def play_tree(policy: TransformerPolicy, suite: ChainSuite) -> list[Rollout]:
    """Two groups of four, and three branches from the second turn of one episode of each."""
    tasks = suite.tasks("train")[:2]
    played = collect(policy, suite, tasks, group_size=4, horizon=5, seed=[0], keep_places=True)
    openings = [Opening(played.rollouts[place], 1, 3) for place in (0, 4)]
    grown = branch(policy, suite, openings, horizon=5, seed=[1], kept=played.kept)
    played.close()
    assert len(grown.rollouts) == 6
    return [*played.rollouts, *grown.rollouts]


def noisy(policy: TransformerPolicy, rollouts: Sequence[Rollout]) -> tuple[list[PolicySequence], FloatArray]:
    """Sequences whose ratios are not 1, and advantages."""
    advantage = np.random.default_rng(0).normal(size=sum(len(one.responses) for one in rollouts))
    noise = np.random.default_rng(1)
    sequences = sequences_of(policy, rollouts, advantage)
    return [
        replace(one, logprob=one.logprob + 0.2 * noise.normal(size=len(one.logprob))) for one in sequences
    ], advantage


@pytest.mark.parametrize(("double", "tolerance"), [(True, 1e-9), (False, 1e-4)], ids=["float64", "float32"])
@pytest.mark.parametrize("template", [COMPACT, WINDOW], ids=["append-only", "window"])
@pytest.mark.parametrize("constrained", [True, False], ids=["constrained", "free"])
def test_loss_and_gradient_equal_rows_computed_apart(
    make_policy: MakePolicy,
    suite: ChainSuite,
    monkeypatch: pytest.MonkeyPatch,
    template: PromptTemplate,
    constrained: bool,
    double: bool,
    tolerance: float,
) -> None:
    policy = make_policy(template, constrained=constrained, max_response_tokens=4, double=double)
    sequences, advantage = noisy(policy, play_tree(policy, suite))
    objective = Objective(entropy_coef=0.1)
    packed = pack([sequences[index] for index in prefix_order(sequences)])
    assert len(packed.tokens) < 0.8 * sum(len(one.tokens) for one in sequences)
    got, sums = gradient_of(policy, sequences, advantage, objective)
    monkeypatch.setattr(packing, "LEAST_SHARE", 2)  # more than any sequence has
    expected, apart = gradient_of(policy, sequences, advantage, objective, micro_batch_tokens=1)
    assert sums.loss == pytest.approx(apart.loss, rel=tolerance)
    assert (sums.tokens, sums.clipped) == (apart.tokens, apart.clipped)
    assert sums.entropy == pytest.approx(apart.entropy, rel=tolerance)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert (got[name] - value).norm() <= tolerance * value.norm(), name


def test_forward_and_backward_run_over_distinct_tokens_only(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy(double=True)
    sequences, advantage = noisy(policy, play_tree(policy, suite))
    seen: list[int] = []
    plain = policy.model.hidden

    def count(tokens: Tensor, *layout: object) -> Tensor:
        seen.append(len(tokens))
        return plain(tokens, *layout)  # type: ignore[arg-type]

    policy.model.hidden = count  # type: ignore[assignment, method-assign]
    gradient_of(policy, sequences, advantage, Objective())
    prefixes = {tuple(one.tokens[: end + 1]) for one in sequences for end in range(len(one.tokens))}
    assert seen == [len(prefixes)]


def test_row_order_changes_no_bit(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """Rows are sorted before they are packed, so whoever shuffles them gets the same sums in the same order."""
    policy = make_policy()
    sequences, advantage = noisy(policy, play_tree(policy, suite))
    distinct = [sequences[0]]
    for one in sequences[1:]:
        if all(one.tokens.tobytes() != other.tokens.tobytes() for other in distinct):
            distinct.append(one)
    one, _ = gradient_of(policy, distinct, advantage, Objective(), micro_batch_tokens=100)
    other, _ = gradient_of(policy, distinct[::-1], advantage, Objective(), micro_batch_tokens=100)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_reading_in_parts_keeps_the_order_of_the_sequences(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy(double=True)
    sequences, _ = noisy(policy, play_tree(policy, suite))
    counts = [len(one.target) for one in sequences]
    read = read_in_parts(policy.model, sequences, 100, lambda reading: reading.logprob, counts)
    for got, one in zip(read, on_policy(policy, sequences), strict=True):
        assert got.numpy() == pytest.approx(one.logprob, abs=1e-10)


def test_demonstrations_that_begin_alike_are_learnt_alike(
    make_policy: MakePolicy, suite: ChainSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same place of the tree may have several successors, each with its own weight."""
    policy = make_policy(double=True)
    rng = np.random.default_rng(0)
    sequences = [
        sequence
        for rollout in play_tree(policy, suite)
        for sequence in imitation_sequences(rollout, rng.random(len(rollout.responses)), 0.1, policy.conversation)
    ]
    results = []
    for least in (packing.LEAST_SHARE, 2):
        monkeypatch.setattr(packing, "LEAST_SHARE", least)
        policy.model.module.zero_grad()
        losses = backward_imitation(policy.model, sequences, micro_batch_tokens=ImitateSettings().micro_batch_tokens)
        results.append((losses, [value.grad.clone() for value in policy.model.parameters]))
    (losses, gradients), (expected, apart) = results
    assert losses == pytest.approx(expected, rel=1e-5)
    for got, value in zip(gradients, apart, strict=True):
        assert (got - value).norm() <= 1e-5 * value.norm()
