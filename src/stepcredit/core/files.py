"""Rollout files and credit files: JSON Lines, one episode (rollouts) or one turn (credit) a line; ``.gz`` honoured.

Reading streams: a line's text is dropped as soon as its columns are in the table. A line of the common form is read
column by column; any other line goes to ``parsing``, which reads it field by field and names what is wrong. Writing is
atomic: a file appears whole, under its name, or not at all.
"""

from __future__ import annotations

import errno
import gzip
import math
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from stepcredit.core.credit import Credit
from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import InputError
from stepcredit.core.packed import BROKEN, LONGEST_LINE, unpacked
from stepcredit.core.parsing import fault, parse_episode
from stepcredit.core.text import harmless
from stepcredit.core.turns import Turns, TurnsBuilder

STANDARD_OUTPUT = Path("-")
"""As a path to write to: standard output."""

_BUFFER = 1 << 20
_ROWS_AT_ONCE = 1 << 16
_DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""What goes wrong while bytes are written, as against faults of whoever makes them."""
_NUMBERS = {int, float}
_NOT_RECORDED = math.nan


def read_episodes(path: str | Path) -> Iterator[Episode]:
    """The episodes of a rollout file, one by one; faults that need the whole file (parents) come after the last.

    Raises:
        InputError: the file cannot be opened.
        FileFormatError: a line does not have the required form; names file, line and field.
    """
    builder = TurnsBuilder(source=str(path))
    for place, line in numbered_lines(path):
        episode = parse_episode(line, place)
        builder.add(episode)
        yield episode
    builder.build()


def read_turns(path: str | Path) -> Turns:
    """The flat table of a rollout file, without holding its episodes.

    Raises:
        InputError, FileFormatError: as ``read_episodes``.
    """
    builder = TurnsBuilder(source=str(path))
    for place, line in numbered_lines(path):
        columns = _columns(line)
        if columns is None:
            builder.add(parse_episode(line, place))
        else:
            builder.add_columns(**columns)
    return builder.build()


def write_episodes(path: str | Path, episodes: Iterable[Episode]) -> None:
    """Write a rollout file. Reading it back gives equal episodes, fields that the format does not name included.

    Raises:
        InputError: an episode holds a number that is not finite, or a value that JSON has no form for.
    """
    with open_atomic(path) as out:
        for episode in episodes:
            for index, turn in enumerate(episode.turns):
                numbers = (turn.reward, turn.penalty, turn.nll or 0.0, turn.entropy or 0.0, *(turn.logprobs or ()))
                if not all(map(math.isfinite, numbers)):
                    where = f"turn {index} of episode {episode.episode!r}"
                    raise InputError(f"Cannot write {where}: it holds a number that is not finite.")
            try:
                out.write(orjson.dumps(_episode_record(episode)) + b"\n")
            except TypeError as error:
                raise InputError(f"Episode {episode.episode!r} cannot be written as JSON: {error}.") from error


def write_credit(path: str | Path, turns: Turns, credit: Credit) -> None:
    """Write a credit file: one line a turn in the table's order; NaN (not scored) becomes null."""
    tasks = [_quoted(name) for name in turns.task_names]
    heads = [
        f'{{"task":{tasks[task]},"episode":{_quoted(name)},"turn":'
        for task, name in zip(turns.episode_task.tolist(), turns.episode_names, strict=True)
    ]
    columns: list[NDArray[Any]] = [turns.turn, credit.advantage, *credit.components.values()]
    with open_atomic(path) as out:
        for start in range(0, len(turns), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            pieces: list[Iterable[str]] = [map(heads.__getitem__, turns.episode[rows].tolist())]
            for column, after in zip(columns, _separators(credit), strict=True):
                pieces += _number_texts(column[rows]), repeat(after)
            # One join for tens of thousands of lines: no Python code runs per turn.
            out.write("".join(chain.from_iterable(zip(*pieces, strict=False))).encode())


@contextmanager
def open_atomic(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write bytes to, compressed where the name ends in ``.gz``.

    The bytes go to a neighbour file that takes the name's place once all is written and on disk; after an error
    nothing is left behind and an older file of that name is untouched. Standard output and special files (devices,
    pipes) are written directly.

    Raises:
        InputError: the file cannot be created, or the disk holds no more.
    """
    path = Path(path)
    try:
        with _standard_output() if path == STANDARD_OUTPUT else _replacing(path) as out:
            yield out
    except OSError as error:
        if error.errno not in _DISK_FAULTS:
            raise
        raise InputError(f"Cannot write {str(path)!r}: {error.strerror}.") from error


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """Standard output for bytes, flushed at the end."""
    if sys.stdout is None:
        raise InputError("Cannot write standard output: it is closed.")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.errno in _DISK_FAULTS:
            # What is still buffered has no place either; Python would try once more when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A neighbour of the file, which takes its place when all went well; a special file itself."""
    place = path.resolve()
    special = place.exists() and not place.is_file()
    # A name of its own, whoever else writes the same file at the same time: the last to finish wins, whole.
    partial = place if special else place.with_name(f".{place.name}.{secrets.token_hex(4)}.partial")
    try:
        raw = partial.open("wb", buffering=_BUFFER)
    except OSError as error:
        raise InputError(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    try:
        with raw:
            if path.suffix == ".gz":
                # No name and no time inside, so that equal content gives equal bytes.
                with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield raw
            if not special:
                raw.flush()
                os.fsync(raw.fileno())
        if not special:
            partial.replace(place)
    except BaseException:
        if not special:
            with suppress(OSError):  # a disk that turned read-only keeps even this
                partial.unlink(missing_ok=True)
        raise


def numbered_lines(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Each line with its ``FILE:LINE``; the line feed at the end of the file starts no further line."""
    path, number = Path(path), 0
    try:
        with path.open("rb", buffering=_BUFFER) as raw:
            file: IO[bytes] = raw
            if path.suffix == ".gz":
                file = unpacked(raw, path, _BUFFER)
            while line := file.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE:
                    got = f"a line of {LONGEST_LINE} bytes or more"
                    raise fault(f"{path}:{number}", "line", got, "one episode a line")
                yield f"{path}:{number}", line
    except BROKEN as error:
        raise fault(f"{path}:{number + 1}", "line", f"broken gzip data ({error})", "a whole gzip file") from None
    except OSError as error:
        raise InputError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error


def _columns(line: bytes) -> dict[str, Any] | None:
    """The columns of a line that has the common form, None where anything is unusual: ``parsing`` then decides.

    Per turn this does no more than a few list comprehensions and set look-ups, which is what makes reading fast.
    """
    try:
        record = orjson.loads(line)
        turns = record["turns"]
        observations = [turn["observation"] for turn in turns]
        states = [turn.get("state", seen) for turn, seen in zip(turns, observations, strict=True)]
        actions = [turn["action"] for turn in turns]
        reward = [turn.get("reward", 0.0) for turn in turns]
        penalty = [turn.get("penalty", 0.0) for turn in turns]
        entropy = [turn.get("entropy", _NOT_RECORDED) for turn in turns]
        nll = [turn.get("nll", _NOT_RECORDED) for turn in turns]
        valid = [turn.get("valid", True) for turn in turns]
        logprobs = [turn["logprobs"] for turn in turns if "logprobs" in turn]
        link, score = record["parent"], record.get("score", _NOT_RECORDED)
        texts = [*observations, *states, *actions, record["task"], record["episode"], record["final_observation"]]
        texts.append(record.get("stop", ""))
        truths = [*valid, record["success"]]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    numbers = [*reward, *penalty, *entropy, *nll, score]
    for values in logprobs:
        if type(values) is not list:
            return None
        numbers += values
    if not (
        turns
        and set(map(type, texts)) == {str}
        and set(map(type, numbers)) <= _NUMBERS
        and set(map(type, truths)) == {bool}
        and min(penalty) >= 0
        and not (score < 0 or score > 1)
    ):
        return None
    if logprobs:
        nll = [_mean_nll(turn) for turn in turns]
    parent = None
    if link is not None:
        if type(link) is not dict or type(link.get("episode")) is not str or type(link.get("turn")) is not int:
            return None
        parent = Parent(link["episode"], link["turn"])
    return {
        "task": record["task"],
        "episode": record["episode"],
        "parent": parent,
        "states": states,
        "actions": actions,
        "reward": reward,
        "penalty": penalty,
        "nll": nll,
        "entropy": entropy,
        "valid": valid,
        "final_state": record["final_observation"],
        "success": record["success"],
        "score": score,
    }


def _mean_nll(turn: dict[str, Any]) -> float:
    """The same number as ``Turn.mean_nll``, from checked JSON."""
    if "nll" in turn:
        return cast(float, turn["nll"])
    values = turn.get("logprobs")
    return -sum(values) / len(values) if values else _NOT_RECORDED


def _quoted(name: str) -> str:
    """A name in JSON that a terminal can be shown."""
    return harmless(orjson.dumps(name).decode())


def _separators(credit: Credit) -> list[str]:
    """What stands after the turn, after the advantage and after each component of a line."""
    separators = [',"advantage":', ',"components":{']
    for index, name in enumerate(credit.components):
        separators[-1] += f"{',' if index else ''}{orjson.dumps(name).decode()}:"
        separators.append("")
    separators[-1] += "}}\n"
    return separators


def _number_texts(column: NDArray[Any]) -> Sequence[str]:
    """Each number of a column as JSON with all its digits, NaN as null; one call for the whole column."""
    packed = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY)
    return packed[1:-1].decode().split(",")


def _episode_record(episode: Episode) -> dict[str, Any]:
    optional = {"score": episode.score, "stop": episode.stop}
    parent = episode.parent
    return {
        "task": episode.task,
        "episode": episode.episode,
        "parent": None if parent is None else {"episode": parent.episode, "turn": parent.turn},
        "turns": [_turn_record(turn) for turn in episode.turns],
        "final_observation": episode.final_observation,
        "success": episode.success,
        **{name: value for name, value in optional.items() if value is not None},
        **episode.extra,
    }


def _turn_record(turn: Turn) -> dict[str, Any]:
    optional = {"nll": turn.nll, "logprobs": turn.logprobs, "entropy": turn.entropy, "state": turn.state}
    return {
        "observation": turn.observation,
        "action": turn.action,
        "reward": turn.reward,
        "penalty": turn.penalty,
        "valid": turn.valid,
        **{name: value for name, value in optional.items() if value is not None},
        **turn.extra,
    }
