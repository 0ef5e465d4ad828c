"""Reading gzip files of strangers: what unpacks to hundreds of times its size is refused before it fills the memory."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from stepcredit.core.errors import InputError

ALWAYS_READ = 1 << 26
"""Bytes that any file may unpack to."""
MOST_PACKED = 100
"""Unpacked bytes a packed byte may stand for beyond that. JSON packs ten- to fiftyfold, a bomb a thousandfold."""
LONGEST_LINE = 1 << 26
"""Bytes of one line: hundreds of times a long episode."""
_MAGIC = b"\x1f\x8b"
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a broken gzip file raises."""


def unpacked(raw: IO[bytes], path: Path, buffer: int = 1 << 16) -> IO[bytes]:
    """The contents of an open gzip file.

    Reading raises InputError where the file unpacks to too much, and one of ``BROKEN`` where it is no whole gzip file.
    """
    most = ALWAYS_READ + MOST_PACKED * os.fstat(raw.fileno()).st_size
    return io.BufferedReader(_Bounded(gzip.GzipFile(fileobj=raw), path, most), buffer)


def is_packed(raw: IO[bytes]) -> bool:
    """Whether an open file, at its start, is gzipped."""
    packed = raw.read(len(_MAGIC)) == _MAGIC
    raw.seek(0)
    return packed


def read_bytes(path: Path) -> bytes:
    """A whole file, unpacked where it is gzipped.

    Raises:
        InputError: it unpacks to too much.
        OSError: it cannot be read.
        EOFError, zlib.error: it is no whole gzip file.
    """
    with path.open("rb") as raw:
        return unpacked(raw, path, 1 << 20).read() if is_packed(raw) else raw.read()


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, unpacked where it is gzipped.

    Raises:
        InputError: it unpacks to too much, or a line is too long.
        OSError, EOFError, zlib.error: as for ``read_bytes``.
    """
    with path.open("rb", buffering=1 << 20) as raw:
        file = unpacked(raw, path, 1 << 20) if is_packed(raw) else raw
        while line := file.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise InputError(f"{path}: got a line of {LONGEST_LINE:,} bytes or more, expected shorter ones.")
            yield line


class _Bounded(io.RawIOBase):
    """A gzip stream that ends in an error where it has given too much."""

    def __init__(self, packed: gzip.GzipFile, path: Path, most: int) -> None:
        self._packed = packed
        self._path = path
        self._most = most
        self._given = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        count = self._packed.readinto(buffer)
        self._given += count
        if self._given > self._most:
            raise InputError(
                f"{self._path} unpacks to more than {self._given:,} bytes, {MOST_PACKED} times its size; "
                "unpack it yourself if it is to be trusted."
            )
        return count
