"""Calls into environments: several at once, with a time limit, and a fault as a value instead of an exception."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call gave no result, in one phrase. ``hung`` says that the call may still be running."""

    reason: str
    hung: bool = False


def describe(error: BaseException) -> str:
    """An exception as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_REASON]


def attempt(call: Callable[[], T]) -> T | Fault:
    """The call's result, or the exception it raised as a fault."""
    try:
        return call()
    except (Exception, SystemExit) as error:  # whatever a foreign environment raises belongs to its own episode
        return Fault(describe(error))


def attempt_all(
    calls: Sequence[Callable[[], T]], *, concurrency: int = 1, timeout: float | None = None
) -> list[T | Fault]:
    """The result or fault of every call, in order.

    Args:
        calls: what to call; calls that run at once must not share state.
        concurrency: calls in flight at most; 1 without a timeout runs them here, one after the other.
        timeout: seconds a call may take. A call that takes longer is left behind in its thread, which does not keep
            the process alive, and its late result is dropped. A call that never lets go of the interpreter (a loop
            in C that holds Python's global lock) cannot be timed out.
    """
    if not calls:
        return []
    if concurrency == 1 and timeout is None:
        return [attempt(call) for call in calls]
    return _Batch(calls, timeout).run(concurrency)


class _Worker:
    """A thread that waits for jobs. It serves batch after batch, so environments used one at a time keep to it."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Callable[[_Worker], bool]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while self.jobs.get()(self):
            pass


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)


class _Batch(Generic[T]):
    """Calls that workers take from a common line, each as soon as it is free."""

    def __init__(self, calls: Sequence[Callable[[], T]], timeout: float | None) -> None:
        self._results: list[T | Fault] = [Fault("not called")] * len(calls)
        self._waiting = deque(enumerate(calls))
        self._unfinished = len(calls)
        self._limit = math.inf if timeout is None else timeout
        self._running: dict[_Worker, tuple[int, float]] = {}
        """Who is busy with which call, and since when."""
        self._changed = threading.Condition(threading.Lock())

    def run(self, concurrency: int) -> list[T | Fault]:
        """Call all and wait for the last result."""
        for _ in range(min(concurrency, len(self._results))):
            self._hire()
        with self._changed:
            try:
                while self._unfinished:
                    oldest = min((since for _, since in self._running.values()), default=time.monotonic())
                    left = oldest + self._limit - time.monotonic()
                    if left <= 0:
                        self._give_up_on_overdue()
                    else:
                        self._changed.wait(None if left == math.inf else left)
            finally:
                self._waiting.clear()  # after Ctrl-C no worker begins another call
        return self._results

    def _hire(self) -> None:
        """Let one more worker serve this batch."""
        worker = _idle.pop() if _idle else _Worker()
        worker.jobs.put(self._serve)

    def _serve(self, worker: _Worker) -> bool:
        """Make calls until none waits; False where the worker was given up on meanwhile."""
        index = -1
        result: T | Fault = Fault("not called")
        while True:
            with self._changed:
                if index >= 0:
                    if self._running.pop(worker, None) is None:
                        return False
                    self._finish(index, result)
                if not self._waiting:
                    _idle.append(worker)
                    return True
                index, call = self._waiting.popleft()
                self._running[worker] = index, time.monotonic()
            result = attempt(call)

    def _give_up_on_overdue(self) -> None:
        now = time.monotonic()
        for worker, (index, since) in list(self._running.items()):
            if now - since >= self._limit:
                del self._running[worker]
                self._finish(index, Fault(f"no answer within {self._limit:g} s", hung=True))
                self._hire()

    def _finish(self, index: int, result: T | Fault) -> None:
        self._results[index] = result
        self._unfinished -= 1
        if not self._unfinished:
            self._changed.notify_all()
