"""Tables a person reads, and the same as JSON."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from stepcredit.cli.console import Console
from stepcredit.core.text import harmless
from stepcredit.evaluation.intervals import Interval
from stepcredit.training.run_folder import RunFolder


def print_evaluations(run: RunFolder, *, json: bool) -> None:
    """Success by family at every moment of a run: a table, or JSON on standard output."""
    lines = [line for line in run.metrics() if line["kind"] == "evaluation"]
    if json:
        sys.stdout.write(
            harmless(jsonlib.dumps({"run": str(run.path), "evaluations": lines}, ensure_ascii=False)) + "\n"
        )
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
    console.print(f"Run folder: {run.path}", soft_wrap=True)


def interval_cell(interval: Interval) -> str:
    """A share with its interval."""
    return f"{interval.mean:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def _cell(row: Mapping[str, Any] | None) -> str:
    return "–" if row is None else interval_cell(Interval(**row["success"]))
