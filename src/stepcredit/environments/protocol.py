"""What an environment is: text in, text out.

A ``TaskSuite`` knows tasks and makes environments; an ``Environment`` plays one task with Gymnasium's five-tuple. An
engine that can copy its state offers ``snapshot()`` / ``restore()``; where it cannot, callers replay the action prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict, runtime_checkable

PLACEHOLDER = "<words>"
"""In an admissible command: any text may stand here."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task: ``id`` is the group key, ``family`` its row in tables by family, ``goal`` the sentence to fulfil."""

    id: str
    family: str
    goal: str


class Info(TypedDict):
    """What ``reset`` and ``step`` tell beside the observation.

    admissible: the commands that do something now, sorted and unique; empty where any text is accepted. One with
        ``PLACEHOLDER`` in it stands for every text in that place.
    won: the verifier's outcome so far.
    score: graded outcome in [0, 1], where the environment has one.
    state: state key, where it is not the observation.
    """

    admissible: Sequence[str]
    won: bool
    score: NotRequired[float]
    state: NotRequired[str]


class Environment(Protocol):
    """One task being played. The same task and seed give the same texts in every process."""

    task: Task

    def reset(self) -> tuple[str, Info]:
        """Back to the start; the first observation."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command: observation, reward, terminated (the task ended), truncated (a limit hit), info.

        An unknown or inadmissible command is an ordinary step that changes nothing. Reward is in the benchmark's own
        unit, 1 for success; training scales it.
        """
        ...

    def close(self) -> None:
        """Release what the environment holds; calling it twice is harmless."""
        ...


@runtime_checkable
class Snapshots(Protocol):
    """An environment that can copy its state. A snapshot stays valid for any number of restores."""

    def snapshot(self) -> object:
        """The present state, immutable."""
        ...

    def restore(self, snapshot: object) -> None:
        """Return to a state this environment gave."""
        ...


class Expert(Protocol):
    """Chooses the next command from full state."""

    def act(self) -> str | None:
        """The next command, or None when the task is done or no way is known."""
        ...


class TaskSuite(Protocol):
    """The tasks of one environment and how to play them.

    Attributes:
        name: name in the catalogue.
        horizon: turns an episode may take by default.
        warnings: what was left out while tasks were read, and why.
    """

    name: str
    horizon: int
    warnings: list[str]

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split in their fixed order.

        Raises:
            OptionError: no such split.
        """
        ...

    def make(self, task: Task) -> Environment:
        """A fresh environment for a task of this suite."""
        ...

    def expert(self, environment: Environment) -> Expert:
        """An expert that plays the given environment from its present state.

        Raises:
            OptionError: this suite has no expert.
        """
        ...

    def entities(self) -> tuple[str, ...]:
        """Names of things that read as one word to the tiny model's tokenizer ("cabinet 3"); may be empty."""
        ...
