"""``stepcredit report``: one HTML file about a run or about rollout files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stepcredit.report.batch import METHODS
from stepcredit.report.page import write_page
from stepcredit.report.plots import write_figures
from stepcredit.report.sources import report_about


def report(
    *sources: Path,
    out: Path | None = None,
    figures: Path | None = None,
    method: Annotated[list[str] | None, Parameter(negative="")] = None,
) -> None:
    """Write report.html: a run's curves, its task graphs, physical trees and episodes, and where credit went.

    Args:
        sources: one run folder; or rollout files, and credit files that `stepcredit assign` wrote for them.
        out: folder for report.html; the run folder by default, the current folder for files.
        figures: also write every figure into this folder as PNG and SVG, with its numbers as CSV.
        method: credit method to show, may be repeated; options follow a colon: graft:lam=0.8. Default: the common ones.
    """
    about = report_about(sources, tuple(method) if method is not None else METHODS)
    folder = out or (sources[0] if sources[0].is_dir() else Path())
    sys.stdout.write(f"{write_page(about, folder)}\n")
    if figures is not None:
        write_figures(about, figures)
