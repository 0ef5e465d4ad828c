"""The process behind ``nursery``: for every line of standard input, fork, run the verb there, say how it ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import jinja2  # noqa: F401  imported here so that no fork has to, like all that follows
import scipy.optimize
import scipy.sparse.csgraph
import scipy.sparse.linalg  # noqa: F401

import stepcredit.cli.assign
import stepcredit.cli.convert
import stepcredit.cli.demonstrate
import stepcredit.cli.evaluate
import stepcredit.cli.train
import stepcredit.policy.linear
import stepcredit.report.runs
import stepcredit.report.sources  # noqa: F401
from stepcredit.cli import main

WRITING = os.O_WRONLY | os.O_RDWR
GROWING = ("os.mkdir", "os.link")
OTHERS = ("os.rename", "os.remove", "os.rmdir", "os.truncate")
changes = 0


def watch(order: dict[str, Any]) -> None:
    """Count changes below the watched folder from now on; die before the chosen one, or refuse them from it on."""
    watched, last, refusal = order["watched"], order["at_change"], order["refusal"]
    number = getattr(errno, refusal) if refusal else 0

    def hook(event: str, details: tuple[Any, ...]) -> None:
        global changes
        grows = event in GROWING
        if event == "open":
            grows = isinstance(details[0], str) and isinstance(details[2], int) and bool(details[2] & WRITING)
        if not (grows or event in OTHERS) or not str(details[0]).startswith(watched):
            return
        changes += 1
        if last is None or changes < last:
            return
        if not refusal:
            os.kill(os.getpid(), signal.SIGKILL)
        if grows or refusal == "EROFS":
            raise OSError(number, os.strerror(number), details[0])

    sys.addaudithook(hook)


def live(order: dict[str, Any], scratch: Path) -> None:
    """The life of a fork."""
    for name, descriptor in (("out", 1), ("err", 2)):
        opened = os.open(scratch / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, descriptor)
    os.environ.update(order["environment"])
    if order["file_size"] is not None:
        # Python ignores this signal, which turns it into an error of the write.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if order["dies_of_size"] else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_size"], resource.RLIM_INFINITY))
    watch(order)
    try:
        main(order["arguments"])
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    (scratch / "changes").write_text(str(changes))
    os._exit(status)


def wait(child: int, after: float | None) -> tuple[int, float]:
    """The child's exit status, or minus the signal that ended it, and its seconds of processor time."""
    began = time.monotonic()
    while after is not None:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            break
        if time.monotonic() - began >= after:
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.001)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                live(order, scratch)
            status, busy = wait(child, order["after"])
            answer = {
                "status": status,
                "changes": int(text(scratch / "changes") or 0),
                "seconds": time.monotonic() - began,
                "busy": busy,
                "out": text(scratch / "out"),
                "err": text(scratch / "err"),
            }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
