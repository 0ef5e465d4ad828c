"""TextWorld games as a suite: ``.z8``, ``.ulx`` and ``.json`` games that ``tw-make`` makes, and ALFWorld's PDDL games.

TextWorld is under the GPL in part of what it needs; it is imported when a game is started and is no dependency.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from stepcredit.core.errors import InputError, MissingExtraError
from stepcredit.environments.protocol import Environment, Info, Task
from stepcredit.integrations.environments.suite import ReadSuite, game_files, listed
from stepcredit.integrations.optional import require

_ENDINGS = (".z8", ".ulx", ".json")


class TextworldEnvironment:
    """One TextWorld game being played.

    TextWorld tells the score so far; the reward of a turn is what the turn added to it, as a share of the highest score
    of the game, so that a whole game is worth 1.

    Args:
        task: the task being played.
        engine: what ``textworld.start`` gives.
    """

    def __init__(self, task: Task, engine: Any) -> None:
        self.task = task
        self._engine = engine
        self._state: Any = None
        self._score = 0.0
        self._ended = False

    def reset(self) -> tuple[str, Info]:
        """Back to the start of the game."""
        self._state = self._engine.reset()
        self._score, self._ended = 0.0, False
        return self._seen(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command; after the end nothing changes."""
        gained = 0.0
        if not self._ended:
            self._state, score, self._ended = self._engine.step(action)
            gained = (float(score) - self._score) / self._highest
            self._score = float(score)
        return self._seen(), gained, bool(self._ended), False, self._info()

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    @property
    def _highest(self) -> float:
        return float(self._state.get("max_score") or 1)

    def _seen(self) -> str:
        return str(self._state["feedback"]).strip()

    def _info(self) -> Info:
        told = Info(admissible=listed(self._state.get("admissible_commands")), won=bool(self._state["won"]))
        if self._state.get("max_score"):
            told["score"] = min(max(self._score / self._highest, 0.0), 1.0)
        return told


class CopyableTextworldEnvironment(TextworldEnvironment):
    """A game whose engine can copy itself: a snapshot is TextWorld's own ``copy()``."""

    def snapshot(self) -> object:
        """A copy of the engine in its present state."""
        return self._engine.copy(), self._state.copy(), self._score, self._ended

    def restore(self, snapshot: object) -> None:
        """Play on from a copy of the snapshot, which stays as it is."""
        copied: Any = snapshot  # what snapshot() gave
        engine, state, self._score, self._ended = copied
        self._engine, self._state = engine.copy(), state.copy()


class TextworldSuite(ReadSuite):
    """A suite of TextWorld games; a task's goal is the game's objective.

    Args:
        games: folder with a subfolder a split, each with game files; ``$NAME`` is replaced.
        horizon: turns an episode may take by default.

    Raises:
        InputError: no such folder, or no games in it.
        MissingExtraError: TextWorld is not installed.
    """

    def __init__(
        self,
        *,
        games: Annotated[str, "folder with a subfolder a split, each with .z8, .ulx or .json games"] = "games",
        horizon: Annotated[int, Field(ge=1), "turns an episode may take by default"] = 50,
    ) -> None:
        require("textworld", "Playing TextWorld games")
        self._games = game_files(Path(os.path.expandvars(games)), _ENDINGS)
        super().__init__("textworld", tuple(self._games), self._read_split, self._start, horizon=horizon)

    def _read_split(self, split: str) -> list[Task]:
        return [Task(f"{split}/{name}", "textworld", _objective(file)) for name, file in self._games[split].items()]

    def _start(self, task: Task) -> Environment:
        split, _, name = task.id.partition("/")
        engine = start_game(self._games[split][name])
        return CopyableTextworldEnvironment(task, engine) if _copies(engine) else TextworldEnvironment(task, engine)


def start_game(file: Path, wrappers: Sequence[Callable[[Any], Any]] = ()) -> Any:
    """TextWorld's engine on a game file, asked for everything the protocol tells.

    Raises:
        InputError: the file is not there or is no game.
        MissingExtraError: TextWorld, or the part of it that plays such games, is not installed.
    """
    textworld = require("textworld", "Playing TextWorld games")
    asked = textworld.EnvInfos(
        feedback=True, admissible_commands=True, won=True, score=True, max_score=True, objective=True
    )
    try:
        return textworld.start(str(file), asked, list(wrappers))
    except ImportError as error:  # a part of TextWorld that not every game needs
        reason = " ".join(str(error).split())
        raise MissingExtraError(f"Cannot start the game {str(file)!r}: {reason}") from error
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"Cannot start the game {str(file)!r}: {reason}") from error


def _objective(file: Path) -> str:
    engine = start_game(file)
    try:
        objective = engine.reset().get("objective")
    finally:
        engine.close()
    return " ".join(str(objective or "Win the game.").split())


def _copies(engine: Any) -> bool:
    """Whether the engine can copy itself: games for a z-machine and ``.json`` games can, PDDL games cannot."""
    engine.reset()
    try:
        engine.copy().close()
    except NotImplementedError:
        return False
    return True
