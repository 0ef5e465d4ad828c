"""Branching: the same suffixes from snapshots, kept places and replays; deadlines, divergences, faults, and trees."""

from __future__ import annotations

from typing import Any

import pytest

from stepcredit.core.episodes import Parent
from stepcredit.core.errors import OptionError
from stepcredit.core.turns import Turns
from stepcredit.environments.chain import ChainEnvironment, ChainSuite, SnapshotChainEnvironment
from stepcredit.environments.protocol import Info
from stepcredit.rollouts.branch import Branched, Divergence, Opening, branch
from stepcredit.rollouts.collect import Collected, collect
from stepcredit.rollouts.types import Request, Rollout

from .stand_ins import MendedSuite, RandomPolicy, ScriptedPolicy, Wrapped

HORIZON = 8


def roots(suite: ChainSuite, **options: Any) -> Collected:
    return collect(RandomPolicy(), suite, suite.tasks("train")[:3], group_size=2, horizon=HORIZON, seed=[1], **options)


def openings(rollouts: tuple[Rollout, ...]) -> list[Opening]:
    """The middle of every root, and the start of the first."""
    chosen = [Opening(rollout, len(rollout.episode.turns) // 2, 3) for rollout in rollouts]
    return [Opening(rollouts[0], 0, 2), *chosen]


def branched(suite: ChainSuite, chosen: list[Opening], **options: Any) -> Branched:
    return branch(RandomPolicy(), suite, chosen, horizon=HORIZON, seed=[2], **options)


def chain(**options: Any) -> ChainSuite:
    return ChainSuite(length=4, doors=3, **options)


def test_snapshots_kept_places_and_replays_give_the_same_suffixes():
    collected = roots(chain(), keep_places=True)
    chosen = openings(collected.rollouts)
    expected = branched(chain(snapshots=False), chosen)
    assert sum(len(rollout.episode.turns) for rollout in expected.rollouts) > 40
    assert branched(chain(), chosen) == expected
    assert branched(chain(), chosen, kept=collected.kept) == expected
    assert branched(chain(), chosen, kept=collected.kept, concurrency=4) == expected
    assert branched(chain(snapshots=False), chosen, concurrency=4, step_timeout=60.0) == expected
    collected.close()


def test_suffixes_leave_from_the_realised_state():
    collected = roots(chain())
    result = branched(chain(), openings(collected.rollouts))
    by_name = {rollout.episode.episode: rollout for rollout in collected.rollouts}
    for rollout in result.rollouts:
        parent = rollout.episode.parent
        assert parent is not None
        root = by_name[parent.episode]
        assert rollout.episode.turns[0].observation == root.episode.turns[parent.turn].observation
        assert [(past.observation, past.action) for past in rollout.prefix] == [
            (turn.observation, turn.action) for turn in root.episode.turns[: parent.turn]
        ]
        assert [past.response for past in rollout.prefix] == list(root.responses[: parent.turn])
        assert rollout.goal == root.goal
        assert rollout.episode.extra["family"] == "chain"
    table = Turns.from_episodes(rollout.episode for rollout in (*collected.rollouts, *result.rollouts))
    assert table.is_forest
    assert table.depth.max() < HORIZON


def test_a_replayed_prefix_makes_no_turns():
    collected = roots(chain())
    [root] = collected.rollouts[:1]
    result = branched(chain(), [Opening(root, 3, 2)])
    assert [rollout.episode.episode for rollout in result.rollouts] == ["train/0#0@3.0", "train/0#0@3.1"]
    for rollout in result.rollouts:
        assert rollout.episode.parent == Parent("train/0#0", 3)
        assert len(rollout.episode.turns) == len(rollout.responses) <= HORIZON - 3
        assert len(rollout.prefix) == 3


def never_right(request: Request) -> str:
    colour = request.observation.split(" A ")[1].split()[0]
    return next(command for command in request.admissible if colour not in command)


@pytest.mark.parametrize("turn", [0, 3, HORIZON - 1])
def test_suffixes_keep_the_original_deadline(turn: int):
    suite = chain()
    policy = ScriptedPolicy(never_right)
    [root] = collect(policy, suite, suite.tasks("train")[:1], group_size=1, horizon=HORIZON, seed=[0]).rollouts
    result = branch(policy, suite, [Opening(root, turn, 1)], horizon=HORIZON, seed=[0])
    [suffix] = result.rollouts
    assert len(suffix.episode.turns) == HORIZON - turn
    assert suffix.episode.stop == "horizon"
    last = policy.rounds[-1][0]
    assert (len(last.history), last.horizon) == (HORIZON - 1, HORIZON)


def test_several_openings_play_in_one_batch():
    collected = roots(chain())
    chosen = openings(collected.rollouts)
    policy = ScriptedPolicy(never_right)
    result = branch(policy, chain(), chosen, horizon=HORIZON, seed=[0])
    assert len(policy.rounds[0]) == sum(opening.count for opening in chosen)
    assert [group.count for group in result.groups] == [opening.count for opening in chosen]
    assert all(group.complete and group.replayable for group in result.groups)


def test_a_branch_may_leave_a_branch():
    collected = roots(chain())
    root = collected.rollouts[0]
    first = branched(chain(), [Opening(root, 2, 2)])
    parent = first.rollouts[1]
    assert len(parent.episode.turns) > 2
    for suite in (chain(), chain(snapshots=False)):
        second = branched(suite, [Opening(parent, 2, 2)])
        assert [rollout.episode.episode for rollout in second.rollouts] == ["train/0#0@2.1@2.0", "train/0#0@2.1@2.1"]
        path = [turn.action for turn in root.episode.turns[:2]] + [turn.action for turn in parent.episode.turns[:2]]
        for rollout in second.rollouts:
            assert [past.action for past in rollout.prefix] == path
            assert rollout.episode.parent == Parent("train/0#0@2.1", 2)
            assert rollout.episode.turns[0].observation == parent.episode.turns[2].observation
            assert len(rollout.prefix) + len(rollout.episode.turns) <= HORIZON
    everything = (*collected.rollouts, *first.rollouts, *second.rollouts)
    assert Turns.from_episodes(rollout.episode for rollout in everything).depth.max() < HORIZON


class Drifting(Wrapped):
    """Shows something else from the given environment and step on."""

    first, step_number = 0, 2

    def __init__(self, environment: ChainEnvironment, number: int) -> None:
        super().__init__(environment)
        self.number = number

    def step(self, action: str) -> Any:
        observation, *rest = super().step(action)
        drifted = self.number >= self.first and self.steps >= self.step_number
        return (f"{observation} It rains." if drifted else observation, *rest)


def drifting_suite(first: int) -> MendedSuite:
    def mend(environment: ChainEnvironment) -> Wrapped:
        wrapped = Drifting(environment, len(suite.made))
        wrapped.first = first
        return wrapped

    suite = MendedSuite(mend, length=4, doors=3, snapshots=False)
    return suite


@pytest.mark.parametrize("first", [0, 1])
def test_a_divergence_makes_the_occurrence_not_replayable(first: int):
    """Whether the first replay differs or a later one: there is no branch of that occurrence at all."""
    collected = roots(chain())
    root, other = collected.rollouts[:2]
    suite = drifting_suite(first)
    result = branched(suite, [Opening(root, 3, 2), Opening(other, 1, 2)])
    expected = root.episode.turns[2].observation
    group, harmless = result.groups
    assert group.divergence == Divergence(2, expected, f"{expected} It rains.")
    assert (group.branches, group.complete, group.replayable) == ((), False, False)
    assert harmless.complete
    assert [rollout.episode.parent for rollout in result.rollouts] == [Parent(other.episode.episode, 1)] * 2
    assert [environment.closed for environment in suite.made] == [1] * len(suite.made)


def test_a_different_start_is_a_divergence():
    class Elsewhere(Wrapped):
        def reset(self) -> Any:
            _, info = super().reset()
            return "Somewhere else.", info

    collected = roots(chain())
    root = collected.rollouts[0]
    for turn in (0, 2):
        [group] = branched(MendedSuite(Elsewhere), [Opening(root, turn, 1)]).groups
        assert group.divergence == Divergence(0, root.episode.turns[0].observation, "Somewhere else.")


def test_a_task_that_ends_during_the_replay_is_a_divergence():
    collected = roots(chain())
    root = next(rollout for rollout in collected.rollouts if len(rollout.episode.turns) > 5)

    class Ending(Wrapped):
        def step(self, action: str) -> Any:
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, self.steps == 2, truncated, info

    [group] = branched(MendedSuite(Ending, length=4, doors=3), [Opening(root, 4, 1)]).groups
    assert group.divergence is not None
    assert group.divergence.depth == 2
    assert group.divergence.got.endswith("(the task ended)")


def test_a_replay_that_raises_is_a_fault_of_its_opening_alone():
    class Broken(Wrapped):
        def step(self, action: str) -> Any:
            if self is suite.made[0] and self.steps == 1:
                raise OSError("gone")
            return super().step(action)

    collected = roots(chain())
    suite = MendedSuite(Broken, length=4, doors=3)
    result = branched(suite, [Opening(rollout, 3, 1) for rollout in collected.rollouts[:2]])
    broken, fine = result.groups
    assert (broken.fault, broken.complete, broken.replayable) == ("OSError: gone", False, False)
    assert fine.complete
    assert [environment.closed for environment in suite.made] == [1, 1]


@pytest.mark.parametrize(("bad_step", "turns"), [(4, 1), (3, 0)])
def test_a_failed_suffix_is_recorded_and_its_group_not_complete(bad_step: int, turns: int):
    """The replay takes three steps; the second suffix then fails after ``turns`` turns."""

    class Failing(Wrapped):
        def step(self, action: str) -> Any:
            if suite.made[1:2] == [self] and self.steps == bad_step:
                raise OSError("gone")
            return super().step(action)

    suite = MendedSuite(Failing, length=4, doors=3)
    policy = ScriptedPolicy(never_right)
    [root] = collect(policy, chain(), chain().tasks("train")[:1], group_size=1, horizon=HORIZON, seed=[0]).rollouts
    result = branch(policy, suite, [Opening(root, 3, 3)], horizon=HORIZON, seed=[0])
    [group] = result.groups
    assert not group.complete
    assert group.replayable
    names = ["train/0#0@3.0", "train/0#0@3.1", "train/0#0@3.2"]
    if turns:
        assert list(group.branches) == names
        assert [rollout.episode.stop for rollout in result.rollouts] == ["horizon", "error", "horizon"]
        assert len(result.rollouts[1].episode.turns) == turns
        assert result.failures == ()
    else:
        assert list(group.branches) == [names[0], names[2]]
        assert [failure.episode for failure in result.failures] == [names[1]]


class Counting(SnapshotChainEnvironment):
    """Counts resets and closings of all chains."""

    resets, closed = 0, 0

    def reset(self) -> tuple[str, Info]:
        Counting.resets += 1
        return super().reset()

    def close(self) -> None:
        Counting.closed += 1


def test_snapshots_need_one_replay_an_occurrence_and_kept_places_none():
    class CountingSuite(ChainSuite):
        def make(self, task: Any) -> Any:
            environment = super().make(task)
            environment.__class__ = Counting
            return environment

    suite = CountingSuite(length=4, doors=3)
    collected = roots(suite, keep_places=True)
    assert (Counting.resets, Counting.closed) == (6, 0)
    chosen = openings(collected.rollouts)
    branched(suite, chosen)
    assert (Counting.resets, Counting.closed) == (6 + len(chosen), len(chosen))
    branched(suite, chosen, kept=collected.kept)
    assert (Counting.resets, Counting.closed) == (6 + len(chosen), len(chosen))
    collected.close()
    assert Counting.closed == len(chosen) + 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"turn": 99}, r"Cannot branch at turn 99 of 'train/0#0'; expected 0 to \d"),
        ({"turn": -1}, "Cannot branch at turn -1"),
        ({"count": 0}, "0 suffixes of 'train/0#0' asked for; expected at least 1"),
        ({"horizon": 2}, "Turn 2 of 'train/0#0' lies at depth 2; the deadline is 2 turns"),
        ({"twice": True}, "Turn 2 of 'train/0#0' is opened twice"),
    ],
)
def test_impossible_openings_are_refused(change: dict[str, Any], message: str):
    root = roots(chain()).rollouts[0]
    opening = Opening(root, change.get("turn", 2), change.get("count", 1))
    chosen = [opening, opening] if change.get("twice") else [opening]
    with pytest.raises(OptionError, match=message):
        branch(RandomPolicy(), chain(), chosen, horizon=change.get("horizon", HORIZON), seed=[0])


def test_no_openings_give_no_branches():
    assert branched(chain(), []) == Branched((), (), ())
