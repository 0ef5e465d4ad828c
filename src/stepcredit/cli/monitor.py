"""Progress for a person: a bar with rate and time left on a terminal, plain lines elsewhere. All on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stepcredit.cli.console import Console

PLAIN_EVERY = 10.0
"""Seconds between plain progress lines, so that logs stay readable."""


class ConsoleMonitor:
    """Shows stages and lines; use as a context manager so that the bar is cleaned up."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._name = ""
        self._total = 0
        self._began = 0.0
        self._spoke = 0.0
        self._first = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""
        self._name, self._total, self._first = name, total, -1
        self._began = self._spoke = time.monotonic()
        if not self._bar.disable:
            self._task = self._bar.add_task(name, total=total, note="")

    def advance(self, done: int, note: str) -> None:
        """``done`` steps of the stage are finished."""
        if not self._bar.disable:
            if self._task is not None:
                self._bar.update(self._task, completed=done, note=note)
            return
        if self._first < 0:
            self._first = done - 1  # a resumed stage begins in the middle; the rate counts this process's steps
        now = time.monotonic()
        if now - self._spoke >= PLAIN_EVERY or done == self._total:
            rate = (done - self._first) / max(now - self._began, 1e-9)
            left = (self._total - done) / rate
            self._console.print(
                f"{self._name} {done}/{self._total}  {rate:.2g}/s  {left:.0f} s left  {note}",
                soft_wrap=True,
            )
            self._spoke = now

    def say(self, text: str) -> None:
        """One line for the reader."""
        self._console.print(text, soft_wrap=True)
