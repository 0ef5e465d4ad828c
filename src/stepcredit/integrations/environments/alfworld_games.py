"""ALFWorld's own environment as a suite: the text engine of the ``alfworld`` package on its game files.

Our ``household`` environment gives the same texts without it and can copy its state; this adapter is for checking that,
and for people whose games live in ``alfworld``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from stepcredit.core.errors import InputError
from stepcredit.environments.protocol import Environment, Task
from stepcredit.integrations.environments.suite import ReadSuite, game_files
from stepcredit.integrations.environments.textworld_games import TextworldEnvironment, start_game
from stepcredit.integrations.optional import require

_GOAL = "Your task is to: "


class AlfworldSuite(ReadSuite):
    """A suite of ALFWorld games, played by ``alfworld``'s own engine and wrappers.

    A task is called after its split and the folders its game lies in, its family after the folder above the game's.

    Args:
        games: folder with a subfolder a split (``train``, ``valid_seen``, …), each with ``game.tw-pddl`` files at any
            depth: ``$ALFWORLD_DATA/json_2.1.1``; ``$NAME`` is replaced.
        horizon: turns an episode may take by default.

    Raises:
        InputError: no such folder, or no games in it.
        MissingExtraError: by ``make``, where ``alfworld`` is not installed.
    """

    def __init__(
        self,
        *,
        games: Annotated[
            str, "folder with a subfolder a split, each with game.tw-pddl files"
        ] = "$ALFWORLD_DATA/json_2.1.1",
        horizon: Annotated[int, Field(ge=1), "turns an episode may take by default"] = 50,
    ) -> None:
        self._games = game_files(Path(os.path.expandvars(games)), ("game.tw-pddl",))
        super().__init__("alfworld", tuple(self._games), self._read_split, self._start, horizon=horizon)

    def _read_split(self, split: str) -> list[Task]:
        return [_task(f"{split}/{name.removesuffix('/game')}", file) for name, file in self._games[split].items()]

    def _start(self, task: Task) -> Environment:
        split, _, name = task.id.partition("/")
        return TextworldEnvironment(task, start_game(self._games[split][f"{name}/game"], _wrappers()))


def _wrappers() -> list[Any]:
    module = require("alfworld.agents.environment.alfred_tw_env", "Playing ALFWorld's games")
    return [module.AlfredDemangler(shuffle=False), module.AlfredInfos]


def _task(identifier: str, file: Path) -> Task:
    """The task of a game file; its goal is the sentence that the game's grammar was given."""
    try:
        game = json.loads(file.read_text(encoding="utf-8"))
        grammar = str(game["grammar"])
    except OSError as error:
        raise InputError(f"Cannot read {str(file)!r}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{file}: got {type(error).__name__}: {error}, expected an ALFWorld game.") from None
    goal = grammar.partition(_GOAL)[2].partition('"')[0].partition("\n")[0].strip(" ;")
    return Task(identifier, file.parent.parent.name.partition("-")[0], goal or "Fulfil the task.")
