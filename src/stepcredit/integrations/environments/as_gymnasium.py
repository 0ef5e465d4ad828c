"""Our environments as Gymnasium environments: ``gymnasium.make("stepcredit/household-v0")``.

Importing this module registers every environment of the catalogue; ``make`` then passes options on to it. Text is the
observation and the action; everything else our protocol tells is in ``info``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepcredit.environments.catalogue import ENVIRONMENTS, make_suite
from stepcredit.environments.protocol import Info, TaskSuite
from stepcredit.integrations.environments.player import OutsidePlayer
from stepcredit.integrations.optional import require

gymnasium: Any = require("gymnasium", "Offering environments to Gymnasium", extra="gymnasium")

_LONGEST_OBSERVATION = 1 << 20
_LONGEST_COMMAND = 1 << 12


class AnyText(gymnasium.spaces.Text):  # type: ignore[misc]  # Gymnasium may not be installed where types are checked
    """Text of any characters; ``sample`` draws letters and digits."""

    def contains(self, x: Any) -> bool:
        """Whether it is text of a length within the bounds."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length


class SuiteEnv(gymnasium.Env):  # type: ignore[misc]  # likewise
    """A suite of tasks as one Gymnasium environment.

    ``reset(seed=…)`` draws a task of the split; ``reset(options={"task": ID})`` takes one by its identifier. ``info``
    holds ``admissible_commands``, ``won``, ``task``, ``family``, ``goal``, and ``score`` and ``state`` where there are.
    A command that is not admissible is an ordinary step that changes nothing.

    Args:
        suite: the tasks.
        split: where tasks are drawn from; None: the first.
        horizon: turns until an episode is truncated; None: as the suite says.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  # Gymnasium's own class attribute

    def __init__(
        self, suite: TaskSuite, *, split: str | None = None, horizon: int | None = None, render_mode: str | None = None
    ) -> None:
        self.observation_space = AnyText(_LONGEST_OBSERVATION, min_length=0)
        self.action_space = AnyText(_LONGEST_COMMAND, min_length=0)
        self.render_mode = render_mode
        self._player = OutsidePlayer(suite, split, horizon)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode: of the task in ``options``, else of one drawn from the split.

        Raises:
            OptionError: no such task.
        """
        super().reset(seed=seed)
        chosen = (options or {}).get("task")
        index = None if chosen is not None else int(self.np_random.integers(np.iinfo(np.int32).max))
        observation, info = self._player.start(self._player.choose(task=chosen, index=index))
        return observation, self._told(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Execute a command."""
        observation, reward, terminated, truncated, info = self._player.act(action)
        return observation, reward, terminated, truncated, self._told(info)

    def render(self) -> str:
        """What is seen now."""
        return self._player.observation

    def close(self) -> None:
        """Close the environment that is being played."""
        self._player.close()

    def _told(self, info: Info) -> dict[str, Any]:
        task = self._player.task
        assert task is not None  # only called while an episode goes on
        told: dict[str, Any] = {"admissible_commands": list(info["admissible"]), "won": info["won"]}
        told |= {name: value for name, value in info.items() if name in ("score", "state")}
        return told | {"task": task.id, "family": task.family, "goal": task.goal}


def make_env(
    environment: str,
    *,
    split: str | None = None,
    horizon: int | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> SuiteEnv:
    """An environment of the catalogue as a Gymnasium environment.

    Raises:
        OptionError: no such environment or option.
    """
    return SuiteEnv(make_suite(environment, **options), split=split, horizon=horizon, render_mode=render_mode)


for _name in ENVIRONMENTS:
    gymnasium.register(
        id=f"stepcredit/{_name}-v0", entry_point=make_env, kwargs={"environment": _name}, disable_env_checker=True
    )
