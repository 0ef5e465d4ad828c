"""Verbs of the command line in child processes that die at a chosen moment.

A nursery is one process without threads that has imported everything; each child is a fork of it, so that hundreds of
runs cost seconds. A child can be made to die by SIGKILL just before its n-th change of the file system, by SIGKILL
after some time, or in the middle of a write that would let a file grow beyond some size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
KILLED = -9


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended.

    Attributes:
        status: exit status, or minus the signal that ended it.
        changes: changes of the file system below the watched folder; 0 where a signal ended it.
        seconds: how long it ran.
        busy: seconds of processor time.
    """

    status: int
    changes: int
    seconds: float
    busy: float
    out: str
    err: str


class Nursery:
    """Runs verbs in forks of one process."""

    def __enter__(self) -> Self:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).with_name("child.py"))]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        watched: Path,
        at_change: int | None = None,
        refusal: str | None = None,
        after: float | None = None,
        file_size: int | None = None,
        dies_of_size: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run ``stepcredit ARGUMENTS`` to its end, whichever that is.

        Args:
            arguments: of the command line.
            watched: folder whose changes count.
            at_change: die before this change, counted from 1.
            refusal: do not die but refuse that change and all later ones, as ``ENOSPC`` (nothing new fits) or
                ``EROFS`` (nothing may change).
            after: die after so many seconds.
            file_size: bytes that no file may exceed, as on a full disk.
            dies_of_size: exceeding ``file_size`` ends the process instead of failing the write.
            environment: variables beside the nursery's own.
        """
        order: dict[str, Any] = {
            "arguments": [str(argument) for argument in arguments],
            "watched": str(watched),
            "at_change": at_change,
            "refusal": refusal,
            "after": after,
            "file_size": file_size,
            "dies_of_size": dies_of_size,
            "environment": dict(environment or {}),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))
