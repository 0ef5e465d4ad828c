"""Texts from outside that everything downstream can write."""

from __future__ import annotations


def writable(text: str) -> str:
    """The text with U+FFFD in place of every surrogate without its partner, which UTF-8 cannot express."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
