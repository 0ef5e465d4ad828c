"""``stepcredit replay``: feed a list of commands to a task and print what it answers."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
from cyclopts import Parameter

from stepcredit.cli.console import Console
from stepcredit.core.errors import EnvironmentFaultError, InputError
from stepcredit.core.text import harmless
from stepcredit.environments.catalogue import find_environment, find_task, make_suite
from stepcredit.environments.household.suite import HouseholdSuite
from stepcredit.environments.protocol import Environment
from stepcredit.environments.replay import ReplayStep, first_divergence
from stepcredit.environments.replay import replay as replay_commands


def replay(
    environment: str,
    *,
    game: str,
    actions: Path,
    expect: Path | None = None,
    json: bool = False,
    **options: Annotated[str, Parameter(help="any option of the environment, see `stepcredit envs NAME`")],
) -> None:
    """Feed commands to a task, one a line, and print its answers, starting with the reset.

    Play goes on after the end. In the household the admissible commands contain `help`, as the reference engine lists
    them.

    Args:
        environment: name of the environment, or `module:Class` of your own.
        game: identifier of the task. In the household `SPLIT/TASK/TRIAL`, with --games for the file or folder it is in,
            or `generated-SEED/ROOM/SPLIT/FAMILY/NUMBER`.
        actions: file with one command a line; `-` is standard input.
        expect: an earlier output with --json; the first step that differs from it is reported and the status is 2.
        json: print one JSON line a step: command, feedback, admissible, reward, won.
    """
    suite = make_suite(environment, **find_environment(environment).parse(options))
    if isinstance(suite, HouseholdSuite):
        played: Environment = suite.make(suite.find(game), show_help=True)
    else:
        played = suite.make(find_task(suite, game))
    steps = list(replay_commands(played, _lines(actions)))
    _print(steps, json=json)
    if expect is not None:
        divergence = first_divergence([_json_line(expect, line) for line in _lines(expect)], steps)
        if divergence is not None:
            raise EnvironmentFaultError(f"The replay differs from {str(expect)!r}. {divergence}")


def _print(steps: list[ReplayStep], *, json: bool) -> None:
    if json:
        sys.stdout.writelines(harmless(orjson.dumps(step.as_json()).decode()) + "\n" for step in steps)
        return
    console = Console()
    for step in steps:
        if step.command is not None:
            console.print(f"> {step.command}", style="bold", soft_wrap=True)
        console.print(step.feedback, soft_wrap=True)
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
