"""What a log file holds, record by record, each with the place an error message names.

JSON Lines (``.gz`` too), one pretty-printed JSON document, and parquet all become the same ``Record``. A file streams:
one record is in memory at a time, and a line, a document or a nesting beyond every honest log is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from stepcredit.core.errors import FileFormatError, InputError
from stepcredit.core.files import numbered_lines
from stepcredit.core.parsing import Fields, decode, fault, shown
from stepcredit.integrations.optional import require

_PARQUET = b"PAR1"
_ROWS_AT_ONCE = 64
_LARGEST_DOCUMENT = 1 << 28
"""Bytes of one pretty-printed document, which is read whole."""


@dataclass(frozen=True, slots=True)
class Record(Fields):
    """One JSON object of a log: its values, its place (``FILE:LINE``), and the path to it inside the line."""

    def child(self, field: str) -> Record | None:
        """The object in a field, None where it is absent or null."""
        value = self.values.get(field)
        return None if value is None else Record(value, self.place, f"{self.prefix}{field}.")

    def children(self, field: str) -> list[Record]:
        """The objects in a required list."""
        items = self.required(field, list, "a list of JSON objects")
        return [Record(item, self.place, f"{self.prefix}{field}[{i}].") for i, item in enumerate(items)]

    def numbers(self, field: str) -> tuple[float, ...]:
        """A list of finite numbers, empty where it is absent or null."""
        items = self.optional(field, list, "a list of numbers") or []
        entries = Record({f"[{i}]": item for i, item in enumerate(items)}, self.place, f"{self.prefix}{field}")
        return tuple(entries.defaulted(entry, "a finite number") for entry in entries.values)

    def text(self, field: str) -> str:
        """A string, the text parts of a list of content parts, or nothing: what a message says.

        A part that is not text is named by its type, ``[image]``, so that two messages differ where they should.
        """
        value = self.values.get(field)
        if value is None or isinstance(value, str):
            return value or ""
        parts = []
        for part in self.children(field):
            kind = part.optional("type", str, "a string") or "text"
            parts.append(part.required("text", str, "a string") if kind == "text" else f"[{kind}]")
        return "\n".join(parts)

    def plain(self, known: frozenset[str]) -> dict[str, Any]:
        """The other fields that hold plain values: text, numbers, truths."""
        return {name: value for name, value in self.rest(known).items() if isinstance(value, str | int | float)}

    def find(self, path: str) -> Any:
        """The value at a dotted path (``task.data.idx``), None where there is none."""
        value: Any = self.values
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value


def read_records(path: Path) -> Iterator[Record]:
    """The records of a log file, in order.

    Raises:
        InputError: the file cannot be opened or holds no record.
        FileFormatError: a place of it is not what its kind of file holds; names the place.
        MissingExtraError: it is parquet and pyarrow is not installed.
    """
    try:
        with path.open("rb") as file:
            parquet = file.read(len(_PARQUET)) == _PARQUET
    except OSError as error:
        raise InputError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
    records = _parquet_rows(path) if parquet else _json_records(path)
    first = next(records, None)
    if first is None:
        raise InputError(f"{path} is empty; expected at least one record.")
    return itertools.chain([first], records)


def _json_records(path: Path) -> Iterator[Record]:
    numbered = numbered_lines(path)
    for place, line in numbered:
        if line.strip() == b"{":  # how a pretty-printed document starts, and no record of JSON Lines
            yield _document(path, line, numbered)
            return
        yield Record(decode(line, place), place, "")


def _document(path: Path, first: bytes, rest: Iterator[tuple[str, bytes]]) -> Record:
    pieces, size = [first], len(first)
    for place, line in rest:
        pieces.append(line)
        size += len(line)
        if size > _LARGEST_DOCUMENT:
            raise fault(place, "document", f"more than {_LARGEST_DOCUMENT} bytes", "a smaller document, or JSON Lines")
    whole = b"".join(pieces)
    try:
        return Record(orjson.loads(whole), f"{path}:1", "")
    except orjson.JSONDecodeError as error:
        got = f"text that is not JSON ({error.msg}, column {error.colno})"
        raise fault(f"{path}:{error.lineno}", "document", got, "one JSON document") from None


def _parquet_rows(path: Path) -> Iterator[Record]:
    """Rows of a parquet file; their place is ``FILE:ROW``, counted from 1."""
    parquet = require("pyarrow.parquet", "Reading parquet files", extra="parquet")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield Record(row, f"{path}:{number}", "")
    except FileFormatError:
        raise
    except (OSError, ValueError, MemoryError, NotImplementedError) as error:  # pyarrow's own errors refine these
        reason = " ".join(str(error).split())[:200]
        raise fault(f"{path}:{number + 1}", "row", f"broken parquet data ({reason})", "a whole parquet file") from None


def compact(value: Any, record: Record) -> str:
    """A JSON value as text, keys sorted; a string stays as it is.

    Raises:
        FileFormatError: it is nested too deeply.
    """
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        raise record.fault("value", shown(value), "JSON that is not nested as deeply") from None
