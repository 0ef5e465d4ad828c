"""Passages and the files they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stepcredit.core.errors import FileFormatError, InputError
from stepcredit.core.packed import BROKEN, lines
from stepcredit.environments.texts import writable

LONGEST_PASSAGE = 4_000
"""Characters of a passage that are shown."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage.

    Attributes:
        score: how well it fits what was searched for; comparable within one search only.
    """

    id: str
    title: str
    text: str
    score: float = 0.0

    @property
    def contents(self) -> str:
        """Title and text as corpus files write them."""
        return f'"{self.title}"\n{self.text}'


class Retriever(Protocol):
    """Finds passages."""

    def retrieve(self, query: str, limit: int) -> Sequence[Passage]:
        """The ``limit`` best passages, best first; fewer where fewer fit.

        Raises:
            EnvironmentFaultError: it cannot be reached, or answers what cannot be understood.
        """
        ...


def make_passage(identifier: str, contents: str, score: float = 0.0) -> Passage:
    """A passage from ``"Title"``, a line break, and the text; without a title the first line stands in."""
    title, _, text = writable(contents).partition("\n")
    return Passage(writable(identifier), title.strip().strip('"'), text.strip()[:LONGEST_PASSAGE], score)


class Line(NamedTuple):
    """One line of a file of JSON objects: where it stands (``FILE:LINE``), its first byte, and its object."""

    where: str
    start: int
    entry: dict[str, Any]

    def passage(self) -> Passage:
        """The line as a line of a corpus.

        Raises:
            FileFormatError: it is none.
        """
        identifier, contents = self.entry.get("id"), self.entry.get("contents")
        if not isinstance(identifier, str | int) or not isinstance(contents, str):
            raise FileFormatError(
                f'{self.where}: got fields {sorted(self.entry)}, expected "id" and "contents" as text.'
            )
        return make_passage(str(identifier), contents)


def read_corpus(path: Path) -> list[Passage]:
    """The passages of a corpus file: JSON lines ``{"id", "contents"}``, gzipped or not.

    Raises:
        InputError: the file cannot be read.
        FileFormatError: a line does not have that form.
    """
    return [line.passage() for line in read_json_lines(path)]


def read_json_lines(path: Path) -> Iterator[Line]:
    """Every line that is not blank.

    Raises:
        InputError: the file cannot be read.
        FileFormatError: a line is not a JSON object.
    """
    start = 0
    try:
        for number, line in enumerate(lines(path), 1):
            if line.strip():
                yield Line(f"{path}:{number}", start, _object(f"{path}:{number}", line))
            start += len(line)
    except (OSError, *BROKEN) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}; expected JSON lines.") from None


def is_packed(path: Path) -> bool:
    """Whether a file is gzipped."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _object(where: str, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: not JSON ({error}); expected one object a line.") from None
    if not isinstance(entry, dict):
        raise FileFormatError(f"{where}: got a {type(entry).__name__}, expected a JSON object.")
    return entry
