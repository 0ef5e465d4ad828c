"""Supervised learning: the loss by hand, masks, and that it learns what it is shown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from policy.conftest import COMPACT, WINDOW, MakePolicy, play
from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import InputError
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.attention import Segments
from stepcredit.policy.sequences import imitation_sequences
from stepcredit.policy.settings import ImitateSettings
from stepcredit.policy.supervised import backward_imitation
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import PastTurn, Request, Response, Rollout

STEPS = (("A red lamp burns.", "open red door"), ("A blue lamp burns.", "wait"), ("A wall.", "open blue door"))


def demonstration() -> Rollout:
    turns = tuple(Turn(seen, said, extra={"admissible": ("wait",)}) for seen, said in STEPS)
    responses = tuple(Response(said, (), 0.0) for _, said in STEPS)
    return Rollout(Episode("t", "d", turns, "", True), "Leave the house.", responses)


def expert_rollouts(suite: ChainSuite, count: int) -> list[Rollout]:
    rollouts = []
    for task in suite.tasks("train")[:count]:
        environment = suite.make(task)
        observation, info = environment.reset()
        turns = []
        while not info["won"]:
            command = environment.right_command  # type: ignore[attr-defined]
            turns.append(Turn(observation, command))
            observation, *_, info = environment.step(command)
        responses = tuple(Response(turn.action, (), 0.0) for turn in turns)
        rollouts.append(Rollout(Episode(task.id, task.id, tuple(turns), observation, True), task.goal, responses))
    return rollouts


def slow_loss(policy: TransformerPolicy, rollout: Rollout, weight: list[float], observation_weight: float) -> float:
    """Token by token over the conversation, Σ w·(−log p)/Σ w."""
    codec, conversation = policy.conversation.codec, policy.conversation
    append_only = conversation.template.append_only
    context: list[int] = []
    history: list[PastTurn] = []
    total = weights = 0.0
    for (seen, said), response, own in zip(STEPS, rollout.responses, weight, strict=True):
        (prompt,) = conversation.prompts([Request(0, rollout.goal, tuple(history), seen, ("wait",), 3)])
        if not append_only:
            context = []
        for ids, w in ((prompt.tolist(), observation_weight), (codec.response(said), own)):
            for token in ids:
                if context:
                    with torch.no_grad():
                        tokens = torch.tensor(context)
                        logits = policy.model.logits(tokens, torch.arange(len(context)), Segments([len(context)]))[-1]
                    total -= w * float(torch.log_softmax(logits, 0)[token])
                    weights += w
                context.append(token)
        history.append(PastTurn(seen, response, said))
    return total / weights


@pytest.mark.parametrize("template", [COMPACT, WINDOW], ids=["append-only", "window"])
@pytest.mark.parametrize(("weight", "observation_weight"), [([1, 1, 1], 0.1), ([1, 0, 2.5], 0.0), ([0, 0, 1], 0.3)])
def test_loss_by_hand(
    make_policy: MakePolicy, template: PromptTemplate, weight: list[float], observation_weight: float
) -> None:
    policy = make_policy(template)
    sequences = imitation_sequences(demonstration(), np.array(weight), observation_weight, policy.conversation)
    loss, response_loss = backward_imitation(policy.model, sequences, micro_batch_tokens=1)
    assert loss == pytest.approx(slow_loss(policy, demonstration(), weight, observation_weight), abs=1e-5)
    assert response_loss == pytest.approx(slow_loss(policy, demonstration(), weight, 0.0), abs=1e-5)


def test_masked_turns_are_context_and_nothing_else(make_policy: MakePolicy) -> None:
    """The weights say which token of the one sequence is learnt: turn 1 not at all, prompts a tenth."""
    policy = make_policy()
    (sequence,) = imitation_sequences(demonstration(), np.array([1.0, 0.0, 2.0]), 0.1, policy.conversation)
    codec = policy.conversation.codec
    spoken = [len(codec.response(said)) for _, said in STEPS]
    prompts = [len(ids) for ids in policy.conversation.prompts(_requests())]
    expected: list[float] = []
    for turn, own in enumerate([1.0, 0.0, 2.0]):
        expected += [0.1] * prompts[turn] + [own] * spoken[turn]
    assert sequence.weight.tolist() == expected[1:]
    assert sequence.response.sum() == sum(spoken)
    assert sequence.tokens[1:].tolist() == sequence.target[:-1].tolist()


def _requests() -> list[Request]:
    past = PastTurn("A red lamp burns.", Response("open red door", (), 0.0), "open red door")
    return [Request(0, "Leave the house.", (past,) * turn, seen, ("wait",), 3) for turn, (seen, _) in enumerate(STEPS)]


def test_gradient_does_not_depend_on_micro_batches(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy(double=True)
    sequences = [
        sequence
        for rollout in expert_rollouts(suite, 6)
        for sequence in imitation_sequences(rollout, np.ones(len(rollout.responses)), 0.1, policy.conversation)
    ]
    gradients = []
    for limit in (1, 64, 1 << 20):
        policy.model.module.zero_grad()
        backward_imitation(policy.model, sequences, micro_batch_tokens=limit)
        gradients.append([value.grad.clone() for value in policy.model.module.parameters()])
    for one, two, three in zip(*gradients, strict=True):
        assert torch.allclose(one, two, rtol=1e-10, atol=1e-12)
        assert torch.allclose(one, three, rtol=1e-10, atol=1e-12)


def test_own_rollouts_can_be_imitated_from_their_recorded_tokens(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy(constrained=False, max_response_tokens=3)
    for rollout in play(policy, suite, episodes=3):
        (sequence,) = imitation_sequences(rollout, np.ones(len(rollout.responses)), 0.0, policy.conversation)
        tokens = [
            token for response in rollout.responses for ids in (response.record.prompt, response.record.response)
            for token in ids.tolist()
        ]  # fmt: skip
        assert [*sequence.tokens.tolist(), int(sequence.target[-1])] == tokens


@pytest.mark.parametrize("template", [COMPACT, WINDOW], ids=["append-only", "window"])
def test_learns_the_expert(make_policy: MakePolicy, template: PromptTemplate) -> None:
    suite = ChainSuite(length=2, doors=3, mistake="fall")
    policy = make_policy(template)
    rollouts = expert_rollouts(suite, 48)
    weight = np.ones(sum(len(rollout.responses) for rollout in rollouts))
    metrics = [policy.imitate(rollouts, weight, ImitateSettings(lr=1e-2, minibatch=8), [epoch]) for epoch in range(20)]
    assert metrics[0]["imitation_loss"] > 2 * metrics[-1]["imitation_loss"]
    assert metrics[-1]["response_nll"] < 0.1
    assert metrics[-1]["skipped_steps"] == 0
    unseen = suite.tasks("test")[:16]
    played = collect(policy, suite, unseen, group_size=1, horizon=2, seed=[0], temperature=0).rollouts
    assert np.mean([rollout.episode.success for rollout in played]) == 1.0


def test_degenerate_and_wrong_input(make_policy: MakePolicy) -> None:
    policy = make_policy()
    settings = ImitateSettings(observation_weight=0.0)
    before = [value.clone() for value in policy.model.module.parameters()]
    nothing = policy.imitate([demonstration()], np.zeros(3), settings, [0])
    assert nothing == dict.fromkeys(nothing, 0.0)
    assert policy.imitate([], np.zeros(0), settings, [0])["tokens"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.module.parameters(), strict=True))
    broken = policy.imitate([demonstration()], np.array([1.0, math.inf, 1.0]), settings, [0])
    assert broken["skipped_steps"] == 1
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.module.parameters(), strict=True))
    with pytest.raises(InputError, match="Got 2 values of weight for 3 turns"):
        policy.imitate([demonstration()], np.ones(2), settings, [0])


def test_the_horizon_of_a_demonstration_is_the_one_it_records(make_policy: MakePolicy) -> None:
    policy = make_policy(PromptTemplate("{goal} {observation} {step} of {horizon}", append_only=True))
    episode = replace(demonstration().episode, extra={"horizon": 7})
    (sequence,) = imitation_sequences(replace(demonstration(), episode=episode), np.ones(3), 0.1, policy.conversation)
    assert "1 of 7" in policy.tokenizer.decode(sequence.tokens.tolist())
