"""``stepcredit replay``: feed a list of commands to a game and print what it answers."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, Literal

import orjson
from rich.console import Console

from stepcredit.core.errors import EnvironmentFaultError, InputError
from stepcredit.environments.household.suite import HouseholdSuite
from stepcredit.environments.replay import ReplayStep, first_divergence
from stepcredit.environments.replay import replay as replay_commands


def replay(
    environment: Literal["household"],
    *,
    game: str,
    actions: Path,
    games: str | None = None,
    expect: Path | None = None,
    json: bool = False,
) -> None:
    """Feed commands to a game, one a line, and print its answers, starting with the reset.

    The admissible commands contain `help`, as the reference engine lists them. Play goes on after a win.

    Args:
        environment: `household`.
        game: identifier of the game, `SPLIT/TASK/TRIAL`, or `generated-SEED/ROOM/SPLIT/FAMILY/NUMBER`.
        actions: file with one command a line; `-` is standard input.
        games: file or folder the game is in; not needed for generated games.
        expect: an earlier output with --json; the first step that differs from it is reported and the status is 2.
        json: print one JSON line a step: command, feedback, admissible, reward, won.
    """
    suite = HouseholdSuite(games=games)
    played = suite.make(suite.find(game), show_help=True)
    steps = list(replay_commands(played, _lines(actions)))
    _print(steps, json=json)
    if expect is not None:
        divergence = first_divergence([_json_line(expect, line) for line in _lines(expect)], steps)
        if divergence is not None:
            raise EnvironmentFaultError(f"The replay differs from {str(expect)!r}. {divergence}")


def _print(steps: list[ReplayStep], *, json: bool) -> None:
    if json:
        sys.stdout.writelines(orjson.dumps(step.as_json()).decode() + "\n" for step in steps)
        return
    console = Console()
    for step in steps:
        if step.command is not None:
            console.print(f"> {step.command}", style="bold", markup=False, highlight=False, soft_wrap=True)
        console.print(step.feedback, markup=False, highlight=False, soft_wrap=True)
    console.print("Won." if steps[-1].won else "Not won.", style="bold")


def _lines(path: Path) -> list[str]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"Cannot read {str(path)!r}: byte {error.start} is not UTF-8.") from None
    except OSError as error:
        raise InputError(f"Cannot read {str(path)!r}: {error.strerror}.") from None
    return [line.rstrip("\n") for line in io.StringIO(text)]


def _json_line(path: Path, line: str) -> dict[str, Any]:
    try:
        step = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: not a line of JSON: {error}") from None
    if not isinstance(step, dict):
        raise InputError(f"{path}: got a JSON {type(step).__name__}, expected one object a line")
    return step
