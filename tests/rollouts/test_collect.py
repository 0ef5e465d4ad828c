"""Collection: order, records, deadlines, determinism, and environments and responses that fail."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepcredit.core.errors import OptionError
from stepcredit.core.turns import Turns
from stepcredit.environments.chain import (
    ChainEnvironment,
    ChainSuite,
    SnapshotChainEnvironment,
    success_probability,
)
from stepcredit.environments.protocol import Info
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.types import Request, Response

from .stand_ins import MendedSuite, RandomPolicy, ScriptedPolicy, Wrapped

ROOT = Path(__file__).resolve().parents[2]


def right(request: Request) -> str:
    colour = request.observation.split(" A ")[1].split()[0]
    return f"open {colour} door"


def wrong(request: Request) -> str:
    return next(command for command in request.admissible if command != right(request))


def test_episodes_stand_task_by_task_with_stable_names():
    suite = ChainSuite()
    tasks = suite.tasks("train")[:2]
    collected = collect(ScriptedPolicy(right), suite, tasks, group_size=2, horizon=5, seed=[1])
    assert [rollout.episode.episode for rollout in collected.rollouts] == [
        "train/0#0", "train/0#1", "train/1#0", "train/1#1",
    ]  # fmt: skip
    assert [rollout.episode.task for rollout in collected.rollouts] == ["train/0"] * 2 + ["train/1"] * 2
    assert collected.failures == ()


def test_quotas_per_task_and_a_task_listed_twice():
    suite = ChainSuite()
    first, second = suite.tasks("train")[:2]
    collected = collect(ScriptedPolicy(right), suite, [first, second, first], group_size=[2, 0, 1], horizon=5, seed=[1])
    assert [rollout.episode.episode for rollout in collected.rollouts] == ["train/0#0", "train/0#1", "train/0#2"]
    Turns.from_episodes(rollout.episode for rollout in collected.rollouts)


def test_a_turn_carries_what_happened():
    suite = ChainSuite(length=2)
    policy = ScriptedPolicy(lambda request: "Jump" if not request.history else right(request).upper())
    [rollout] = collect(policy, suite, suite.tasks("train")[:1], group_size=1, horizon=5, seed=[3]).rollouts
    episode = rollout.episode
    assert [turn.valid for turn in episode.turns] == [False, True, True]
    assert [turn.penalty for turn in episode.turns] == [0.1, 0.0, 0.0]
    assert [turn.reward for turn in episode.turns] == [0.0, 0.0, 10.0]
    assert [turn.nll for turn in episode.turns] == [1.0] * 3
    assert episode.turns[0].logprobs == (-0.5, -1.5)
    assert episode.turns[0].entropy == 0.25
    assert episode.turns[0].action == "jump"
    assert episode.turns[0].extra == {"response": "Jump", "invalid": "the command is not admissible"}
    assert episode.turns[0].observation == episode.turns[1].observation
    assert episode.turns[2].observation.startswith("Place 2 of 2.")
    assert (episode.final_observation, episode.success, episode.stop) == ("You are outside.", True, "won")
    assert episode.extra == {"family": "chain", "goal": "Get outside."}
    assert [response.text for response in rollout.responses] == ["Jump", *(t.action.upper() for t in episode.turns[1:])]
    assert rollout.prefix == ()
    history = policy.rounds[2][0].history
    assert [(past.observation, past.action) for past in history] == [
        (turn.observation, turn.action) for turn in episode.turns[:2]
    ]
    assert policy.rounds[2][0].horizon == 5


def test_options_of_the_record():
    suite = ChainSuite(length=1)
    policy = ScriptedPolicy(
        lambda _: Response("<think>t</think><action>open red door</action>", (), 0.0, truncated=True)
    )
    [rollout] = collect(
        policy, suite, suite.tasks("train")[:1], group_size=1, horizon=1, seed=[3], response_format="think-action",
        keep_admissible=True, reward_scale=1.0, invalid_penalty=2.0,
    ).rollouts  # fmt: skip
    turn = rollout.episode.turns[0]
    assert turn.action == "open red door"
    assert turn.extra["admissible"] == ["open blue door", "open red door"]
    assert turn.extra["truncated"] is True
    assert (turn.nll, turn.logprobs) == (None, None)
    assert turn.penalty == 0.0


def test_strict_false_accepts_what_the_released_rule_accepts():
    suite = ChainSuite(length=1)
    for strict, penalty in ((True, 0.1), (False, 0.0)):
        [rollout] = collect(
            ScriptedPolicy(lambda _: "jump"), suite, suite.tasks("train")[:1], group_size=1, horizon=1, seed=[3],
            strict=strict,
        ).rollouts  # fmt: skip
        assert rollout.episode.turns[0].penalty == penalty


@pytest.mark.parametrize(
    ("say", "mistake", "stop", "turns", "success"),
    [(right, "stay", "won", 3, True), (wrong, "stay", "horizon", 4, False), (wrong, "fall", "lost", 1, False)],
)
def test_why_an_episode_stops(say: Any, mistake: Any, stop: str, turns: int, success: bool):
    suite = ChainSuite(mistake=mistake)
    [rollout] = collect(
        ScriptedPolicy(say), suite, suite.tasks("train")[:1], group_size=1, horizon=4, seed=[0]
    ).rollouts
    assert (rollout.episode.stop, len(rollout.episode.turns), rollout.episode.success) == (stop, turns, success)


def test_an_environments_own_limit_is_a_horizon():
    class Short(Wrapped):
        def step(self, action: str) -> Any:
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, self.steps == 2, info

    suite = MendedSuite(Short)
    [rollout] = collect(
        ScriptedPolicy(wrong), suite, suite.tasks("train")[:1], group_size=1, horizon=9, seed=[0]
    ).rollouts
    assert (rollout.episode.stop, len(rollout.episode.turns)) == ("horizon", 2)


def test_winning_on_the_last_turn_is_won():
    suite = ChainSuite(length=3)
    [rollout] = collect(
        ScriptedPolicy(right), suite, suite.tasks("train")[:1], group_size=1, horizon=3, seed=[0]
    ).rollouts
    assert rollout.episode.stop == "won"


def test_finished_episodes_leave_the_batch_and_progress_is_told():
    suite = ChainSuite(length=2)
    policy = ScriptedPolicy(lambda request: right(request) if request.key == 0 else wrong(request))
    seen: list[tuple[int, int]] = []
    collect(
        policy, suite, suite.tasks("train")[:1], group_size=3, horizon=4, seed=[7, 8], temperature=0.5,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert [[request.key for request in requests] for requests in policy.rounds] == [[0, 1, 2]] * 2 + [[1, 2]] * 2
    assert policy.finished == [0, 1, 2]
    assert policy.seeds == [((7, 8), 0.5)]
    assert seen == [(0, 3), (1, 3), (1, 3), (3, 3)]


def test_environments_are_closed():
    suite = MendedSuite(Wrapped)
    collect(ScriptedPolicy(right), suite, suite.tasks("train")[:2], group_size=2, horizon=5, seed=[0])
    assert [environment.closed for environment in suite.made] == [1] * 4


def test_environments_are_closed_when_the_policy_raises():
    def interrupted(request: Request) -> str:
        raise KeyboardInterrupt

    suite = MendedSuite(Wrapped)
    with pytest.raises(KeyboardInterrupt):
        collect(ScriptedPolicy(interrupted), suite, suite.tasks("train")[:2], group_size=1, horizon=5, seed=[0])
    assert [environment.closed for environment in suite.made] == [1, 1]


def collected_text(**options: Any) -> str:
    suite = ChainSuite(length=4, doors=3)
    collected = collect(
        RandomPolicy(), suite, suite.tasks("train")[:4], group_size=3, horizon=8, seed=[5, 6], **options
    )
    return repr([rollout.episode for rollout in collected.rollouts])


def test_the_same_seed_gives_the_same_rollouts_whatever_the_concurrency():
    assert collected_text() == collected_text() == collected_text(concurrency=4) == collected_text(step_timeout=60.0)


def test_the_same_seed_gives_the_same_rollouts_in_every_process():
    code = "from tests.rollouts.test_collect import collected_text; print(collected_text())"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {collected_text() + "\n"}


@pytest.mark.parametrize("mistake", ["stay", "fall"])
def test_success_matches_the_closed_form(mistake: Any):
    suite = ChainSuite(length=2, doors=2, mistake=mistake)
    collected = collect(RandomPolicy(), suite, suite.tasks("train")[:40], group_size=50, horizon=3, seed=[11])
    share = np.mean([rollout.episode.success for rollout in collected.rollouts])
    assert share == pytest.approx(success_probability(places=2, turns=3, right=0.5, mistake=mistake), abs=0.035)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"horizon": 0}, "horizon is 0; expected a finite number of at least 1"),
        ({"group_size": 0}, "group_size is 0; expected at least 1"),
        ({"group_size": [1, 2]}, "group_size has 2 numbers for 1 tasks"),
        ({"group_size": [-1]}, "group_size is -1; expected at least 0"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"invalid_penalty": -1.0}, "invalid_penalty is -1.0"),
        ({"step_timeout": 0.0}, "step_timeout is 0.0 s"),
        ({"response_format": "actoin"}, "Did you mean 'action'"),
        ({"reward_scale": float("inf")}, "reward_scale is inf"),
        ({"state_key": "observatio"}, "Did you mean 'observation'"),
    ],
)
def test_values_out_of_range_are_refused(option: dict[str, Any], message: str):
    suite = ChainSuite()
    options: dict[str, Any] = {"group_size": 1, "horizon": 3, "seed": [0], **option}
    with pytest.raises(OptionError, match=message):
        collect(ScriptedPolicy(right), suite, suite.tasks("train")[:1], **options)


def test_state_keys_of_the_environment_or_the_observation():
    class Keyed(Wrapped):
        def reset(self) -> Any:
            observation, info = super().reset()
            return observation, Info(**info, state="start")

    suite = MendedSuite(Keyed)
    task = suite.tasks("train")[:1]
    [rollout] = collect(ScriptedPolicy(right), suite, task, group_size=1, horizon=5, seed=[0]).rollouts
    assert [turn.state for turn in rollout.episode.turns] == ["start", None, None]
    [rollout] = collect(
        ScriptedPolicy(right), suite, task, group_size=1, horizon=5, seed=[0], state_key="observation"
    ).rollouts
    assert [turn.state for turn in rollout.episode.turns] == [None] * 3


# Failing environments. The second episode of three misbehaves at its third step; the others must not notice.

OK: Info = {"admissible": ("a",), "won": False}


def answers(*answer: Any) -> Any:
    def misbehave() -> Any:
        return answer if len(answer) != 1 else answer[0]

    return misbehave


def raises(error: BaseException) -> Any:
    def misbehave() -> Any:
        raise error

    return misbehave


@pytest.mark.parametrize(
    ("misbehave", "reason"),
    [
        (raises(ValueError("boom\nbang")), "ValueError: boom bang"),
        (raises(AssertionError()), "AssertionError: "),
        (raises(RuntimeError("x" * 1000)), "RuntimeError: " + "x" * 286),
        (answers("o", float("nan"), False, False, OK), "ValueError: reward is nan; expected a finite number"),
        (answers("o", float("inf"), False, False, OK), "ValueError: reward is inf"),
        (answers("o", "much", False, False, OK), "TypeError: reward is of type str; expected a number"),
        (answers("o", None, False, False, OK), "TypeError: reward is of type NoneType"),
        (answers(7, 0.0, False, False, OK), "TypeError: observation is of type int; expected str"),
        (answers("\ud800", 0.0, False, False, OK), "UnicodeEncodeError: "),
        (answers("o", 0.0, False, OK), "TypeError: step answered of type tuple; expected (observation, reward"),
        (answers(None), "TypeError: step answered of type NoneType"),
        (answers("o", 0.0, False, False, None), "TypeError: info lacks admissible or won"),
        (answers("o", 0.0, False, False, {"won": False}), "TypeError: info lacks admissible or won"),
        (answers("o", 0.0, False, False, {**OK, "admissible": "look"}), "TypeError: info['admissible'] is of type str"),
        (answers("o", 0.0, False, False, {**OK, "admissible": [1]}), "TypeError: info['admissible'] is of type list"),
        (answers("o", 0.0, False, False, {**OK, "score": float("nan")}), "ValueError: score is nan"),
        (answers("o", 0.0, False, False, {**OK, "state": 3}), "TypeError: state is of type int"),
    ],
)
def test_a_failing_environment_ends_its_own_episode(misbehave: Any, reason: str):
    class Failing(Wrapped):
        def step(self, action: str) -> Any:
            answer = super().step(action)
            return misbehave() if self is suite.made[1] and self.steps == 3 else answer

    suite = MendedSuite(Failing)
    collected = collect(ScriptedPolicy(wrong), suite, suite.tasks("train")[:1], group_size=3, horizon=5, seed=[0])
    first, second, third = (rollout.episode for rollout in collected.rollouts)
    assert [first.stop, second.stop, third.stop] == ["horizon", "error", "horizon"]
    assert [len(first.turns), len(second.turns), len(third.turns)] == [5, 2, 5]
    assert second.extra["error"].startswith(f"environment, turn 2: {reason}")
    assert second.final_observation == second.turns[0].observation
    assert len(collected.rollouts[1].responses) == 2
    assert collected.failures == ()
    assert [environment.closed for environment in suite.made] == [1] * 3


@pytest.mark.parametrize("where", ["make", "reset", "first step"])
def test_an_episode_without_a_turn_is_reported_and_dropped(where: str):
    class Failing(Wrapped):
        def __init__(self, environment: Any) -> None:
            super().__init__(environment)
            self.bad = len(suite.made) == 0
            if self.bad and where == "make":
                suite.made.append(None)
                raise ValueError("no such file")

        def reset(self) -> Any:
            return ("o",) if self.bad and where == "reset" else super().reset()

        def step(self, action: str) -> Any:
            if self.bad:
                raise OSError("gone")
            return super().step(action)

        def close(self) -> None:
            raise RuntimeError("closing fails too")

    suite = MendedSuite(Failing)
    collected = collect(ScriptedPolicy(right), suite, suite.tasks("train")[:1], group_size=2, horizon=5, seed=[0])
    assert [rollout.episode.episode for rollout in collected.rollouts] == ["train/0#1"]
    [failure] = collected.failures
    assert (failure.task, failure.episode) == ("train/0", "train/0#0")
    assert (
        failure.reason
        == {
            "make": "environment, start: ValueError: no such file",
            "reset": "environment, start: TypeError: reset answered of type tuple; expected (observation, info)",
            "first step": "environment, turn 0: OSError: gone",
        }[where]
    )


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response("", (), 0.0, failure="the prompt has 9 tokens more than fit"), "the prompt has 9 tokens more"),
        (Response("look", (-1.0, float("nan")), 0.0), "a log-probability is not finite"),
        (Response("look", (-1.0,), float("inf")), "the entropy is not finite"),
        (Response("look \ud800", (-1.0,), 0.0), "surrogates not allowed"),
    ],
)
def test_an_unusable_response_ends_its_own_episode(response: Response, reason: str):
    suite = ChainSuite()
    policy = ScriptedPolicy(
        lambda request: response if request.key == 0 and len(request.history) == 1 else wrong(request)
    )
    collected = collect(policy, suite, suite.tasks("train")[:1], group_size=2, horizon=4, seed=[0])
    first, second = (rollout.episode for rollout in collected.rollouts)
    assert (first.stop, len(first.turns), second.stop, len(second.turns)) == ("error", 1, "horizon", 4)
    assert first.extra["error"].startswith("response: ")
    assert reason in first.extra["error"]


def test_a_hanging_environment_is_left_behind():
    release = threading.Event()

    class Hanging(Wrapped):
        def step(self, action: str) -> Any:
            if self is suite.made[0] and self.steps == 1:
                release.wait()
            return super().step(action)

    suite = MendedSuite(Hanging)
    try:
        collected = collect(
            ScriptedPolicy(wrong), suite, suite.tasks("train")[:1], group_size=3, horizon=4, seed=[0], concurrency=2,
            step_timeout=0.2,
        )  # fmt: skip
    finally:
        release.set()
    first, second, third = (rollout.episode for rollout in collected.rollouts)
    assert first.extra["error"] == "environment, turn 1: no answer within 0.2 s"
    assert (first.stop, len(first.turns)) == ("error", 1)
    assert [len(second.turns), len(third.turns)] == [4, 4]
    assert [environment.closed for environment in suite.made] == [0, 1, 1]


def test_a_hanging_environment_is_not_kept():
    release = threading.Event()

    class Hanging(SnapshotChainEnvironment):
        def step(self, action: str) -> Any:
            if self is suite.made[0] and self.right_command != action:
                release.wait()
            return super().step(action)

    def hang(environment: ChainEnvironment) -> ChainEnvironment:
        environment.__class__ = Hanging
        return environment

    suite = MendedSuite(hang)
    policy = ScriptedPolicy(lambda request: right(request) if not request.history or request.key else wrong(request))
    try:
        collected = collect(
            policy, suite, suite.tasks("train")[:1], group_size=2, horizon=4, seed=[0], step_timeout=0.2,
            keep_places=True,
        )  # fmt: skip
    finally:
        release.set()
    assert [len(rollout.episode.turns) for rollout in collected.rollouts] == [1, 3]
    assert {name: len(kept.places) for name, kept in collected.kept.items()} == {"train/0#1": 3}


def test_the_last_score_is_the_episodes():
    class Scored(Wrapped):
        def step(self, action: str) -> Any:
            *answer, info = super().step(action)
            return *answer, {**info, "score": np.float32(0.5)}

    suite = MendedSuite(Scored)
    for horizon in (1, 3):
        [rollout] = collect(
            ScriptedPolicy(right), suite, suite.tasks("train")[:1], group_size=1, horizon=horizon, seed=[0]
        ).rollouts
        assert type(rollout.episode.score) is float
        assert rollout.episode.score == 0.5


def test_threads_step_several_environments_at_once():
    together = threading.Barrier(3, timeout=30)

    class Meeting(Wrapped):
        def step(self, action: str) -> Any:
            together.wait()
            return super().step(action)

    suite = MendedSuite(Meeting)
    collected = collect(
        ScriptedPolicy(wrong), suite, suite.tasks("train")[:1], group_size=3, horizon=2, seed=[0], concurrency=3
    )
    assert [rollout.episode.stop for rollout in collected.rollouts] == ["horizon"] * 3


def test_no_tasks_give_no_rollouts():
    suite = ChainSuite()
    assert collect(ScriptedPolicy(right), suite, [], group_size=2, horizon=2, seed=[0]).rollouts == ()
