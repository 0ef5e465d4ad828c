"""Environments in a pool of processes: the same texts as here, time limits, and no episode lost with a process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from stepcredit.core.errors import EnvironmentFaultError, OptionError
from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.engines.pool import EnvironmentPool, PooledSuite

OPTIONS = {"families": ["pick"], "train": 2, "valid_seen": 1, "valid_unseen": 1}


@pytest.fixture(scope="module")
def suite() -> Iterator[PooledSuite]:
    pooled = PooledSuite("household", OPTIONS, processes=1)
    yield pooled
    pooled.pool.close()


def process_of(pool: EnvironmentPool) -> int:
    (worker,) = pool._workers
    assert worker._process is not None
    return worker._process.pid


def test_texts_are_those_of_the_suite_itself(suite: PooledSuite) -> None:
    here = make_suite("household", **OPTIONS)
    task = here.tasks("train")[0]
    pooled, own = suite.make(task), here.make(task)
    observation, info = pooled.reset()
    expected, expected_info = own.reset()
    assert observation == expected
    for _ in range(4):
        command = info["admissible"][-1]
        assert list(info["admissible"]) == list(expected_info["admissible"])
        observation, *rest, info = pooled.step(command)
        expected, *expected_rest, expected_info = own.step(command)
        assert (observation, rest, info["won"]) == (expected, expected_rest, expected_info["won"])
    pooled.close()
    pooled.close()
    assert suite.tasks("train") == here.tasks("train")


def test_an_environment_survives_its_process(suite: PooledSuite) -> None:
    task = suite.tasks("train")[0]
    first, second = suite.make(task), suite.make(task)
    first.reset()
    _, info = second.reset()
    commands = [command for command in info["admissible"] if command.startswith("go to")][:2]
    first.step(commands[0])
    second.step(commands[0])
    os.kill(process_of(suite.pool), signal.SIGKILL)
    with pytest.raises(EnvironmentFaultError, match="its process ended"):
        first.step(commands[1])
    # The other one is made anew and brought back to where it was.
    seen = second.step(commands[1])
    reference = make_suite("household", **OPTIONS).make(task)
    reference.reset()
    reference.step(commands[0])
    assert seen[0] == reference.step(commands[1])[0]
    first.close()
    second.close()


def test_a_step_that_takes_too_long_ends_its_process(suite: PooledSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, other = suite.make(suite.tasks("train")[0]), suite.make(suite.tasks("train")[1])
    environment.reset()
    before = other.reset()
    (worker,) = suite.pool._workers
    process = process_of(suite.pool)
    os.kill(process, signal.SIGSTOP)  # an engine that hangs
    monkeypatch.setattr(worker, "_timeout", 0.2)
    with pytest.raises(EnvironmentFaultError, match=r"no answer within 0\.2 s"):
        environment.step("look")
    monkeypatch.setattr(worker, "_timeout", None)
    assert other.reset()[0] == before[0]
    assert process_of(suite.pool) != process
    environment.close()
    other.close()


def test_what_an_environment_raises_is_its_own_fault(suite: PooledSuite) -> None:
    environment = suite.make(suite.tasks("train")[0])
    environment.reset()
    with pytest.raises(EnvironmentFaultError, match="Error"):
        environment.step(None)  # type: ignore[arg-type]
    assert environment.reset()[0]
    environment.close()


def test_an_idle_process_that_made_enough_is_replaced() -> None:
    pool = EnvironmentPool("household", OPTIONS, processes=1, recycle_after=1)
    task = make_suite("household", **OPTIONS).tasks("train")[0]
    environment = pool.make(task)
    environment.reset()
    (worker,) = pool._workers
    assert worker._process is not None
    environment.close()
    assert worker._process is None
    pool.close()


def test_environments_are_spread_over_the_processes() -> None:
    pool = EnvironmentPool("household", OPTIONS, processes=3)
    task = make_suite("household", **OPTIONS).tasks("train")[0]
    environments = [pool.make(task) for _ in range(7)]
    assert [worker.open for worker in pool._workers] == [3, 2, 2]
    environments[0].close()
    assert [worker.open for worker in pool._workers] == [2, 2, 2]
    assert all(worker._process is None for worker in pool._workers)  # nothing was played, nothing was started


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="processes is 0"):
        EnvironmentPool("household", OPTIONS, processes=0)
    with pytest.raises(OptionError, match="step_timeout 0"):
        EnvironmentPool("household", OPTIONS, processes=1, step_timeout=0)
