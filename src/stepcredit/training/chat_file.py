"""A growing chat file that can be continued: tasks are whole or not there.

    OUT                  the conversations
    OUT.progress.jsonl   what was asked for, then one line a finished task, successful or not

A task's conversations are written before its line of progress. After a kill, conversations of a task without such a
line are dropped, and the task is played again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from stepcredit.core.errors import CheckpointError, InputError, OptionError
from stepcredit.core.lock import hold
from stepcredit.training.chats import Chat


@contextmanager
def collecting(path: Path) -> Iterator[None]:
    """Hold a chat file for one collection; its own two files are replaced by name, so the lock is a third, hidden one.

    Raises:
        CheckpointError: another collection writes the file, or the disk refuses.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = lock.open("wb")
    except OSError as error:
        raise CheckpointError(f"Cannot write {str(path)!r}: {error.strerror}.") from None
    with opened:
        hold(opened.fileno(), path, what="collection", way_out="wait for it, or choose another file")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


class ChatFile:
    """The file and its progress.

    Attributes:
        done: finished tasks, each with its line of progress.

    Args:
        path: where the conversations go.
        settings: what decides what they are; a file is only continued with the same.

    Raises:
        OptionError: the file is there, and was made with other settings or by something else.
        InputError: the file or its progress is not as it was written.
        CheckpointError: the disk refuses.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._progress = path.with_name(f"{path.name}.progress.jsonl")
        self.done: dict[str, dict[str, Any]] = {}
        asked = orjson.dumps(settings)
        lines = _whole_lines(self._progress) if path.exists() else []  # progress alone has nothing to continue
        if not lines:
            if path.exists():
                raise OptionError(f"{str(path)!r} is there already and cannot be continued; choose another file.")
            _replace(self._progress, [asked])
            _replace(path, [])
            return
        try:
            self._continue(lines, asked)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{str(path)!r} or its progress is not as it was written; restore both, or choose another file."
            ) from None

    def _continue(self, lines: list[bytes], asked: bytes) -> None:
        """Take up the finished tasks of a file that was begun with the same settings."""
        path = self._path
        before, now = orjson.loads(lines[0]), orjson.loads(asked)
        other = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        finished = lines[1:]
        if other and finished:
            raise OptionError(
                f"{str(path)!r} was begun with another {', '.join(other)}; repeat that command to continue it, "
                "or choose another file."
            )
        self.done = {str(row["task"]): row for row in map(orjson.loads, finished)}
        _replace(self._progress, [asked, *finished])
        _replace(path, [line for line in _whole_lines(path) if orjson.loads(line)["task"] in self.done])

    def add(self, task: str, chats: Iterable[Chat], outcome: Mapping[str, Any]) -> None:
        """Keep what became of a task.

        Raises:
            CheckpointError: the disk refuses.
        """
        row = {"task": task, **outcome}
        _append(self._path, b"".join(chat.to_json() for chat in chats))
        _append(self._progress, orjson.dumps(row) + b"\n")
        self.done[task] = row


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a file that end in a line break; none where there is no file."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"Cannot read {str(path)!r}: {error.strerror}.") from None


def _append(path: Path, data: bytes) -> None:
    try:
        with path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CheckpointError(f"Cannot write {str(path)!r}: {error.strerror}.") from None


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        _append(partial, b"".join(line + b"\n" for line in lines))
        partial.replace(path)
    except OSError as error:
        raise CheckpointError(f"Cannot write {str(path)!r}: {error.strerror}.") from None
    finally:
        partial.unlink(missing_ok=True)
