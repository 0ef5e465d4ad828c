"""Forks: many episodes that take turns in one environment, each on its own snapshot."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from stepcredit.environments.protocol import Environment, Info, Snapshots, Task


@dataclass(frozen=True, slots=True)
class Place:
    """A realised state that can be returned to: the environment's snapshot, and what it told there."""

    snapshot: object
    observation: str
    info: Info


class SharedEnvironment:
    """An environment that can copy its state, and the lock that its forks share.

    Raises:
        TypeError: the environment has no snapshots.
    """

    def __init__(self, environment: Environment) -> None:
        if not isinstance(environment, Snapshots):
            raise TypeError(f"{type(environment).__name__} has no snapshots to fork from.")
        self._environment: Environment = environment
        self._snapshots: Snapshots = environment
        self._lock = threading.Lock()

    def fork(self, place: Place) -> Fork:
        """An environment of its own, in the state of a place; it never closes the shared one."""
        return Fork(self._environment.task, self, place)

    def step(self, snapshot: object, action: str) -> tuple[tuple[str, float, bool, bool, Info], object]:
        """One step from a snapshot: the environment's answer, and the snapshot after it."""
        with self._lock:
            self._snapshots.restore(snapshot)
            answer = self._environment.step(action)
            return answer, self._snapshots.snapshot()

    def close(self) -> None:
        """Release the environment."""
        self._environment.close()


class Fork:
    """To its player an environment like any other; in truth a snapshot of a shared one."""

    def __init__(self, task: Task, shared: SharedEnvironment, start: Place) -> None:
        self.task = task
        self._shared = shared
        self._start = start
        self._snapshot = start.snapshot

    def reset(self) -> tuple[str, Info]:
        """Back to where the fork began."""
        self._snapshot = self._start.snapshot
        return self._start.observation, self._start.info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """One step of this fork alone."""
        answer, self._snapshot = self._shared.step(self._snapshot, action)
        return answer

    def close(self) -> None:
        """Nothing to release: whoever shares the environment closes it."""
