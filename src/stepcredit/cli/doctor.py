"""``stepcredit doctor``: which training engines are here, and whether they would use stepcredit."""

from __future__ import annotations

import json as jsonlib
import platform
import sys

from stepcredit import __version__
from stepcredit.cli.console import Console
from stepcredit.integrations.engines.examine import Report, examine_all

PROBLEM = 1
"""Exit status where an installed engine would not use stepcredit."""


def doctor(*, json: bool = False) -> None:
    """Say which engines are installed, which versions are supported, and whether our plugin is registered in them.

    Exits with status 1 where an installed engine would not use stepcredit: verl in particular says nothing itself.

    Args:
        json: print JSON on standard output instead of lines.
    """
    reports = examine_all()
    if json:
        engines = [_plain(report) for report in reports]
        here = {"stepcredit": __version__, "python": platform.python_version(), "engines": engines}
        sys.stdout.write(jsonlib.dumps(here, ensure_ascii=False) + "\n")
    else:
        console = Console()
        console.print(f"stepcredit {__version__}, Python {platform.python_version()}")
        for report in reports:
            console.print(_heading(report))
            for line in report.works:
                console.print(f"  works: {line}", soft_wrap=True)
            for line in report.problems:
                console.print(f"  PROBLEM: {line}", soft_wrap=True)
    if any(report.problems for report in reports):
        sys.exit(PROBLEM)


def _heading(report: Report) -> str:
    if report.version is None:
        return f"{report.engine.name}: not installed (supported: {report.engine.supported})"
    return f"{report.engine.name} {report.version}"


def _plain(report: Report) -> dict[str, object]:
    return {
        "name": report.engine.name,
        "installed": report.version,
        "supported": report.engine.supported,
        "works": list(report.works),
        "problems": list(report.problems),
    }
