"""``stepcredit play``: a person plays in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from rich.columns import Columns
from rich.text import Text

from stepcredit.cli.console import Console
from stepcredit.core.errors import OptionError
from stepcredit.environments.catalogue import find_environment, find_task, make_suite
from stepcredit.environments.protocol import Environment, TaskSuite

QUIT = "quit"


def play(
    environment: str,
    *,
    split: str | None = None,
    task: str | None = None,
    web: bool = False,
    **options: Annotated[str, Parameter(help="any option of the environment, see `stepcredit envs NAME`")],
) -> None:
    """Play a task yourself: type a command, or the number it is listed with, or `quit`.

    Args:
        environment: name of the environment, or `module:Class` of your own.
        split: take the first task of this split; by default of the first split.
        task: identifier of the task to play instead.
        web: serve the split as pages for a browser on this machine instead; shopping only.
    """
    suite = make_suite(environment, **find_environment(environment).parse(options))
    if web:
        _serve(suite, split or suite.splits()[0])
        return
    splits = suite.splits() if split is None else (split,)
    played = suite.make(suite.tasks(splits[0])[0] if task is None else find_task(suite, task, splits))
    try:
        _converse(Console(), played)
    finally:
        played.close()


def _serve(suite: TaskSuite, split: str) -> None:
    from stepcredit.environments.shopping.suite import ShoppingSuite
    from stepcredit.environments.shopping.web import ShopServer

    if not isinstance(suite, ShoppingSuite):
        raise OptionError(f"--web shows the pages of `shopping`; {suite.name} has none, play it without --web.")
    with ShopServer(suite, suite.tasks(split)) as server:
        print(f"The shop is open at {server.url}; Ctrl-C closes it.", file=sys.stderr)
        server.serve_forever()


def _converse(console: Console, environment: Environment) -> None:
    """Show, ask, execute, until the task ends, the person quits or the input does."""
    observation, info = environment.reset()
    over, turns = False, 0
    while not over:
        console.print(Text(observation))
        _list_commands(console, info["admissible"])
        try:
            answer = console.input("[bold]> [/bold]").strip()
        except EOFError:
            break
        if answer == QUIT:
            break
        observation, _, terminated, truncated, info = environment.step(_meant(answer, info["admissible"]))
        turns += 1
        over = terminated or truncated
    if over:
        console.print(Text(observation))
    outcome = "Won" if info["won"] else "Not won"
    console.print(f"\n{outcome} after {turns} turn{'' if turns == 1 else 's'}.", style="bold")


def _list_commands(console: Console, commands: Sequence[str]) -> None:
    """The admissible commands with their numbers, from 1; what accepts any text lists none."""
    if commands:
        numbered = (Text(f"{number:>3} {command}", style="dim") for number, command in enumerate(commands, 1))
        console.print(Columns(numbered, column_first=True, padding=(0, 2)))


def _meant(answer: str, commands: Sequence[str]) -> str:
    """The command of a number, or the answer itself."""
    if answer.isdecimal() and 1 <= int(answer) <= len(commands):
        return commands[int(answer) - 1]
    return answer
