"""``stepcredit compare``: two evaluations, paired task by task."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path

from rich.table import Table

from stepcredit.cli.console import Console
from stepcredit.core.text import harmless
from stepcredit.evaluation.compare import Comparison, compare_evaluations
from stepcredit.evaluation.folder import load_evaluation
from stepcredit.evaluation.intervals import Interval


def compare(first: Path, second: Path, *, resamples: int | None = None, json: bool = False) -> None:
    """Print by how much the second evaluation differs from the first on the same tasks, with a paired interval.

    Args:
        first: folder of `stepcredit evaluate`.
        second: another one, played under the same protocol on the same tasks.
        resamples: whole-task bootstrap draws; those of the protocol by default.
        json: print JSON on standard output instead of the table.
    """
    compared = compare_evaluations(load_evaluation(first), load_evaluation(second), resamples=resamples)
    if json:
        named = {"first": str(first), "second": str(second), **compared.to_json()}
        sys.stdout.write(harmless(jsonlib.dumps(named, ensure_ascii=False)) + "\n")
    else:
        Console().print(_table(compared, f"first: {first}\nsecond: {second}"))


def _table(compared: Comparison, caption: str) -> Table:
    """A row a family; the score only where it says more than success does."""
    graded = any(row.score != row.difference for row in compared.families.values())
    table = Table(title="Second against first (95 % interval over tasks)", caption=caption)
    table.add_column("family")
    for column in ("first", "second", "difference", *(["score"] if graded else []), "wins", "ties", "losses"):
        table.add_column(column, justify="right", no_wrap=column == "difference")
    for family, row in compared.families.items():
        table.add_row(
            family,
            f"{row.first:.1%}",
            f"{row.second:.1%}",
            _signed(row.difference),
            *([f"{row.score.mean:+.3f}"] if graded else []),
            *map(str, (row.wins, row.ties, row.losses)),
        )
    return table


def _signed(difference: Interval) -> str:
    return f"{difference.mean:+.1%} [{difference.low:+.1%}, {difference.high:+.1%}]"
