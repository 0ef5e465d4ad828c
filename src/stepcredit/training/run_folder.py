"""The run folder: nothing half-written is ever read as whole, and a kill at any moment loses at most one update.

    RUN/config.json            the resolved recipe
    RUN/metrics.jsonl          one line per imitation epoch, update and evaluation; same seed, same bytes
    RUN/timing.jsonl           seconds per stage of every update (never bit-equal, so apart from the metrics)
    RUN/rollouts/000001.jsonl.gz   the episodes of every update
    RUN/evaluations/*.jsonl.gz     the episodes of every evaluation
    RUN/checkpoints/000001/    policy, optimiser and progress after that step; the newest two are kept

Files are written beside their place and renamed into it. A checkpoint's folder is renamed last, after the metrics line
of its step; resuming therefore drops metrics lines that are newer than the checkpoint and computes them again. What a
kill left behind half-written carries another name, ``*.partial``, and is removed when the run goes on.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from stepcredit.core.errors import CheckpointError
from stepcredit.core.files import write_episodes
from stepcredit.core.lock import hold
from stepcredit.core.objects import as_written, read_object
from stepcredit.rollouts.types import Rollout

KEEP = 2
"""Checkpoints kept: the newest, and one before it in case the disk lied about the newest."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come: the number of finished steps of each stage. ``step`` orders checkpoints."""

    imitation_epochs: int = 0
    imitation_done: bool = False
    updates: int = 0

    @property
    def step(self) -> int:
        """Finished steps of all stages together."""
        return self.imitation_epochs + int(self.imitation_done) + self.updates


class RunFolder:
    """One run's folder, locked while open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        """Lock the folder, made where it is absent, and remove what a kill left half-written.

        Raises:
            CheckpointError: another training holds it, or nothing can be written there.
        """
        with _refusals(f"use {str(self.path)!r} as a run folder"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path / "lock")
            for left in sorted(self.path.rglob("*.partial")):
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
            self._forget_old_checkpoints()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()

    # Configuration.

    @property
    def config_file(self) -> Path:
        """The resolved recipe."""
        return self.path / "config.json"

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Store the resolved recipe of a new run.

        Raises:
            CheckpointError: the folder already holds a run.
        """
        if self.config_file.exists():
            raise CheckpointError(
                f"{str(self.path)!r} already holds a run; continue it with --resume, or choose another --out."
            )
        with _refusals(f"write {str(self.config_file)!r}"):
            _write_text(self.config_file, json.dumps(config, indent=2, ensure_ascii=False) + "\n")

    def read_config(self) -> dict[str, Any]:
        """The resolved recipe of an existing run.

        Raises:
            CheckpointError: no run here, or its recipe cannot be read.
        """
        return read_object(self.config_file, absent=f"{str(self.path)!r} holds no run: config.json is missing.")

    # Metrics.

    def log(self, line: Mapping[str, Any], *, name: str = "metrics") -> None:
        """Append one line to ``metrics.jsonl`` (or ``NAME.jsonl``); numbers that are not finite become null.

        Raises:
            CheckpointError: the disk refuses.
        """
        file = self.path / f"{name}.jsonl"
        with _refusals(f"write {str(file)!r}"), file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(_finite(line), ensure_ascii=False, allow_nan=False) + "\n")

    def metrics(self, name: str = "metrics") -> list[dict[str, Any]]:
        """All whole lines of ``metrics.jsonl`` (or ``NAME.jsonl``); a line cut short by a kill is left out.

        Raises:
            CheckpointError: the file cannot be read, or a whole line is no JSON object.
        """
        file = self.path / f"{name}.jsonl"
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"Cannot read {str(file)!r}: {error.strerror}.") from None
        lines: list[dict[str, Any]] = []
        for number, line in enumerate(text.split("\n")[:-1], 1):
            try:
                lines.append({**json.loads(line)})
            except (ValueError, TypeError, RecursionError) as error:
                raise CheckpointError(
                    f"{file}:{number}: expected a JSON object ({error}); restore the line or remove it."
                ) from None
        return lines

    def as_written(self) -> AbstractContextManager[None]:
        """While a reader looks into recipe and log: a field that is missing or of another kind is a CheckpointError."""
        what = f"The recipe or the log of {str(self.path)!r} is not as training writes it"
        return as_written(lambda found: CheckpointError(f"{what} ({found}); restore both."))

    def forget_after(self, step: int) -> None:
        """Drop lines newer than a checkpoint's step: they will be computed again, each exactly once."""
        for name in ("metrics", "timing"):
            file = self.path / f"{name}.jsonl"
            if file.exists():
                with self.as_written():
                    kept = [line for line in self.metrics(name) if line["step"] <= step]
                with _refusals(f"write {str(file)!r}"):
                    _write_text(file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))

    # Rollouts.

    def write_rollouts(self, name: str, rollouts: Sequence[Rollout]) -> Path:
        """Store episodes as ``RUN/NAME.jsonl.gz``.

        Raises:
            CheckpointError, InputError: the disk refuses.
        """
        file = self.path / f"{name}.jsonl.gz"
        if not file.resolve().is_relative_to(self.path.resolve()):
            raise CheckpointError(f"{name!r} leads out of the run folder; give what is evaluated a plain name.")
        with _refusals(f"write {str(file)!r}"):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_episodes(file, (rollout.episode for rollout in rollouts))
        return file

    # Checkpoints.

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoints(self) -> list[Path]:
        """Whole checkpoints, oldest first."""
        if not self._checkpoints.is_dir():
            return []
        return sorted(folder for folder in self._checkpoints.iterdir() if folder.name.isdigit())

    def save(self, progress: Progress, save_policy: Callable[[Path], None]) -> None:
        """Write a checkpoint; the previous one stays until the new one is whole.

        Raises:
            CheckpointError: the disk refuses (full, read-only); earlier checkpoints are intact.
        """

        def write(folder: Path) -> None:
            save_policy(folder)
            _write_text(folder / "progress.json", json.dumps(asdict(progress)) + "\n")

        with suppress(FileNotFoundError):
            _sync(
                self.path / "metrics.jsonl"
            )  # its lines must not be younger than the checkpoint that vouches for them
        write_folder(self._checkpoints / f"{progress.step:06d}", write)
        self._forget_old_checkpoints()

    def _forget_old_checkpoints(self) -> None:
        for old in self.checkpoints()[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)

    def latest(self) -> tuple[Progress, Path] | None:
        """Progress and folder of the newest whole checkpoint; None in a run that has none yet."""
        for folder in reversed(self.checkpoints()):
            with suppress(CheckpointError):
                return read_progress(folder), folder
        return None


def read_progress(checkpoint: Path) -> Progress:
    """How far a run had come at a checkpoint.

    Raises:
        CheckpointError: the file that says so is missing or broken.
    """
    file = checkpoint / "progress.json"
    stored = read_object(file, absent=f"The checkpoint {str(checkpoint)!r} lacks progress.json.")
    try:
        progress = Progress(**stored)
        if progress.step < 0:
            raise ValueError("a number below 0")
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{str(file)!r} is not as training writes it ({error}); restore it.") from None
    return progress


def write_folder(final: Path, write: Callable[[Path], None]) -> None:
    """Write a folder that appears whole, under its name, or not at all; an older one stays until then.

    Raises:
        CheckpointError: the disk refuses (full, read-only).
    """
    partial = final.with_name(f"{final.name}.partial")
    try:
        with _refusals(f"write {str(final)!r}"):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            write(partial)
            for written in (*sorted(partial.rglob("*")), partial):
                _sync(written)
            if final.exists():
                shutil.rmtree(final)
            partial.rename(final)
            _sync(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone already where the rename succeeded


@contextmanager
def _refusals(action: str) -> Iterator[None]:
    """What the disk refuses, as one sentence that says what could not be done."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(
            f"Cannot {action}: {reason}; earlier checkpoints are intact, and --resume goes on once there is room."
        ) from error


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A temporary path beside ``file`` that takes its place when the block ends well, and vanishes when it does not."""
    partial = file.with_name(f".{file.name}.partial")
    try:
        yield partial
        _sync(partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _write_text(file: Path, text: str) -> None:
    with _replacing(file) as partial:
        partial.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _finite(value: Any) -> Any:
    """A JSON value with null in place of every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _lock(file: Path) -> IO[str]:
    """Hold the folder for this process; the system releases the lock when the process ends, however it ends."""
    opened = file.open("w")
    try:
        hold(opened.fileno(), file.parent, what="training", way_out="choose another --out")
    except CheckpointError:
        opened.close()
        raise
    return opened
