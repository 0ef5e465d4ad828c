"""The update: ratios of one, exact gradients, and independence of everything that must not matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from policy.conftest import COMPACT, ONE_STEP, WINDOW, MakePolicy, chain_texts, play, random_advantage, turn_count
from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import InputError, OptionError
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.attention import Segments
from stepcredit.policy.gradient import StepSums, backward_policy, read_responses
from stepcredit.policy.packing import pack, prefix_order
from stepcredit.policy.sequences import PolicySequence, policy_sequences
from stepcredit.policy.settings import Objective, Replay, UpdateSettings
from stepcredit.policy.tiny import build_tiny_model
from stepcredit.policy.tokens import TokenRecord
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import PastTurn, Request, Response, Rollout

Gradient = dict[str, Tensor]


def sequences_of(policy: TransformerPolicy, rollouts: Sequence[Rollout], advantage: FloatArray) -> list[PolicySequence]:
    found: list[PolicySequence] = []
    row = 0
    for rollout in rollouts:
        scored = ~np.isnan(advantage[row : row + len(rollout.responses)])
        found += policy_sequences(rollout, row, scored, policy.conversation)
        row += len(rollout.responses)
    return found


def gradient_of(
    policy: TransformerPolicy,
    sequences: Sequence[PolicySequence],
    advantage: FloatArray,
    objective: Objective,
    *,
    micro_batch_tokens: int = 1 << 20,
) -> tuple[Gradient, StepSums]:
    policy.model.module.zero_grad()
    sums = backward_policy(policy.model, sequences, advantage, objective, micro_batch_tokens=micro_batch_tokens)
    return take_gradient(policy), sums


def take_gradient(policy: TransformerPolicy) -> Gradient:
    named = policy.model.module.named_parameters()
    return {name: value.grad.clone() for name, value in named if value.grad is not None}


def on_policy(policy: TransformerPolicy, sequences: Sequence[PolicySequence]) -> list[PolicySequence]:
    """With behaviour log-probabilities recomputed in this precision, so that ratios are 1 to the last bit or so."""
    with torch.no_grad():
        return [
            replace(sequence, logprob=read_responses(policy.model, [sequence]).logprob.double().numpy())
            for sequence in sequences
        ]


def assert_same(one: Gradient, other: Gradient, tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.allclose(one[name], other[name], rtol=tolerance, atol=tolerance), name


# Ratios.


@pytest.mark.parametrize("template", [COMPACT, WINDOW], ids=["append-only", "window"])
@pytest.mark.parametrize("constrained", [True, False], ids=["constrained", "free"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_ratio_is_one_before_the_first_step(
    make_policy: MakePolicy, suite: ChainSuite, template: PromptTemplate, constrained: bool, temperature: float
) -> None:
    policy = make_policy(template, constrained=constrained, max_response_tokens=6)
    rollouts = play(policy, suite, temperature=temperature)
    metrics = policy.update(rollouts, random_advantage(rollouts), ONE_STEP, [0])
    assert metrics["ratio_deviation"] < 1e-5
    assert metrics["clip_share"] == 0
    assert metrics["turns"] == turn_count(rollouts)
    assert metrics["tokens"] == sum(len(response.logprobs) for one in rollouts for response in one.responses)
    assert metrics["skipped_steps"] == 0
    mean_entropy = sum(response.entropy * len(response.logprobs) for one in rollouts for response in one.responses)
    assert metrics["entropy"] == pytest.approx(mean_entropy / metrics["tokens"], abs=1e-5)


def test_ratio_is_one_on_branches(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """A branch has its ancestors' turns in its context, from their recorded tokens, and learns from its own only."""
    policy = make_policy()
    root = max(play(policy, suite), key=lambda rollout: len(rollout.responses))
    pairs = list(zip(root.episode.turns, root.responses, strict=True))
    prefix = tuple(PastTurn(turn.observation, response, turn.action) for turn, response in pairs[:2])
    asked = Request(77, root.goal, prefix, "A red lamp burns.", ("open red door", "open blue door"), 5)
    (response,) = policy.session([5]).respond([asked])
    episode = Episode(root.episode.task, "branch", (Turn("A red lamp burns.", response.text),), "", False)
    branch = Rollout(episode, root.goal, (response,), prefix)
    metrics = policy.update([branch], np.array([1.0]), ONE_STEP, [0])
    assert metrics["ratio_deviation"] < 1e-5
    assert (metrics["turns"], metrics["tokens"]) == (1, len(response.logprobs))


# Gradients.


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("template", [COMPACT, WINDOW], ids=["append-only", "window"])
def test_complete_turn_gradient_is_exact(
    make_policy: MakePolicy, suite: ChainSuite, template: PromptTemplate, constrained: bool
) -> None:
    """At π = π_old: −∇loss = (1/N) Σ A_i ∇log π(y_i|H_i), each turn computed apart by the model's own forward."""
    policy = make_policy(template, constrained=constrained, max_response_tokens=4, double=True)
    rollouts = play(policy, suite, episodes=3)
    advantage = random_advantage(rollouts)
    advantage[1] = np.nan
    sequences = on_policy(policy, sequences_of(policy, rollouts, advantage))
    got, _ = gradient_of(policy, sequences, advantage, Objective(aggregation="seq-mean-token-sum"))
    policy.model.module.zero_grad()
    active = int((~np.isnan(advantage)).sum())
    row = 0
    for rollout in rollouts:
        context: list[int] = []
        for response in rollout.responses:
            record = response.record
            context = (context if record.continues else []) + record.prompt.tolist()
            if not np.isnan(advantage[row]):
                (-advantage[row] / active * _slow_turn_logprob(policy, context, record)).backward()
            context += record.response.tolist()
            row += 1
    assert_same(got, take_gradient(policy), 1e-10)


def _slow_turn_logprob(policy: TransformerPolicy, context: Sequence[int], record: TokenRecord) -> Tensor:
    module = policy.model.module
    module.set_attn_implementation("sdpa")
    ids = torch.tensor([[*context, *record.response.tolist()]])
    logits = module(input_ids=ids, use_cache=False).logits[0] / record.temperature
    module.set_attn_implementation("stepcredit")
    total = torch.zeros((), dtype=logits.dtype)
    for place, token in enumerate(record.response.tolist()):
        scores = logits[len(context) + place - 1]
        if record.choices is not None:
            start, end = record.choices.start[place : place + 2]
            allowed = record.choices.ids[start:end].tolist()
            total = total + torch.log_softmax(scores[allowed], 0)[allowed.index(token)]
        else:
            total = total + torch.log_softmax(scores, 0)[token]
    return total


OBJECTIVES = [
    Objective(entropy_coef=0.1),
    Objective(aggregation="seq-mean-token-mean"),
    Objective(aggregation="seq-mean-token-sum-norm"),
    Objective(surrogate="turn-clip", clip_low=0.01, clip_high=0.02),
]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("template", [COMPACT, WINDOW], ids=["append-only", "window"])
def test_no_dependence_on_micro_batches_or_row_order(
    make_policy: MakePolicy, suite: ChainSuite, template: PromptTemplate, objective: Objective
) -> None:
    policy = make_policy(template, double=True)
    rollouts = play(policy, suite)
    advantage = random_advantage(rollouts)
    sequences = sequences_of(policy, rollouts, advantage)
    noise = np.random.default_rng(1)
    sequences = [replace(one, logprob=one.logprob + 0.2 * noise.normal(size=len(one.logprob))) for one in sequences]
    whole, sums = gradient_of(policy, sequences, advantage, objective)
    assert sums.clipped > 0
    for order, limit in ((slice(None), 1), (slice(None), 90), (slice(None, None, -1), 90)):
        got, other = gradient_of(policy, sequences[order], advantage, objective, micro_batch_tokens=limit)
        assert_same(whole, got, 1e-12)
        assert other.loss == pytest.approx(sums.loss, abs=1e-12)
        assert (other.tokens, other.clipped) == (sums.tokens, sums.clipped)


def test_loss_reads_logits_of_response_tokens_only(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """The gradient with respect to every logit that predicts an observation token is exactly 0."""
    policy = make_policy(constrained=False, max_response_tokens=4)
    rollouts = play(policy, suite, episodes=2)
    advantage = random_advantage(rollouts)
    sequences = sequences_of(policy, rollouts, advantage)
    everywhere: list[Tensor] = []
    plain = policy.model.hidden

    def keep_all(tokens: Tensor, positions: Tensor, layout: Segments, select: Tensor) -> Tensor:
        hidden = plain(tokens, positions, layout)
        hidden.retain_grad()
        everywhere.append(hidden)
        return hidden[select]

    policy.model.hidden = keep_all  # type: ignore[assignment, method-assign]
    backward_policy(policy.model, sequences, advantage, Objective(entropy_coef=0.1), micro_batch_tokens=1 << 20)
    (hidden,) = everywhere
    assert hidden.grad is not None
    ordered = [sequences[index] for index in prefix_order(sequences)]
    wanted = {int(at) for path, one in zip(pack(ordered).where, ordered, strict=True) for at in path[one.place]}
    assert {int(at) for at in hidden.grad.abs().sum(-1).nonzero()} == wanted
    assert len(wanted) < len(hidden) / 2


def test_unscored_turns_contribute_nothing(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """NaN is not zero: an unscored turn is context, a turn of advantage 0 still counts in the divisor."""
    policy = make_policy(double=True)
    rollouts = play(policy, suite, episodes=2)
    total = turn_count(rollouts)
    only = np.full(total, np.nan)
    only[2] = 1.0
    zeros = np.zeros(total)
    zeros[2] = 1.0
    objective = Objective(aggregation="seq-mean-token-sum")
    alone, sums = gradient_of(policy, sequences_of(policy, rollouts, only), only, objective)
    diluted, _ = gradient_of(policy, sequences_of(policy, rollouts, zeros), zeros, objective)
    assert_same({name: value / total for name, value in alone.items()}, diluted, 1e-12)
    assert sums.tokens == len([r for one in rollouts for r in one.responses][2].logprobs)


def test_empty_responses_and_wholly_unscored_batches(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    (rollout,) = play(policy, suite, episodes=1)
    silent = replace(rollout.responses[1].record, response=np.zeros(0, dtype=np.int32), choices=None)
    responses = [*rollout.responses]
    responses[1] = Response("", (), 0.0, silent)
    broken = replace(rollout, responses=tuple(responses))
    before = [value.clone() for value in policy.model.module.parameters()]
    metrics = policy.update([broken], np.ones(len(responses)), ONE_STEP, [0])
    assert metrics["turns"] == len(responses) - 1
    assert all(math.isfinite(value) for value in metrics.values())
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.model.module.parameters(), strict=True))
    before = [value.clone() for value in policy.model.module.parameters()]
    metrics = policy.update([broken], np.full(len(responses), np.nan), ONE_STEP, [0])
    assert metrics["turns"] == metrics["tokens"] == metrics["loss"] == metrics["grad_norm"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.module.parameters(), strict=True))


def test_turns_without_a_choice_have_no_gradient(make_policy: MakePolicy) -> None:
    policy = make_policy()
    only = Request(0, "Leave.", (), "A wall.", ("wait",), 5)
    (response,) = policy.session([0]).respond([only])
    rollout = Rollout(Episode("t", "e", (Turn("A wall.", "wait"),), "", False), "Leave.", (response,))
    metrics = policy.update([rollout], np.ones(1), ONE_STEP, [0])
    assert metrics["grad_norm"] == metrics["entropy"] == metrics["ratio_deviation"] == 0
    assert metrics["loss"] == pytest.approx(-1.0)


# Steps.


def test_a_broken_step_is_skipped_and_counted(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    rollouts = play(policy, suite)
    advantage = random_advantage(rollouts)
    advantage[0] = math.inf
    before = [value.clone() for value in policy.model.module.parameters()]
    metrics = policy.update(rollouts, advantage, replace(ONE_STEP, epochs=2), [0])
    assert metrics["skipped_steps"] == 2
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.module.parameters(), strict=True))
    assert policy.optimizer.state() == {}
    assert policy.update(rollouts, random_advantage(rollouts), ONE_STEP, [0])["skipped_steps"] == 0


def test_the_gradient_is_clipped(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """Adam is blind to a constant scale, but its moments show it."""
    policy, clipped = make_policy(), make_policy()
    rollouts = play(policy, suite)
    advantage = random_advantage(rollouts)
    norm = policy.update(rollouts, advantage, replace(ONE_STEP, max_grad_norm=1e9), [0])["grad_norm"]
    clipped.update(rollouts, advantage, replace(ONE_STEP, max_grad_norm=norm / 4), [0])
    for name, value in policy.optimizer.state().items():
        if name.endswith("/exp_avg"):
            assert torch.allclose(clipped.optimizer.state()[name], value / 4, rtol=1e-3, atol=1e-9)


def test_same_seed_same_bits(make_policy: MakePolicy, suite: ChainSuite) -> None:
    rollouts = play(make_policy(), suite)
    advantage = random_advantage(rollouts)
    settings = UpdateSettings(epochs=2, minibatch=2)
    results = []
    for seed in (1, 1, 2):
        policy = make_policy()
        metrics = policy.update(rollouts, advantage, settings, [seed])
        results.append((metrics, [value.clone() for value in policy.model.module.parameters()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))
    assert results[0][0] != results[2][0]


def test_bits_do_not_depend_on_the_number_of_threads(
    tmp_path: Path, suite: ChainSuite, request: pytest.FixtureRequest
) -> None:
    """How a batch is cut is fixed, who computes which part is not. Wide, so that torch would split operations."""
    build_tiny_model(tmp_path, chain_texts(suite), [], seed=3, width=256)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    results = []
    for workers in (1, 3):
        torch.set_num_threads(workers)
        policy = TransformerPolicy.from_folder(tmp_path, COMPACT, workers=workers)
        rollouts = play(policy, suite, episodes=40)
        settings = replace(ONE_STEP, micro_batch_tokens=200)
        metrics = policy.update(rollouts, random_advantage(rollouts), settings, [0])
        spoken = [response.logprobs for rollout in rollouts for response in rollout.responses]
        results.append((spoken, metrics, [value.clone() for value in policy.model.module.parameters()]))
    assert results[0][:2] == results[1][:2]
    assert all(torch.equal(a, b) for a, b in zip(results[0][2], results[1][2], strict=True))


def test_sampled_ids_are_learnt_not_the_text(make_policy: MakePolicy, suite: ChainSuite) -> None:
    """Ids that the tokenizer would never give for their own text stay as they were sampled."""
    policy = make_policy(constrained=False)
    (rollout,) = play(policy, suite, episodes=1)
    tokenizer = policy.tokenizer
    odd = tokenizer.convert_tokens_to_ids(["r", "##e", "##d"])
    assert tokenizer(tokenizer.decode(odd), add_special_tokens=False)["input_ids"] != odd
    ids = np.array([*odd, tokenizer.eos_token_id], dtype=np.int32)
    record = replace(rollout.responses[0].record, response=ids)
    responses = (Response("red", (-1.0,) * 4, 0.0, record), *rollout.responses[1:])
    changed = replace(rollout, responses=responses)
    (sequence,) = policy_sequences(changed, 0, np.ones(len(responses), dtype=bool), policy.conversation)
    assert sequence.target[:4].tolist() == ids.tolist()
    at = len(record.prompt)
    assert sequence.tokens[at : at + 4].tolist() == ids.tolist()
    assert sequence.place[:4].tolist() == [at - 1, at, at + 1, at + 2]


def test_reference_penalty_pulls_towards_the_reference(
    make_policy: MakePolicy, suite: ChainSuite, tiny_folder: Path
) -> None:
    policy = make_policy()
    settings = UpdateSettings(objective=Objective(penalty="k3", penalty_coef=1.0), epochs=1, minibatch=1000, lr=3e-3)
    with pytest.raises(OptionError, match="set_reference"):
        policy.update([], np.zeros(0), settings, [0])
    policy.set_reference(tiny_folder)
    rollouts = play(policy, suite, episodes=12)
    calm = policy.update(rollouts, np.zeros(turn_count(rollouts)), settings, [0])
    assert calm["loss"] == pytest.approx(0.0, abs=1e-6)  # π = π_ref
    for step in range(8):  # away
        policy.update(rollouts, random_advantage(rollouts), replace(ONE_STEP, lr=3e-3), [step])
    away = play(policy, suite, episodes=12, seed=1)
    losses = [policy.update(away, np.zeros(turn_count(away)), settings, [step])["loss"] for step in range(10)]
    assert losses[0] > 1e-3
    assert losses[-1] < 0.5 * losses[0]


def test_replayed_demonstrations_are_not_forgotten(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    rollouts = play(policy, suite)
    demonstration = Rollout(
        Episode("t", "d", (Turn("A red lamp burns.", "open red door"), Turn("A blue lamp burns.", "wait")), "", True),
        "Leave the house.",
        (Response("open red door", (), 0.0), Response("wait", (), 0.0)),
    )
    replay = Replay([demonstration], np.array([1.0, 0.0]))
    settings = UpdateSettings(epochs=1, minibatch=1000, lr=2e-2, imitation_coef=1.0)
    losses = [
        policy.update(rollouts, np.zeros(turn_count(rollouts)), settings, [step], replay)["imitation_loss"]
        for step in range(50)
    ]
    assert losses[0] > 2.0
    assert losses[-1] < 0.2
    with pytest.raises(InputError, match="replay weight"):
        policy.update(rollouts, random_advantage(rollouts), settings, [0], Replay([demonstration], np.ones(1)))


# Refusals.


def test_refusals(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    rollouts = play(policy, suite, episodes=1)
    with pytest.raises(InputError, match="values of advantage"):
        policy.update(rollouts, np.ones(1), ONE_STEP, [0])
    stranger = replace(rollouts[0], responses=tuple(Response("wait", (-1.0,), 0.0) for _ in rollouts[0].responses))
    with pytest.raises(InputError, match="no token record"):
        policy.update([stranger], np.ones(len(stranger.responses)), ONE_STEP, [0])
    short = replace(rollouts[0].responses[0], logprobs=(-0.1,))
    with pytest.raises(InputError, match=r"1 log-probabilities for \d tokens"):
        policy.update(
            [replace(rollouts[0], responses=(short, *rollouts[0].responses[1:]))],
            np.ones(turn_count(rollouts)),
            ONE_STEP,
            [0],
        )


# Learning.


def test_learns_a_two_state_world_in_seconds(make_policy: MakePolicy) -> None:
    """Two lamps, two doors: right with probability one half at first, nearly always after ten updates."""
    suite = ChainSuite(length=1, doors=2, mistake="fall")
    policy = make_policy()
    tasks = suite.tasks("train")[:16]
    settings = UpdateSettings(objective=Objective(), lr=3e-3, epochs=2, minibatch=32)
    success = []
    for update in range(12):
        rollouts = collect(policy, suite, tasks, group_size=4, horizon=1, seed=[update]).rollouts
        won = np.array([rollout.episode.success for rollout in rollouts], dtype=float)
        success.append(won.mean())
        turns = [len(rollout.responses) for rollout in rollouts]
        policy.update(rollouts, np.repeat(won - won.mean(), turns), settings, [update])
    assert success[0] < 0.6
    assert np.mean(success[-2:]) > 0.9
