"""A suite whose tasks are lists: all that most environments of one's own need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.environments.protocol import Environment, Expert, Task


class ListSuite:
    """Tasks from lists, environments from a function.

    Args:
        name: name of the environment.
        horizon: turns an episode may take by default.
        tasks: split → its tasks, training first.
        make: a fresh environment for a task.
        expert: an expert that plays an environment from its present state; None where there is none.
        entities: see ``TaskSuite.entities``.
    """

    def __init__(
        self,
        name: str,
        *,
        horizon: int,
        tasks: Mapping[str, Sequence[Task]],
        make: Callable[[Task], Environment],
        expert: Callable[[Environment], Expert] | None = None,
        entities: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.horizon = horizon
        self.warnings: list[str] = []
        self._tasks = {split: tuple(some) for split, some in tasks.items()}
        self._make = make
        self._expert = expert
        self._entities = tuple(entities)

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        return tuple(self._tasks)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split.

        Raises:
            OptionError: no such split.
        """
        if split not in self._tasks:
            raise unknown_name("split", split, self._tasks)
        return self._tasks[split]

    def make(self, task: Task) -> Environment:
        """A fresh environment for a task."""
        return self._make(task)

    def expert(self, environment: Environment) -> Expert:
        """An expert that plays the given environment from its present state.

        Raises:
            OptionError: there is none.
        """
        if self._expert is None:
            raise OptionError(f"The environment {self.name!r} has no expert.")
        return self._expert(environment)

    def entities(self) -> tuple[str, ...]:
        """Names that read as one word to the tiny model's tokenizer."""
        return self._entities
