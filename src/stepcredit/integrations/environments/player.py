"""One of our environments, played from outside: which task, until when, and what happened so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.environments.protocol import Environment, Info, Task, TaskSuite


class OutsidePlayer:
    """Plays tasks of a suite for a host that only knows ``reset`` and ``step``.

    Args:
        suite: whose tasks.
        split: the split tasks are chosen from.
        horizon: turns an episode may take; None: as the suite says.
    """

    def __init__(self, suite: TaskSuite, split: str | None = None, horizon: int | None = None) -> None:
        self.suite = suite
        self.split = suite.splits()[0] if split is None else split
        self.horizon = suite.horizon if horizon is None else horizon
        if self.horizon < 1:
            raise OptionError(f"horizon is {self.horizon}; expected at least 1.")
        self.task: Task | None = None
        self.turns: list[Turn] = []
        self.observation = ""
        self.info = Info(admissible=(), won=False)
        self._environment: Environment | None = None

    def choose(self, *, task: str | None = None, index: int | None = None, split: str | None = None) -> Task:
        """The task of an identifier, or number ``index`` modulo their count of a split.

        Raises:
            OptionError: no such task or split.
        """
        tasks = self.suite.tasks(self.split if split is None else split)
        if task is None:
            return tasks[(index or 0) % len(tasks)]
        found = next((one for one in tasks if one.id == task), None)
        if found is None:
            raise unknown_name("task", task, (one.id for one in tasks))
        return found

    def start(self, task: Task) -> tuple[str, Info]:
        """Begin an episode; the environment of the one before is closed."""
        self.close()
        self._environment = self.suite.make(task)
        self.task, self.turns = task, []
        self.observation, self.info = self._environment.reset()
        return self.observation, self.info

    def act(self, command: str) -> tuple[str, float, bool, bool, Info]:
        """One turn; ``truncated`` when the horizon is reached.

        Raises:
            OptionError: no episode is going on.
        """
        if self._environment is None:
            raise OptionError("A command came before an episode was started; reset first.")
        before, key = self.observation, self.info.get("state")
        valid = not self.info["admissible"] or command in self.info["admissible"]
        self.observation, reward, terminated, truncated, self.info = self._environment.step(command)
        self.turns.append(Turn(before, command, reward, valid=valid, state=key))
        late = truncated or (not terminated and len(self.turns) >= self.horizon)
        return self.observation, reward, terminated, late, self.info

    def episode(self, name: str, extra: Mapping[str, Any] | None = None) -> Episode:
        """What was played since the start, as a rollout file holds it.

        Raises:
            OptionError: nothing was played.
        """
        if self.task is None or not self.turns:
            raise OptionError("No turn was played; an episode needs at least one.")
        return Episode(
            task=self.task.id,
            episode=name,
            turns=tuple(self.turns),
            final_observation=self.observation,
            success=bool(self.info["won"]),
            score=self.info.get("score"),
            extra={} if extra is None else extra,
        )

    def close(self) -> None:
        """Close the environment; what was played stays readable."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None
