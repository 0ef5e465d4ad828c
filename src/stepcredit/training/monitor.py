"""Where progress goes while a run works."""

from __future__ import annotations

from typing import Protocol


class Monitor(Protocol):
    """Where progress is shown."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""
        ...

    def advance(self, done: int, note: str) -> None:
        """``done`` steps of the stage are finished; ``note`` says how it goes."""
        ...

    def say(self, text: str) -> None:
        """One line for the reader."""
        ...


class Silent:
    """Shows nothing."""

    def stage(self, name: str, total: int) -> None:
        """Ignored."""

    def advance(self, done: int, note: str) -> None:
        """Ignored."""

    def say(self, text: str) -> None:
        """Ignored."""
