"""Environments that misbehave: a recorded reason in time, siblings that never notice, nothing left behind."""

from __future__ import annotations

import gc
import inspect
import subprocess
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepcredit.training.loop
import stepcredit.training.rounds
from rollouts.stand_ins import MendedSuite, RandomPolicy, Wrapped
from stepcredit.core.errors import EnvironmentFaultError
from stepcredit.core.files import read_episodes
from stepcredit.environments.chain import ChainEnvironment, ChainSuite
from stepcredit.rollouts.branch import branch
from stepcredit.rollouts.calls import attempt_all
from stepcredit.rollouts.collect import Collected, collect
from stepcredit.rollouts.play import STEP_TIMEOUT
from stepcredit.training.config import make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import RunFolder

FINE: dict[str, Any] = {"admissible": ("open red door",), "won": False}
HELD = threading.Event()
"""Set when a test that hung an environment is over."""


def collected(suite: ChainSuite, **options: Any) -> Collected:
    tasks = suite.tasks("train")[:2]
    values = {"group_size": 3, "horizon": 6, "seed": [7], **options}
    return collect(RandomPolicy(), suite, tasks, **values)


def stops(found: Collected) -> dict[str, str]:
    """Episode → why it stopped, or for those without a turn the reason."""
    said = {one.episode.episode: str(one.episode.extra.get("error") or one.episode.stop) for one in found.rollouts}
    return said | {failure.episode: failure.reason for failure in found.failures}


def raises(error: BaseException) -> Callable[[], Any]:
    def misbehave() -> Any:
        raise error

    return misbehave


def hangs() -> Any:
    HELD.wait(120)
    return "too late", 1.0, True, False, {"admissible": (), "won": True}


@pytest.mark.parametrize(
    ("misbehave", "reason"),
    [
        (raises(RuntimeError("burst")), "RuntimeError: burst"),
        (raises(MemoryError()), "MemoryError: "),
        (raises(RecursionError("deep")), "RecursionError: deep"),
        (raises(SystemExit(3)), "SystemExit: 3"),
        (hangs, "no answer within 0.5 s"),
        (lambda: ("o", float("nan"), False, False, FINE), "reward is nan; expected a finite number"),
        (lambda: ("o", 1e308, False, False, FINE), "scaled reward is inf; expected a finite number"),
        (lambda: ("o", "1.0", False, False, FINE), "reward is of type str; expected a number"),
        (lambda: ("o", 10**400, False, False, FINE), "OverflowError: "),
        (lambda: ("o", 0.0, "no", False, FINE), "terminated is of type str; expected true or false"),
        (lambda: ("o", 0.0, False, 2, FINE), "truncated is of type int; expected true or false"),
        (lambda: ("o", 0.0, np.zeros(2), False, FINE), "ValueError: "),
        (lambda: ("o", 0.0, False, False, {**FINE, "won": None}), "won is of type NoneType; expected true or false"),
        (lambda: ("o", 0.0, False, False, {**FINE, "score": 1.5}), "score is 1.5; expected a number in [0, 1]"),
        (lambda: (b"o", 0.0, False, False, FINE), "observation is of type bytes; expected str"),
        (lambda: None, "step answered of type NoneType"),
    ],
)
def test_a_fault_is_recorded_and_its_siblings_play_what_they_would_have_played(
    misbehave: Callable[[], Any], reason: str
) -> None:
    """The second of six episodes misbehaves at its second step."""

    class Faulty(Wrapped):
        def step(self, action: str) -> Any:
            answer = super().step(action)
            return misbehave() if self is suite.made[1] and self.steps == 2 else answer

    HELD.clear()
    suite = MendedSuite(Faulty)
    began = time.monotonic()
    try:
        hurt = collected(suite, step_timeout=0.5)
    finally:
        HELD.set()
    assert time.monotonic() - began < 60
    peaceful = collected(ChainSuite())
    said = stops(hurt)
    assert reason in said.pop("train/0#1")
    assert said.items() <= stops(peaceful).items()
    untouched = {one.episode.episode: one.episode for one in peaceful.rollouts}
    for rollout in hurt.rollouts:
        if rollout.episode.stop != "error":
            assert rollout.episode == untouched[rollout.episode.episode]
    assert [environment.closed for environment in suite.made] == [1, int(misbehave is not hangs), 1, 1, 1, 1]


def test_truths_and_numbers_of_numpy_are_welcome() -> None:
    class Numpy(Wrapped):
        def step(self, action: str) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, np.float32(reward), np.bool_(terminated), np.bool_(truncated), info

    assert collected(MendedSuite(Numpy)) == collected(ChainSuite())


def test_several_hang_at_once_and_later_ones_still_get_their_turn() -> None:
    HELD.clear()
    calls = [(lambda: HELD.wait(120)) if number % 3 == 0 else partial(int, number) for number in range(9)]
    began = time.monotonic()
    try:
        for concurrency in (1, 4):
            results = attempt_all(calls, concurrency=concurrency, timeout=0.1)
            assert [one for one in results if isinstance(one, int)] == [1, 2, 4, 5, 7, 8]
            assert [getattr(one, "hung", False) for one in results] == [number % 3 == 0 for number in range(9)]
    finally:
        HELD.set()
    assert time.monotonic() - began < 60


def test_every_collection_has_a_time_limit_unless_told_otherwise() -> None:
    for function in (collect, branch):
        assert inspect.signature(function).parameters["step_timeout"].default == STEP_TIMEOUT


def test_one_environment_that_starts_elsewhere_is_told_from_its_siblings() -> None:
    """Same task, another first observation: it fails; the others are what they are without it."""

    class Elsewhere(Wrapped):
        def reset(self) -> Any:
            observation, info = super().reset()
            return (f"{observation} It rains." if self is suite.made[0] else observation), info

    suite = MendedSuite(Elsewhere)
    found = collected(suite)
    assert [(one.episode, one.reason) for one in found.failures] == [
        ("train/0#0", "environment, start: another first observation than its siblings'")
    ]
    assert len(found.rollouts) == 5
    assert [environment.closed for environment in suite.made] == [1] * 6


def test_what_an_environment_would_answer_after_its_end_is_never_asked() -> None:
    class Endless(Wrapped):
        """Pays for ever; says it is over once, at the second step."""

        def step(self, action: str) -> Any:
            self.steps += 1
            return f"step {self.steps}", 1.0, self.steps == 2, False, {**FINE, "won": self.steps >= 2}

    suite = MendedSuite(Endless)
    found = collected(suite)
    assert {(rollout.episode.stop, len(rollout.episode.turns)) for rollout in found.rollouts} == {("won", 2)}
    assert [environment.steps for environment in suite.made] == [2] * 6


def test_a_worker_that_dies_takes_its_episode_along_and_leaves_no_process() -> None:
    class Housed(Wrapped):
        """Asks a process of its own what to do, which one of them loses at its second step."""

        def __init__(self, environment: ChainEnvironment) -> None:
            super().__init__(environment)
            self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def step(self, action: str) -> Any:
            self.steps += 1
            if self is suite.made[1] and self.steps == 2:
                self.process.kill()
                self.process.wait()
            self.process.stdin.write(action + "\n")
            self.process.stdin.flush()
            return self.inner.step(self.process.stdout.readline().rstrip("\n"))

        def close(self) -> None:
            super().close()
            self.process.communicate()
            raise RuntimeError("closing fails, too")

    suite = MendedSuite(Housed)
    found = collected(suite)
    said = stops(found)
    assert said.pop("train/0#1").startswith("environment, turn 1: ")
    assert set(said.values()) <= {"won", "horizon"}
    assert len(said) == 5
    assert [environment.process.returncode for environment in suite.made] == [0, -9, 0, 0, 0, 0]


def test_environments_that_hold_on_to_memory_are_let_go() -> None:
    gone = []

    class Leaky(Wrapped):
        def __init__(self, environment: ChainEnvironment) -> None:
            super().__init__(environment)
            self.hoard = np.zeros(1 << 20)
            gone.append(weakref.ref(self))

    class Forgetful(ChainSuite):
        def make(self, task: Any) -> Any:
            return Leaky(super().make(task))  # type: ignore[arg-type]

    found = collected(Forgetful())
    gc.collect()
    assert len(found.rollouts) == 6
    assert [reference() for reference in gone] == [None] * 6


def test_memory_is_flat() -> None:
    """The first hundred episodes warm up; the next four hundred add next to nothing. 50,000: benchmarks/soak.py."""
    suite = ChainSuite()

    def play() -> None:
        collected(suite, group_size=50, horizon=4)

    play()
    gc.collect()
    tracemalloc.start()
    try:
        play()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(4):
            play()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000


# In training.

SMALL: dict[str, Any] = {
    "model": "linear",
    "environment": "stepcredit.environments.chain:ChainSuite",
    "updates": 2,
    "tasks_per_update": 2,
    "group_size": 3,
    "horizon": 4,
    "eval_every": 0,
}


def train_with(monkeypatch: pytest.MonkeyPatch, folder: Path, hanging: int) -> list[dict[str, Any]]:
    """Train in chains of which the first of each update hang; the lines of the updates."""

    class Hanging(Wrapped):
        def step(self, action: str) -> Any:
            number = next(place for place, made in enumerate(suite.made) if made is self)
            return hangs() if number % 6 < hanging and self.steps >= 1 else super().step(action)

    suite = MendedSuite(Hanging)
    monkeypatch.setattr(stepcredit.training.loop, "make_suite", lambda name, **options: suite)
    monkeypatch.setattr(stepcredit.training.rounds, "collect", partial(collect, step_timeout=0.2))
    HELD.clear()
    try:
        with RunFolder(folder) as run:
            train(make_config(SMALL), run, Silent())
            return [line for line in run.metrics() if line["kind"] == "update"]
    finally:
        HELD.set()


def test_a_run_goes_on_while_few_environments_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = train_with(monkeypatch, tmp_path, hanging=2)
    assert [(line["update"], line["failures"]) for line in lines] == [(1, 2), (2, 2)]
    episodes = list(read_episodes(tmp_path / "rollouts" / "000002.jsonl.gz"))
    reasons = {episode.extra["error"] for episode in episodes if episode.stop == "error"}
    assert reasons == {"environment, turn 1: no answer within 0.2 s"}


def test_a_run_stops_with_the_reason_where_most_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = (
        r"4 episodes of an update failed \(67%, expected at most 50%\); the first: environment, turn 1: no answer"
    )
    with pytest.raises(EnvironmentFaultError, match=expected):
        train_with(monkeypatch, tmp_path, hanging=4)
