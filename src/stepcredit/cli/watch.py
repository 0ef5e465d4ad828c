"""``stepcredit watch``: a live run in the terminal."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.live import Live

from stepcredit.cli.console import Console
from stepcredit.core.errors import OptionError
from stepcredit.report.watch import snapshot


def watch(
    run: Path,
    *,
    every: float = 2.0,
    once: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show a run while it trains: curves, the newest task groups, warnings. Ends with the run, or with Ctrl-C.

    Args:
        run: run folder.
        every: seconds between two looks.
        once: show it once and end.
    """
    if not 0 < every < math.inf:
        raise OptionError(f"--every: got {every}, expected a finite number of seconds above 0.")
    console = Console()
    view, finished = snapshot(run)
    if once or finished:
        console.print(view)
        return
    with Live(view, console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while not finished:
            time.sleep(every)
            view, finished = snapshot(run)
            live.update(view, refresh=True)
    console.print(view)
