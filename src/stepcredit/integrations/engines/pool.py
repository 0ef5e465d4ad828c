"""A pool of processes that play environments: bounded in number, each step bounded in time, replaced when lost.

A text environment is small, so one process holds many of them. A call that takes too long ends its process; the other
environments in it are made anew in the next one and brought back by replaying their commands, since the same task gives
the same texts in every process.
"""

from __future__ import annotations

import itertools
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from stepcredit.core.errors import EnvironmentFaultError, OptionError
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import Environment, Expert, Info, Task

_START_SECONDS = 300.0
"""How long a process may take until its suite is read."""
_CHUNK = 1 << 16


class EnvironmentPool:
    """Processes that play environments of one suite; calls from many threads at once are welcome.

    Args:
        suite: name in the catalogue of environments.
        options: of the suite.
        processes: how many; a few more than there are cores helps nobody.
        step_timeout: seconds one call may take; None for no limit. Waiting for a process that is busy does not count.
        recycle_after: environments a process makes before it is replaced, once nothing is open in it: what engines
            leak ends with it.

    Raises:
        OptionError: fewer than one process, or a limit that is not positive.
    """

    def __init__(
        self,
        suite: str,
        options: Mapping[str, Any],
        *,
        processes: int,
        step_timeout: float | None = None,
        recycle_after: int = 512,
    ) -> None:
        if processes < 1 or recycle_after < 1 or not (step_timeout is None or step_timeout > 0):
            raise OptionError(
                f"processes is {processes}, recycle_after {recycle_after}, step_timeout {step_timeout}; "
                f"expected at least 1, at least 1, and none or more than 0 s."
            )
        opening = orjson.dumps({"suite": suite, "options": dict(options)})
        self._workers = [_Worker(opening, step_timeout, recycle_after) for _ in range(processes)]
        self._choosing = threading.Lock()
        self._keys = itertools.count()

    def make(self, task: Task) -> Environment:
        """An environment for a task, in the process with the fewest open ones."""
        with self._choosing:
            worker = min(self._workers, key=lambda one: one.open)
            worker.count(+1)
            return PooledEnvironment(worker, task, str(next(self._keys)))

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end()


class PooledSuite:
    """A suite whose environments are played in a pool; all else is the suite's own.

    Args:
        suite: name in the catalogue of environments.
        options: of the suite.
        processes, step_timeout: as for ``EnvironmentPool``.
    """

    def __init__(
        self, suite: str, options: Mapping[str, Any], *, processes: int, step_timeout: float | None = None
    ) -> None:
        self._suite = make_suite(suite, **options)
        self.pool = EnvironmentPool(suite, options, processes=processes, step_timeout=step_timeout)
        self.name = self._suite.name
        self.horizon = self._suite.horizon
        self.warnings = self._suite.warnings

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        return self._suite.splits()

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split in their fixed order."""
        return self._suite.tasks(split)

    def make(self, task: Task) -> Environment:
        """An environment in the pool."""
        return self.pool.make(task)

    def expert(self, environment: Environment) -> Expert:
        """Not here: an expert needs the environment's own state.

        Raises:
            OptionError: always.
        """
        raise OptionError("An environment in a pool has no expert; ask the suite itself.")

    def entities(self) -> tuple[str, ...]:
        """Names that read as one word to the tiny model's tokenizer."""
        return self._suite.entities()


class PooledEnvironment:
    """An environment that lives in a process of a pool; see ``environments.protocol.Environment``."""

    def __init__(self, worker: _Worker, task: Task, key: str) -> None:
        self.task = task
        self._worker = worker
        self._key = key
        self._process = -1
        self._actions: list[str] = []
        self._closed = False

    def reset(self) -> tuple[str, Info]:
        """Back to the start."""
        self._actions = []
        with self._worker.lock:
            self._be_there()
            observation, info = self._worker.call({"call": "reset", "key": self._key})
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command.

        Raises:
            EnvironmentFaultError: the environment raised, did not answer in time, or its process ended.
        """
        with self._worker.lock:
            self._be_there()
            answer = self._worker.call({"call": "step", "key": self._key, "action": action})
        self._actions.append(action)
        observation, reward, terminated, truncated, info = answer
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Release what the environment holds."""
        if self._closed:
            return
        self._closed = True
        with self._worker.lock, suppress(EnvironmentFaultError):
            if self._process == self._worker.generation:
                self._worker.call({"call": "close", "key": self._key})
        self._worker.count(-1)

    def _be_there(self) -> None:
        """Make the environment in the worker's present process, in the state its commands lead to."""
        self._worker.be_running()
        if self._process == self._worker.generation:
            return
        self._worker.call({"call": "make", "key": self._key, "task": [self.task.id, self.task.family, self.task.goal]})
        self._process = self._worker.generation
        if self._actions:
            self._worker.call({"call": "reset", "key": self._key})
        for action in self._actions:
            self._worker.call({"call": "step", "key": self._key, "action": action})


class _Worker:
    """One place of the pool: a process, or none yet, or none any more.

    ``lock`` is held around every call; ``generation`` counts the processes that the place has lost.
    """

    def __init__(self, opening: bytes, timeout: float | None, recycle_after: int) -> None:
        self.lock = threading.Lock()
        self.open = 0
        self.generation = 0
        self._opening = opening
        self._timeout = timeout
        self._recycle_after = recycle_after
        self._made = 0
        self._counting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def be_running(self) -> None:
        """Start a process where there is none."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "stepcredit.integrations.engines.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._unread, self._made = b"", 0
        self._exchange(self._opening, _START_SECONDS)

    def call(self, message: Mapping[str, Any]) -> Any:
        """The answer to one call.

        Raises:
            EnvironmentFaultError: the environment raised, or there was no answer; the process is then gone.
        """
        self._made += message["call"] == "make"
        answer = self._exchange(orjson.dumps(message), self._timeout)
        if "fault" in answer:
            raise EnvironmentFaultError(answer["fault"])
        return answer["answer"]

    def count(self, change: int) -> None:
        """An environment more or less; replaces a process that made enough once nothing is open in it."""
        with self._counting:
            self.open += change
            idle = not self.open
        if idle and self._made >= self._recycle_after:
            self.end()

    def end(self) -> None:
        """End the process."""
        with self.lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self.generation += 1

    def _exchange(self, line: bytes, timeout: float | None) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            return orjson.loads(self._read_line(timeout))
        except TimeoutError:  # before OSError, which it refines
            self._end()
            raise EnvironmentFaultError(f"no answer within {timeout:g} s") from None
        except (OSError, EOFError):
            self._end()
            raise EnvironmentFaultError("its process ended") from None

    def _read_line(self, timeout: float | None) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._unread:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not poll.poll(None if left is None else left * 1000):
                raise TimeoutError
            read = os.read(process.stdout.fileno(), _CHUNK)
            if not read:
                raise EOFError
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line
