"""ScienceWorld as a suite: its thirty tasks with their variations, on its Java simulator.

Every simulator is a Java process; processes of finished episodes are kept and used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from stepcredit.core.errors import unknown_name
from stepcredit.environments.protocol import Environment, Info, Task
from stepcredit.integrations.environments.suite import ReadSuite, listed
from stepcredit.integrations.optional import require

_POINTS = 100
"""The score of a solved task."""


class Simulators:
    """ScienceWorld's simulators, each a Java process: the free ones, and how to start another.

    Args:
        simplifications: ScienceWorld's, comma-separated; ``easy`` is all of them.
    """

    def __init__(self, simplifications: str) -> None:
        self.simplifications = simplifications
        self._free: list[Any] = []

    def take(self, task: str, variation: int) -> Any:
        """A simulator with a task loaded."""
        simulator = self._free.pop() if self._free else self.start()
        simulator.load(task, variation, self.simplifications)
        return simulator

    def give_back(self, simulator: Any) -> None:
        """A simulator that is not used any more."""
        self._free.append(simulator)

    def close(self) -> None:
        """End the processes of the free simulators."""
        while self._free:
            _end(self._free.pop())

    def start(self) -> Any:
        """A new simulator."""
        scienceworld = require("scienceworld", "Playing ScienceWorld (with Java 1.8 or newer)")
        # The horizon is the caller's; the simulator's own limit must not end an episode first.
        return scienceworld.ScienceWorldEnv("", envStepLimit=1_000_000)


class ScienceworldEnvironment:
    """One ScienceWorld task being played.

    The reward of a turn is what it added to the score, as a share of the full score: a solved task is worth 1. A score
    below 0 ends the task, lost.

    Args:
        task: the task being played.
        simulators: where its simulator comes from and goes back to.
        name: ScienceWorld's name of the task.
        variation: number of its variation.
    """

    def __init__(self, task: Task, simulators: Simulators, name: str, variation: int) -> None:
        self.task = task
        self._simulators = simulators
        self._simulator: Any = simulators.take(name, variation)

    def reset(self) -> tuple[str, Info]:
        """Back to the start: a look around."""
        observation, info = self._simulator.reset()
        return str(observation), self._info(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command; one the simulator does not understand changes nothing."""
        observation, gained, ended, info = self._simulator.step(action)
        return str(observation), gained / _POINTS, bool(ended), False, self._info(info)

    def close(self) -> None:
        """Give the simulator back."""
        if self._simulator is not None:
            self._simulators.give_back(self._simulator)
            self._simulator = None

    def _info(self, info: dict[str, Any]) -> Info:
        share = info["score"] / _POINTS
        return Info(admissible=listed(info["valid"]), won=share >= 1, score=min(max(share, 0.0), 1.0))


class ScienceworldSuite(ReadSuite):
    """ScienceWorld's tasks in its own splits: ``train``, ``dev`` and ``test``.

    Close it at the end: that ends the Java processes.

    Args:
        tasks: names of tasks, such as ``boil`` or ``find-plant``; empty: all of them.
        variations: take at most so many variations of a task in each split.
        simplifications: ScienceWorld's, comma-separated; ``easy`` is all of them.
        horizon: turns an episode may take by default.

    Raises:
        OptionError: a task that ScienceWorld does not have.
        MissingExtraError: the package is not installed.
    """

    def __init__(
        self,
        *,
        tasks: Annotated[Sequence[str], "names of tasks; all without it"] = (),
        variations: Annotated[int, Field(ge=1), "variations of a task in each split, at most"] = 10,
        simplifications: Annotated[str, "ScienceWorld's simplifications, separated by commas"] = "easy",
        horizon: Annotated[int, Field(ge=1), "turns an episode may take by default"] = 100,
    ) -> None:
        self._simulators = Simulators(simplifications)
        simulator = self._simulators.start()
        known = tuple(simulator.get_task_names())
        self._simulators.give_back(simulator)
        for name in tasks:
            if name not in known:
                self.close()
                raise unknown_name("ScienceWorld task", name, known)
        self._names = tuple(tasks) or known
        self._variations = variations
        self._places: dict[str, tuple[str, int]] = {}
        super().__init__("scienceworld", ("train", "dev", "test"), self._read_split, self._build, horizon=horizon)

    def _read_split(self, split: str) -> list[Task]:
        tasks = []
        for name in self._names:
            simulator = self._simulators.take(name, 0)
            for number in getattr(simulator, f"get_variations_{split}")()[: self._variations]:
                simulator.load(name, number, self._simulators.simplifications)
                identifier = f"{split}/{name}/{number}"
                self._places[identifier] = name, number
                tasks.append(Task(identifier, name, _goal(simulator)))
            self._simulators.give_back(simulator)
        return tasks

    def close(self) -> None:
        """End the Java processes of finished episodes."""
        self._simulators.close()

    def _build(self, task: Task) -> Environment:
        return ScienceworldEnvironment(task, self._simulators, *self._places[task.id])


def _end(simulator: Any) -> None:
    """End a simulator's process; ScienceWorld itself leaves its pipe and a temporary folder behind."""
    process = simulator._gateway.java_process
    simulator.close()
    process.stdin.close()
    process.wait()
    simulator._obj_tree_tempdir.cleanup()


def _goal(simulator: Any) -> str:
    text = " ".join(str(simulator.get_task_description()).split())
    return text.removeprefix("Task Description:").strip()
