"""Text from outside, made harmless to print: nothing hidden, nothing that moves the cursor or reorders a line."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Control characters but tab and line feed, marks that change the direction of writing, characters without width."""


def harmless(text: str) -> str:
    r"""The text with hidden characters spelled out as JSON spells them, ``\u001b``: JSON stays JSON and means the same.

    A terminal would obey the control characters among them.
    """
    return text if text.isascii() and text.isprintable() else HIDDEN.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))
