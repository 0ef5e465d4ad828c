"""Known names in texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD = re.compile(r"[^\W_]+")


def name_key(text: str) -> str:
    """The words of a text in lower case, one space between them: what makes two spellings one name."""
    return " ".join(_WORD.findall(text.lower()))


class NameFinder:
    """Finds which of some names a text mentions.

    Args:
        names: as they are to be reported.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name_key(name): name for name in names}
        self._longest = max((key.count(" ") + 1 for key in self._names), default=0)

    def __call__(self, text: str) -> frozenset[str]:
        """The names whose words occur in the text one after the other."""
        words = _WORD.findall(text.lower())
        runs = (
            " ".join(words[first:end])
            for first in range(len(words))
            for end in range(first + 1, min(first + self._longest, len(words)) + 1)
        )
        return frozenset(self._names[run] for run in runs if run in self._names)
