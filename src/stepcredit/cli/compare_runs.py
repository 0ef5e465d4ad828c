"""``stepcredit compare-runs``: one HTML file that lays runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path

from stepcredit.report.compare import compare_report
from stepcredit.report.page import write_page
from stepcredit.report.plots import write_figures


def compare_runs(*runs: Path, out: Path = Path(), figures: Path | None = None) -> None:
    """Write report.html with the runs on the same axes, and their differences from the first with intervals.

    Args:
        runs: two or more run folders.
        out: folder for report.html; the current one by default.
        figures: also write every figure into this folder as PNG and SVG, with its numbers as CSV.
    """
    about = compare_report(runs)
    sys.stdout.write(f"{write_page(about, out)}\n")
    if figures is not None:
        write_figures(about, figures)
