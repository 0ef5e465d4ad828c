"""Our environments as TRL's ``environment_factory``: an object a rollout, whose public method is the model's tool.

TRL resets it with the row of the dataset, offers ``act`` to the model as a tool, and asks for ``get_reward`` at the
end. Nothing of TRL is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stepcredit.core.episodes import Turn
from stepcredit.environments.protocol import TaskSuite
from stepcredit.integrations.environments.player import OutsidePlayer


class TrlEnvironment:
    """One rollout's environment. Reward functions get it in ``environments`` and find its turns in ``turns``.

    Args:
        suite: the tasks.
        split: the split that the dataset's tasks belong to; None: the first.
        horizon: turns until it answers that the episode is over; None: as the suite says.
    """

    def __init__(self, suite: TaskSuite, split: str | None = None, horizon: int | None = None) -> None:
        self._player = OutsidePlayer(suite, split, horizon)
        self._over = False

    @property
    def turns(self) -> list[Turn]:
        """The turns played so far, with their rewards."""
        return self._player.turns

    def reset(self, task: str | None = None, **_: Any) -> str:
        """Start the row's task; what TRL appends to the prompt, letter to letter: observation and commands."""
        self._over = False
        observation, info = self._player.start(self._player.choose(task=task))
        return "\n\n" + _shown(observation, info["admissible"])

    def act(self, command: str) -> str:
        """Execute one command in the environment and see what happens.

        Args:
            command: The command, exactly as it is listed among the commands that do something now.

        Returns:
            What the environment shows afterwards, and the commands that do something then.
        """
        if self._over:
            return "The episode is over."
        observation, _, terminated, truncated, info = self._player.act(command)
        self._over = terminated or truncated
        if self._over:
            return f"{observation}\nThe episode is over."
        return _shown(observation, info["admissible"])

    def get_reward(self) -> float:
        """The sum of the episode's rewards."""
        return math.fsum(turn.reward for turn in self._player.turns)


def environment_factory(
    suite: TaskSuite, *, split: str | None = None, horizon: int | None = None
) -> Callable[[], TrlEnvironment]:
    """What ``GRPOTrainer(environment_factory=…)`` takes.

    Args:
        suite: the tasks.
        split: the split that the dataset's tasks belong to; None: the first.
        horizon: turns an episode may take; None: as the suite says.
    """
    return lambda: TrlEnvironment(suite, split, horizon)


def dataset_rows(suite: TaskSuite, split: str | None = None) -> list[dict[str, Any]]:
    """A row a task for ``datasets.Dataset.from_list``: the ``prompt``, and ``task`` for ``reset``."""
    return [
        {
            "prompt": [{"role": "user", "content": f"{task.goal}\nUse the tool act, one command a call."}],
            "task": task.id,
        }
        for task in suite.tasks(suite.splits()[0] if split is None else split)
    ]


def _shown(observation: str, admissible: Any) -> str:
    commands = "\n".join(admissible)
    return f"{observation}\nCommands that do something now:\n{commands}" if commands else observation
