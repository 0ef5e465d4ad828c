"""Tables a person reads, and the same as JSON."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from stepcredit.training.run_folder import RunFolder


def print_evaluations(run: RunFolder, *, json: bool) -> None:
    """Success by family at every moment of a run: a table, or JSON on standard output."""
    lines = [line for line in run.metrics() if line["kind"] == "evaluation"]
    if json:
        sys.stdout.write(jsonlib.dumps({"run": str(run.path), "evaluations": lines}, ensure_ascii=False) + "\n")
        return
    console = Console()
    for split in dict.fromkeys(line["split"] for line in lines):
        moments = {line["moment"]: line["families"] for line in lines if line["split"] == split}
        table = Table(title=f"Success on {split} (95 % interval over tasks)")
        table.add_column("family")
        for moment in moments:
            table.add_column(moment, justify="right")
        for family in next(iter(moments.values())):
            table.add_row(family, *(_cell(families.get(family)) for families in moments.values()))
        console.print(table)
    console.print(f"Run folder: {run.path}", markup=False, soft_wrap=True)


def print_families(title: str, families: Mapping[str, Mapping[str, Any]]) -> None:
    """One evaluation: a row a family."""
    table = Table(title=f"{title} (95 % interval over tasks)")
    table.add_column("family")
    for column in ("success", "score", "turns", "valid", "horizon", "tasks"):
        table.add_column(column, justify="right")
    for family, row in families.items():
        rest = (f"{row['score']:.3f}", f"{row['turns']:.1f}", f"{row['valid']:.1%}", f"{row['horizon']:.1%}")
        table.add_row(family, _cell(row), *rest, str(row["tasks"]))
    Console().print(table)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    success = row["success"]
    return f"{success['mean']:.1%} [{success['low']:.1%}, {success['high']:.1%}]"
