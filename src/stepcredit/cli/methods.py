"""``stepcredit methods``: the catalogue of credit methods, or one method in full."""

from __future__ import annotations

import json as jsonlib
import sys
from typing import Any

from rich.table import Table
from rich.text import Text

from stepcredit.cli.console import Console
from stepcredit.core.text import harmless
from stepcredit.credit.catalogue import METHODS, find_method
from stepcredit.credit.method import Method, Option


def methods(name: str | None = None, *, json: bool = False) -> None:
    """List the credit methods, or show one with its options and presets.

    Args:
        name: a method; all of them when left out.
        json: print JSON on standard output instead of tables.
    """
    chosen = [find_method(name)] if name is not None else list(METHODS.values())
    if json:
        records = [describe(method) for method in chosen]
        sys.stdout.write(
            harmless(jsonlib.dumps(records[0] if name is not None else records, ensure_ascii=False)) + "\n"
        )
    elif name is None:
        _print_catalogue(chosen)
    else:
        _print_method(chosen[0])


def describe(method: Method) -> dict[str, Any]:
    """One method as plain data."""
    return {
        "name": method.name,
        "family": method.family,
        "summary": method.summary,
        "needs": list(method.needs),
        "forest": method.forest,
        "scope": method.scope,
        "source": method.source,
        "options": [_describe_option(option) for option in method.options.values()],
        "presets": {preset: dict(options) for preset, options in method.presets.items()},
    }


def _describe_option(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "type": option.kind.__name__,
        "default": option.default,
        "expected": option.expected,
        "choices": list(option.choices),
        "meaning": option.meaning,
    }


def _print_catalogue(chosen: list[Method]) -> None:
    table = Table(title="Credit methods", caption="stepcredit methods NAME shows options, presets and source")
    for column in ("method", "family", "needs", "what it does"):
        table.add_column(column)
    for method in chosen:
        table.add_row(method.name, method.family, ", ".join(method.needs) or "–", method.summary)
    Console().print(table)


def _print_method(method: Method) -> None:
    console = Console()
    facts = Table.grid(padding=(0, 2))
    rows = {
        "family": method.family,
        "needs": ", ".join(method.needs) or "the required fields only",
        "forests": method.forest or "chains only",
        "source": method.source,
    }
    for label, text in rows.items():
        facts.add_row(Text(label, style="bold"), text)
    console.print(Text.assemble((method.name, "bold"), f": {method.summary}"))
    console.print(facts)
    if method.options:
        table = Table(title="Options (--set OPTION=VALUE)")
        for column in ("option", "default", "expected", "meaning"):
            table.add_column(column)
        for option in method.options.values():
            table.add_row(option.name, show_value(option.default), option.expected, option.meaning)
        console.print(table)
    if method.presets:
        table = Table(title="Presets (--preset NAME)")
        table.add_column("preset")
        table.add_column("options")
        for preset, options in method.presets.items():
            table.add_row(preset, ", ".join(f"{key}={show_value(value)}" for key, value in options.items()))
        console.print(table)


def show_value(value: Any) -> str:
    """A value as ``--set`` takes it."""
    if value is None:
        return "off"
    return str(value).lower() if isinstance(value, bool) else str(value)
