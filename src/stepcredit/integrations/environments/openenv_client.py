"""OpenEnv environments as a suite: every episode is a session of a client.

A client is anything with OpenEnv's synchronous ``reset(**options)`` and ``step(action)``, as ``EnvClient(...).sync()``
gives one. ``OpenenvSuite`` plays a server that ``as_openenv`` made, ``from_openenv`` any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from stepcredit.core.errors import InputError
from stepcredit.environments.list_suite import ListSuite
from stepcredit.environments.protocol import Environment, Info, Task
from stepcredit.integrations.environments.suite import ReadSuite, listed
from stepcredit.integrations.optional import require


def field(observation: Any, name: str) -> Any:
    """A field of an observation, be it a dict or a typed one; None where it has none of that name."""
    return observation.get(name) if isinstance(observation, Mapping) else getattr(observation, name, None)


def _command(text: str) -> Any:
    return {"command": text}


class OpenenvEnvironment:
    """One OpenEnv session being played.

    The observation may tell what else the protocol knows: ``admissible``, ``won``, ``score`` and ``state``. Without a
    word about winning, an episode is won when it is done and its rewards sum to more than 0.

    Args:
        task: the task being played.
        client: connected, synchronous; closed with this environment.
        options: passed to every ``reset``, such as ``seed``.
        action: a command as the server's action.
        text: the field of the observation that the policy sees.
    """

    def __init__(
        self,
        task: Task,
        client: Any,
        *,
        options: Mapping[str, Any],
        action: Callable[[str], Any] = _command,
        text: str = "text",
    ) -> None:
        self.task = task
        self._client = client
        self._options = dict(options)
        self._action = action
        self._text = text
        self._return = 0.0

    def reset(self) -> tuple[str, Info]:
        """Start the session's episode."""
        self._return = 0.0
        result = self._client.reset(**self._options)
        return self._seen(result), self._info(result)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Send a command."""
        result = self._client.step(self._action(action))
        reward = float(result.reward or 0.0)
        self._return += reward
        return self._seen(result), reward, bool(result.done), False, self._info(result)

    def close(self) -> None:
        """End the session."""
        self._client.close()

    def _seen(self, result: Any) -> str:
        return str(field(result.observation, self._text) or "")

    def _info(self, result: Any) -> Info:
        seen = result.observation
        won, score, state = field(seen, "won"), field(seen, "score"), field(seen, "state")
        told = Info(
            admissible=listed(field(seen, "admissible")),
            won=bool(result.done and self._return > 0) if won is None else bool(won),
        )
        if score is not None:
            told["score"] = float(score)
        if state is not None:
            told["state"] = str(state)
        return told


def from_openenv(
    connect: Callable[[], Any],
    tasks: Mapping[str, Sequence[tuple[Task, Mapping[str, Any]]]],
    *,
    name: str = "openenv",
    action: Callable[[str], Any] = _command,
    text: str = "text",
    horizon: int = 50,
) -> ListSuite:
    """A suite of an OpenEnv server's tasks, one session an episode.

    Args:
        connect: a connected synchronous client, for example
            ``lambda: GenericEnvClient(base_url=url).sync().connect()``.
        tasks: the tasks of every split, training first, each with the options its ``reset`` gets (``{"seed": 3}``).
        name: name of the environment.
        action: a command as the server's action; ``{"command": text}`` without it.
        text: the field of the observation that the policy sees.
        horizon: turns an episode may take by default.
    """
    options = {task.id: chosen for pairs in tasks.values() for task, chosen in pairs}

    def make(task: Task) -> Environment:
        return OpenenvEnvironment(task, connect(), options=options[task.id], action=action, text=text)

    listed_tasks = {split: [task for task, _ in pairs] for split, pairs in tasks.items()}
    return ListSuite(name, horizon=horizon, tasks=listed_tasks, make=make)


class OpenenvSuite(ReadSuite):
    """Everything that a server made by ``as_openenv`` can play, asked from the server itself.

    Args:
        url: address of the server, ``http://HOST:PORT``.
        horizon: turns an episode may take by default.

    Raises:
        InputError: no server answers there.
        MissingExtraError: OpenEnv is not installed.
    """

    def __init__(
        self,
        *,
        url: Annotated[str, "address of the server"] = "http://127.0.0.1:8000",
        horizon: Annotated[int, Field(ge=1), "turns an episode may take by default"] = 50,
    ) -> None:
        self._url = url
        self._places: dict[str, dict[str, Any]] = {}
        client = self.session()
        self._counts: dict[str, int] = field(client.reset().observation, "splits")
        client.close()
        super().__init__("openenv", tuple(self._counts), self._read_split, self._start, horizon=horizon)

    def session(self) -> Any:
        """A connected synchronous client of the server."""
        core = require("openenv.core", "Playing an OpenEnv server")
        try:
            return core.GenericEnvClient(base_url=self._url).sync().connect()
        except OSError as error:
            raise InputError(f"No OpenEnv server answers at {self._url!r}: {error}") from error

    def _read_split(self, split: str) -> list[Task]:
        client, tasks = self.session(), []
        for index in range(self._counts[split]):
            place = {"split": split, "index": index}
            seen = client.reset(**place).observation
            task = Task(field(seen, "task"), field(seen, "family"), field(seen, "goal"))
            self._places[task.id] = place
            tasks.append(task)
        client.close()
        return tasks

    def _start(self, task: Task) -> Environment:
        return OpenenvEnvironment(task, self.session(), options=self._places[task.id])
