"""Our environments as an OpenEnv server, and the typed messages it speaks.

    uvicorn --factory my_module:app     # def app(): return make_app(make_suite("household"))

A session plays one episode at a time. ``reset`` takes ``task`` (an identifier) or ``split`` and ``index``, or ``seed``
in place of an index; observations hold the text, the admissible commands, and the verifier's word.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from stepcredit.environments.protocol import Info, TaskSuite
from stepcredit.integrations.environments.player import OutsidePlayer
from stepcredit.integrations.optional import require

_server: Any = require("openenv.core.env_server", "Offering environments to OpenEnv")


class Command(_server.Action):  # type: ignore[misc]  # OpenEnv may not be installed where types are checked
    """What the client sends in a turn."""

    command: str


class Seen(_server.Observation):  # type: ignore[misc]  # likewise
    """What the client gets: beside OpenEnv's ``reward`` and ``done``, all that our protocol tells."""

    text: str
    admissible: list[str]
    won: bool
    score: float | None = None
    state: str | None = None
    truncated: bool = False
    task: str
    family: str
    goal: str
    splits: dict[str, int] = Field(description="Splits of the server with the number of their tasks")


class SuiteServer(_server.Environment):  # type: ignore[misc]  # likewise
    """A suite of tasks as OpenEnv's environment; every session has its own.

    Args:
        suite: the tasks.
        horizon: turns an episode may take; None: as the suite says.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, suite: TaskSuite, horizon: int | None = None) -> None:
        super().__init__()
        self._player = OutsidePlayer(suite, None, horizon)
        self._splits = {split: len(suite.tasks(split)) for split in suite.splits()}
        self._episode: str | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **_: Any,
    ) -> Seen:
        """Start an episode: of ``task``, or of number ``index`` (or ``seed``) of a split.

        Raises:
            OptionError: no such task or split.
        """
        chosen = self._player.choose(task=task, index=seed if index is None else index, split=split)
        observation, info = self._player.start(chosen)
        self._episode = episode_id
        return self._seen(observation, info, done=False, reward=None)

    def step(self, action: Command, timeout_s: float | None = None, **_: Any) -> Seen:
        """Execute a command; an environment of ours does not wait, so there is nothing to time out."""
        observation, reward, terminated, truncated, info = self._player.act(action.command)
        return self._seen(observation, info, done=terminated or truncated, reward=reward, truncated=truncated)

    @property
    def state(self) -> Any:
        """The number of turns, and the episode's identifier as the client gave it."""
        return _server.State(episode_id=self._episode, step_count=len(self._player.turns))

    def close(self) -> None:
        """Close the environment that is being played."""
        self._player.close()

    def _seen(self, observation: str, info: Info, *, done: bool, reward: float | None, truncated: bool = False) -> Seen:
        task = self._player.task
        assert task is not None  # only called while an episode goes on
        return Seen(
            text=observation,
            admissible=list(info["admissible"]),
            won=info["won"],
            score=info.get("score"),
            state=info.get("state"),
            truncated=truncated,
            task=task.id,
            family=task.family,
            goal=task.goal,
            splits=self._splits,
            done=done,
            reward=reward,
        )


def make_app(suite: TaskSuite, *, horizon: int | None = None, sessions: int = 64) -> Any:
    """The server's FastAPI application.

    Args:
        suite: the tasks; shared by all sessions, its environments are not.
        horizon: turns an episode may take; None: as the suite says.
        sessions: episodes played at once at most.
    """
    return _server.create_fastapi_app(
        lambda: SuiteServer(suite, horizon), Command, Seen, max_concurrent_envs=sessions, env_name=suite.name
    )
