"""Gymnasium environments as a suite: text in, text out, or numbers with names.

An environment with a ``Text`` action space takes the command itself; one with a ``Discrete`` space takes the number of
the command in a list of names. Nothing of Gymnasium is imported here: anything with its ``reset`` and ``step`` will do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepcredit.environments.list_suite import ListSuite
from stepcredit.environments.protocol import Environment, Info, Task
from stepcredit.integrations.environments.suite import listed

Text = Callable[[Any, Mapping[str, Any]], str]
"""Observation and info → what the policy sees."""


class GymnasiumEnvironment:
    """One Gymnasium environment being played.

    ``info`` may tell what else the protocol knows: ``admissible_commands`` (or ``admissible``), ``won`` (or
    ``is_success``), ``score`` and ``state``. Without a word about winning, an episode is won when it terminates with
    rewards that sum to more than 0.

    Args:
        task: the task being played.
        environment: with Gymnasium's ``reset(seed=…, options=…)`` and ``step``.
        seed: every reset uses it, so that all episodes of the task start alike.
        actions: names of the actions of a ``Discrete`` space, in its order; None: the action is the text.
        text: observation and info as text.
        options: passed to every reset.
    """

    def __init__(
        self,
        task: Task,
        environment: Any,
        *,
        seed: int,
        actions: Sequence[str] | None = None,
        text: Text | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.task = task
        self._environment = environment
        self._seed = seed
        self._actions = None if actions is None else tuple(actions)
        self._text = text
        self._options = options
        self._return = 0.0
        self._last: tuple[str, bool, bool, Info] | None = None

    def reset(self) -> tuple[str, Info]:
        """Back to the start of the task's seed."""
        self._return = 0.0
        observation, info = self._environment.reset(seed=self._seed, options=self._options)
        seen, told = self._read(observation, info), self._info(info, ended=False)
        self._last = seen, False, False, told
        return seen, told

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command; a name that is not an action's, or any after the end, changes nothing."""
        if self._last is None:
            raise RuntimeError("step before reset")
        seen, terminated, truncated, told = self._last
        command: Any = action
        if self._actions is not None:
            command = self._actions.index(action) if action in self._actions else None
        if command is None or terminated or truncated:
            return seen, 0.0, terminated, truncated, told
        observation, reward, terminated, truncated, info = self._environment.step(command)
        self._return += float(reward)
        seen, told = self._read(observation, info), self._info(info, ended=bool(terminated))
        self._last = seen, bool(terminated), bool(truncated), told
        return seen, float(reward), bool(terminated), bool(truncated), told

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _read(self, observation: Any, info: Mapping[str, Any]) -> str:
        return str(observation) if self._text is None else self._text(observation, info)

    def _info(self, info: Mapping[str, Any], *, ended: bool) -> Info:
        commands = info.get("admissible_commands", info.get("admissible", self._actions))
        won = info.get("won", info.get("is_success"))
        told = Info(admissible=listed(commands), won=(ended and self._return > 0) if won is None else bool(won))
        if info.get("score") is not None:
            told["score"] = float(info["score"])
        if info.get("state") is not None:
            told["state"] = str(info["state"])
        return told


class CopyableGymnasiumEnvironment(GymnasiumEnvironment):
    """A Gymnasium environment whose whole state ``copy.deepcopy`` copies, random numbers included."""

    def snapshot(self) -> object:
        """A copy of the environment in its present state."""
        return copy.deepcopy((self._environment, self._return, self._last))

    def restore(self, snapshot: object) -> None:
        """Play on from a snapshot, which stays as it is."""
        copied: Any = copy.deepcopy(snapshot)  # what snapshot() gave
        self._environment, self._return, self._last = copied


def from_gymnasium(
    make: Callable[[], Any],
    *,
    name: str,
    goal: str,
    seeds: Mapping[str, Sequence[int]],
    actions: Sequence[str] | None = None,
    text: Text | None = None,
    options: dict[str, Any] | None = None,
    horizon: int = 50,
    copyable: bool = False,
) -> ListSuite:
    """A suite of Gymnasium environments: one task a seed, one environment an episode.

    Args:
        make: a fresh environment, for example ``lambda: gymnasium.make("FrozenLake-v1", is_slippery=False)``.
        name: name of the environment.
        goal: what is to be done, one sentence.
        seeds: the seeds of every split, training first; a task is one of them.
        actions: names of the actions of a ``Discrete`` space, in its order; None: the action is the text.
        text: observation and info as text; ``str`` of the observation without it.
        options: passed to every reset.
        horizon: turns an episode may take by default.
        copyable: whether ``copy.deepcopy`` copies the whole state; then branching needs no replay.
    """
    kind = CopyableGymnasiumEnvironment if copyable else GymnasiumEnvironment
    by_task = {f"{split}/{seed}": seed for split, drawn in seeds.items() for seed in drawn}

    def build(task: Task) -> Environment:
        return kind(task, make(), seed=by_task[task.id], actions=actions, text=text, options=options)

    tasks = {split: [Task(f"{split}/{seed}", name, goal) for seed in drawn] for split, drawn in seeds.items()}
    return ListSuite(name, horizon=horizon, tasks=tasks, make=build)
