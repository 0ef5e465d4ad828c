"""Token sequences of recorded household and search runs, for the speed benchmarks; not a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import TaskSuite
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.packing import pack, prefix_order
from stepcredit.policy.sequences import PolicySequence, imitation_sequences
from stepcredit.policy.settings import UpdateSettings
from stepcredit.policy.tokens import Codec
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.types import Rollout

BATCHES = {
    "household, groups": "two groups of eight append-only episodes",
    "household, groups of a learner": "the same, played by the linear policy after 45 updates",
    "household, tree": "two groups of four, and six branches from a state of each",
    "household, window": "two groups of four episodes, every turn a prompt of its own (the chat template)",
    "household, alone": "sixteen append-only episodes of as many tasks: nothing shared",
    "search_qa, groups": "four groups of eight append-only episodes",
}
SUITES: dict[str, dict[str, Any]] = {"household": {"room": "small", "train": 60}, "search_qa": {}}
SEED = 0


def record(batch: str, turns: int) -> tuple[Sequence[Rollout], str]:
    """Episodes of the linear policy, which untrained takes all listed commands alike, and the name of their prompt."""
    environment, _, kind = batch.partition(", ")
    suite: TaskSuite = make_suite(environment, **SUITES[environment])
    tasks, policy = suite.tasks("train"), _learner(suite) if "learner" in kind else LinearPolicy()
    horizon = min(turns, 4) if environment == "search_qa" else turns
    if kind == "alone":
        return collect(policy, suite, tasks[:16], group_size=1, horizon=horizon, seed=[SEED]).rollouts, "compact"
    if kind == "window":
        return collect(policy, suite, tasks[:2], group_size=4, horizon=horizon, seed=[SEED]).rollouts, "chat"
    if kind == "tree":
        played = collect(policy, suite, tasks[:2], group_size=4, horizon=horizon, seed=[SEED], keep_places=True)
        openings = [Opening(played.rollouts[place], horizon // 2, 6) for place in (0, 4)]
        try:
            grown = branch(policy, suite, openings, horizon=horizon, seed=[SEED, 1], kept=played.kept)
        finally:
            played.close()
        return [*played.rollouts, *grown.rollouts], "compact"
    count = 4 if environment == "search_qa" else 2
    return collect(policy, suite, tasks[:count], group_size=8, horizon=horizon, seed=[SEED]).rollouts, "compact"


def _learner(suite: TaskSuite) -> LinearPolicy:
    """The linear policy where it wins about one game in five: groups then part later than at random."""
    tasks, policy = suite.tasks("train"), LinearPolicy()
    for update in range(45):
        chosen = [tasks[(8 * update + place) % len(tasks)] for place in range(8)]
        played = collect(policy, suite, chosen, group_size=8, horizon=10, seed=[SEED, update]).rollouts
        advantage = assign(Turns.from_episodes(rollout.episode for rollout in played), "gigpo").advantage
        policy.update(played, advantage, UpdateSettings(lr=0.02), [SEED, update])
    return policy


def rows(batch: str, model: Path, turns: int) -> list[PolicySequence]:
    """The batch as token sequences of a model, decoded freely: response tokens are learnt over the whole vocabulary.

    Log-probabilities under the behaviour policy are those of a token in a hundred; no time depends on them.
    """
    rollouts, prompt = record(batch, turns)
    conversation = Conversation(load_template(prompt), Codec(AutoTokenizer.from_pretrained(model)))
    found: list[PolicySequence] = []
    before = 0
    for rollout in rollouts:
        for sequence in imitation_sequences(rollout, np.ones(len(rollout.responses)), 0.0, conversation):
            (place,) = np.nonzero(sequence.response)
            turn = before + np.cumsum(np.diff(place, prepend=place[0]) > 1)
            before = int(turn[-1]) + 1
            found.append(
                PolicySequence(
                    tokens=sequence.tokens[: place[-1] + 1],
                    place=place.astype(np.int32),
                    target=sequence.target[place],
                    turn=turn.astype(np.int32),
                    logprob=np.full(len(place), np.log(0.01)),
                    temperature=np.ones(len(place)),
                    allowed=np.zeros(0, dtype=np.int32),
                    allowed_count=np.zeros(len(place), dtype=np.int32),
                )
            )
    return found


def advantages(sequences: Sequence[PolicySequence]) -> np.ndarray:
    """One per turn."""
    return np.random.default_rng(SEED).normal(size=1 + max(int(one.turn[-1]) for one in sequences))


def describe(sequences: Sequence[PolicySequence]) -> dict[str, int]:
    """Rows and tokens, with padding, without, and each once."""
    lengths = [len(one.tokens) for one in sequences]
    packed = pack([sequences[index] for index in prefix_order(sequences)])
    return {
        "rows": len(lengths),
        "tokens": sum(lengths),
        "padded": len(lengths) * max(lengths),
        "distinct": len(packed.tokens),
        "learnt": sum(len(one.target) for one in sequences),
    }
