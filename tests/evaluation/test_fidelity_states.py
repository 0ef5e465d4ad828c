"""Environments that tell their whole state: same play, finer keys."""

from __future__ import annotations

import pytest

from stepcredit.core.errors import InputError
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.chain import ChainSuite
from stepcredit.evaluation.fidelity_states import TrueStates
from stepcredit.policy.linear import LinearPolicy
from stepcredit.rollouts.collect import collect


def test_the_same_seed_plays_the_same_episodes_with_other_keys() -> None:
    suite = make_suite("household", train=6, valid_seen=0, valid_unseen=0)
    tasks = suite.tasks("train")[:2]
    plain, keyed = (
        collect(LinearPolicy(2**10), one, tasks, group_size=3, horizon=12, seed=(0,)).rollouts
        for one in (suite, TrueStates(suite))
    )
    by_state: dict[tuple[str, str], set[str]] = {}
    for left, right in zip(plain, keyed, strict=True):
        for seen, told in zip(left.episode.turns, right.episode.turns, strict=True):
            assert (seen.observation, seen.action) == (told.observation, told.action)
            assert seen.state is None
            assert told.state is not None
            by_state.setdefault((right.episode.task, told.state), set()).add(told.observation)
    starts = [rollout.episode.turns[0].state for rollout in keyed]
    assert len(set(starts[:3])) == len(set(starts[3:])) == 1
    assert starts[0] != starts[3]
    # Looking around changes nothing but the text: some state is seen in several ways.
    assert max(map(len, by_state.values())) > 1


def test_snapshots_and_the_expert_pass_through() -> None:
    suite = TrueStates(ChainSuite(length=2))
    environment = suite.make(suite.tasks("train")[0])
    _, start = environment.reset()
    before = environment.snapshot()
    command = suite.expert(environment).act()
    assert command is not None
    _, reward, _, _, after = environment.step(command)
    assert reward == 0.0
    assert start["state"] != after["state"]
    environment.restore(before)
    assert environment.step("nonsense")[4]["state"] == start["state"]
    environment.close()


def test_an_environment_without_snapshots_is_refused() -> None:
    suite = TrueStates(ChainSuite(snapshots=False))
    with pytest.raises(InputError, match="has no snapshots"):
        suite.make(suite.tasks("train")[0])
