"""Text from rollouts, made harmless to look at: nothing hidden, nothing that reorders a line, nothing endless."""

from __future__ import annotations

from stepcredit.core.text import HIDDEN

LONGEST = 4_000
"""Characters of one text that a page holds."""


def visible(text: str, longest: int = LONGEST) -> str:
    """The text with hidden characters written as escapes, and cut after ``longest`` characters, which it then says."""
    shown = HIDDEN.sub(lambda match: f"\\u{{{ord(match[0]):x}}}", text[:longest])
    return shown if len(text) <= longest else f"{shown} … [{len(text) - longest:,} more characters]"


class StringTable(dict[str, int]):
    """Numbers texts in order of first appearance, so that a page holds each text once."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def texts(self) -> list[str]:
        """The visible form of every text, by number."""
        return [visible(text) for text in self]
