"""``stepcredit envs``: the environments, their splits and their options."""

from __future__ import annotations

import sys
from typing import Any

import orjson
from rich.table import Table
from rich.text import Text

from stepcredit.cli.console import Console
from stepcredit.core.errors import StepcreditError
from stepcredit.environments.catalogue import ENVIRONMENTS, find_environment, make_suite


def envs(name: str | None = None, *, json: bool = False) -> None:
    """List the environments, or one environment's splits and options.

    Args:
        name: an environment, or `module:Class` of your own; without it all are listed.
        json: print JSON on standard output.
    """
    described = [_describe(one) for one in ([name] if name is not None else ENVIRONMENTS)]
    if json:
        sys.stdout.write(orjson.dumps(described if name is None else described[0]).decode() + "\n")
        return
    console = Console()
    for one in described:
        _print(console, one)


def _describe(name: str) -> dict[str, Any]:
    """Summary, splits with their number of tasks under default options, and options."""
    entry = find_environment(name)
    options = [
        {"name": option.name, "type": option.type_name, "default": option.default, "meaning": option.meaning}
        for option in entry.options().values()
    ]
    described: dict[str, Any] = {"name": name, "summary": entry.summary, "options": options}
    try:
        suite = make_suite(name)
        described["horizon"] = suite.horizon
        described["splits"] = {split: len(suite.tasks(split)) for split in suite.splits()}
    except StepcreditError as error:
        described["splits"] = {}
        described["unavailable"] = str(error)
    return described


def _print(console: Console, described: dict[str, Any]) -> None:
    console.print(Text.assemble((described["name"], "bold"), f"  {described['summary']}"))
    splits = ", ".join(f"{split} {count}" for split, count in described["splits"].items())
    console.print(f"  tasks by default: {splits or described['unavailable']}")
    table = Table(box=None, padding=(0, 2))
    for column in ("option", "type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for option in described["options"]:
        default = "" if option["default"] is None else orjson.dumps(option["default"]).decode()
        table.add_row(option["name"], option["type"], default, option["meaning"])
    console.print(table)
