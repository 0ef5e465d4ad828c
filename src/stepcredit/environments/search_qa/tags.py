"""The tags of an episode: what the agent says, and how evidence is shown to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stepcredit.environments.protocol import PLACEHOLDER
from stepcredit.environments.search_qa.corpus import Passage

Kind = Literal["search", "answer"]

FREE_COMMANDS = (f"<answer>{PLACEHOLDER}</answer>", f"<search>{PLACEHOLDER}</search>")
"""Stand for every answer and every search among admissible commands."""
NOT_UNDERSTOOD = (
    "This was neither one search nor one answer. Put the words to search for between <search> and </search>, or the "
    "final answer between <answer> and </answer>."
)

_TAG = re.compile(r"<(/?)(search|answer)>", re.IGNORECASE)
# What belongs to the conversation itself must not come out of a passage.
_OURS = re.compile(r"<(?=/?(?:search|answer|information|think|action)>)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Command:
    """A search for words, or the final answer."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"<{self.kind}>{self.text}</{self.kind}>"


def parse_command(text: str) -> Command | None:
    """The one command of a text: exactly one kind of tag, opened once and closed once, around something.

    What stands outside the tags does not count. None for everything else.
    """
    tags = list(_TAG.finditer(text))
    if len(tags) != 2:
        return None
    opening, closing = tags
    kind = opening[2].lower()
    content = " ".join(text[opening.end() : closing.start()].split())
    if opening[1] or not closing[1] or closing[2].lower() != kind or not content:
        return None
    return Command("search" if kind == "search" else "answer", content)


def show_evidence(passages: Sequence[Passage]) -> str:
    """Passages as the agent sees them: numbered, titled, between ``<information>`` tags."""
    lines = [
        f"Doc {number}(Title: {_defuse(passage.title)}) {_defuse(passage.text)}"
        for number, passage in enumerate(passages, 1)
    ]
    return "<information>{}</information>".format("\n".join(lines) or "Nothing found.")


def _defuse(text: str) -> str:
    return _OURS.sub("&lt;", text)
