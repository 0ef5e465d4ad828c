"""Suites whose environments tell their whole state, as the key that credit groups and links turns by.

What an agent sees rarely is the state: an observation of a shelf says nothing about what the agent holds. With the
whole state as the key, nothing looks alike that is not, and what is left of a method's error is its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from stepcredit.core.errors import InputError
from stepcredit.environments.protocol import Environment, Expert, Info, Snapshots, Task, TaskSuite


class TrueStates:
    """A suite as it is, but every ``info`` names the state: a digest of the text of its snapshot.

    Equal snapshots must have equal texts, so none may hold a set. Policies do not see keys, so the same seeds play the
    same episodes.
    """

    def __init__(self, suite: TaskSuite) -> None:
        self._suite = suite
        self.name = suite.name
        self.horizon = suite.horizon
        self.warnings = suite.warnings

    def splits(self) -> tuple[str, ...]:
        """As the suite's."""
        return self._suite.splits()

    def tasks(self, split: str) -> Sequence[Task]:
        """As the suite's."""
        return self._suite.tasks(split)

    def make(self, task: Task) -> TrueStateEnvironment:
        """The suite's environment, telling its state.

        Raises:
            InputError: it has no snapshots.
        """
        return TrueStateEnvironment(self._suite.make(task))

    def expert(self, environment: Environment) -> Expert:
        """The suite's expert."""
        inner = environment.inner if isinstance(environment, TrueStateEnvironment) else environment
        return self._suite.expert(inner)

    def entities(self) -> tuple[str, ...]:
        """As the suite's."""
        return self._suite.entities()


class TrueStateEnvironment:
    """An environment whose state keys are its snapshots.

    Raises:
        InputError: the environment has no snapshots.
    """

    def __init__(self, inner: Environment) -> None:
        if not isinstance(inner, Snapshots):
            raise InputError(f"A {type(inner).__name__} has no snapshots to tell its state by; expected one that has.")
        self.inner: Environment = inner
        self.task = inner.task
        self._snapshots: Snapshots = inner

    def reset(self) -> tuple[str, Info]:
        """Back to the start."""
        observation, info = self.inner.reset()
        return observation, self._told(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command."""
        observation, reward, terminated, truncated, info = self.inner.step(action)
        return observation, reward, terminated, truncated, self._told(info)

    def snapshot(self) -> object:
        """The present state."""
        return self._snapshots.snapshot()

    def restore(self, snapshot: object) -> None:
        """Return to a state."""
        self._snapshots.restore(snapshot)

    def close(self) -> None:
        """Close the environment."""
        self.inner.close()

    def _told(self, info: Info) -> Info:
        told = info.copy()
        told["state"] = hashlib.blake2b(repr(self._snapshots.snapshot()).encode(), digest_size=12).hexdigest()
        return told
