"""The terminal as every verb prints to it: what comes from data is shown and never obeyed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment

from stepcredit.core.text import harmless


class Console(console.Console):
    """Rich's console, for texts that anybody may have written.

    Control characters among them are spelled out, and square brackets are no markup unless a call says so.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False)

    def render(self, renderable: Any, options: console.ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is printed; only rich's own carry control codes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))
