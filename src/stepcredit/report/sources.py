"""What a report is about: a run folder, or rollout files with credit files that belong to them."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stepcredit.core.credit import Credit
from stepcredit.core.episodes import Episode
from stepcredit.core.errors import FileFormatError, InputError
from stepcredit.core.files import read_episodes
from stepcredit.core.packed import BROKEN, lines
from stepcredit.report.batch import METHODS, make_batch
from stepcredit.report.page import Report
from stepcredit.report.runs import run_report

Key = tuple[str, int]
"""Episode and its own turn."""


def report_about(paths: Sequence[Path], methods: Sequence[str] = METHODS) -> Report:
    """The report of one run, or of one or more rollout files with any number of credit files.

    Raises:
        InputError: a file that is neither, a run beside other sources, or credit that fits none of the rollout files.
        FileFormatError: a line that does not have the required form.
    """
    runs = [path for path in paths if path.is_dir()]
    if runs and len(paths) > 1:
        raise InputError(f"Got {str(runs[0])!r} beside other sources; report on one run, or lay runs side by side.")
    if runs:
        return run_report(runs[0], methods)
    rollouts = {path: list(read_episodes(path)) for path in paths if not _is_credit(path)}
    if not rollouts:
        raise InputError("Got no rollout file; expected the rollouts that the credit was computed from as well.")
    if not any(rollouts.values()):
        raise InputError(f"{', '.join(map(str, rollouts))}: no episode to report on.")
    given: dict[Path, dict[str, Credit]] = {path: {} for path in rollouts}
    for path in paths:
        if path not in rollouts:
            owner, credit = _credit_of(path, rollouts)
            given[owner][_stem(path)] = credit
    batches = [make_batch(_stem(path), episodes, methods, given=given[path]) for path, episodes in rollouts.items()]
    episodes = sum(len(batch.episodes) for batch in batches)
    won = sum(int(batch.turns.success.sum()) for batch in batches)
    turns = sum(len(batch.turns) for batch in batches)
    return Report(
        title=", ".join(batch.name for batch in batches),
        facts={"files": str(len(rollouts)), "task groups": str(sum(len(one.turns.task_names) for one in batches))},
        headline={"episodes": f"{episodes:,}", "won": f"{won / episodes:.1%}", "turns": f"{turns:,}"},
        figures=[],
        warnings=[f"{batch.name}: {warning}" for batch in batches for warning in batch.warnings],
        batches=batches,
    )


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _is_credit(path: Path) -> bool:
    """Whether the first line has the form of a credit file; a rollout file is judged by its own reader."""
    with closing(_records(path)) as records:
        first = next(records, None)
    return first is not None and "advantage" in first[1] and "turns" not in first[1]


def _records(path: Path) -> Generator[tuple[str, dict[str, Any]]]:
    """Each line's ``FILE:LINE`` and its JSON object."""
    try:
        for number, line in enumerate(lines(path), 1):
            record = orjson.loads(line)
            if not isinstance(record, dict):
                raise FileFormatError(f"{path}:{number}: line: got a JSON value, expected an object a line.")
            yield f"{path}:{number}", record
    except orjson.JSONDecodeError as error:
        raise FileFormatError(f"{path}: line: not JSON ({error}); expected a rollout file or a credit file.") from None
    except (OSError, *BROKEN) as error:
        raise InputError(f"Cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}.") from None


def _credit_of(path: Path, rollouts: dict[Path, list[Episode]]) -> tuple[Path, Credit]:
    """The rollout file that a credit file was computed from, and the credit in the order of its turns."""
    keys, columns = _read_credit(path)
    for owner, episodes in rollouts.items():
        expected = [(episode.episode, turn) for episode in episodes for turn in range(len(episode.turns))]
        if keys.keys() == set(expected):
            rows = [keys[key] for key in expected]
            arrays = {name: np.array(values, dtype=np.float64)[rows] for name, values in columns.items()}
            return owner, Credit(arrays.pop("advantage"), arrays)
    raise InputError(
        f"{str(path)!r} has credit for {len(keys)} turns that are not those of any rollout file given; name the file "
        "it was computed from."
    )


def _read_credit(path: Path) -> tuple[dict[Key, int], dict[str, list[float]]]:
    """Row of each turn, and advantage and components by row; NaN where a turn was not scored."""
    keys: dict[Key, int] = {}
    columns: dict[str, list[float]] = {"advantage": []}
    for row, (place, record) in enumerate(_records(path)):
        try:
            keys[str(record["episode"]), int(record["turn"])] = row
            values = {"advantage": record["advantage"], **record.get("components", {})}
            if row == 0:
                columns = {name: [] for name in values}
            for name, column in columns.items():
                column.append(math.nan if values[name] is None else float(values[name]))
        except (KeyError, TypeError, ValueError):
            raise FileFormatError(
                f"{place}: got a line without episode, turn, advantage or a component of the first line, expected "
                "a line of a credit file."
            ) from None
    return keys, columns
