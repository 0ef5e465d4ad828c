"""Calls into environments: several at once, with a time limit, and a fault as a value instead of an exception."""

from __future__ import annotations

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


def describe(error: Exception) -> str:
    """An exception as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_REASON]


def attempt(call: Callable[[], T]) -> T | Fault:
    """The call's result, or the exception it raised as a fault."""
    try:
        return call()
    except Exception as error:  # whatever a foreign environment raises belongs to its own episode
        return Fault(describe(error))


def attempt_all(
    calls: Sequence[Callable[[], T]], *, concurrency: int = 1, timeout: float | None = None
) -> list[T | Fault]:
    """The result or fault of every call, in order.

    Args:
        calls: what to call; calls that run at once must not share state.
        concurrency: calls in flight at most; 1 without a timeout runs them here, one after the other.
        timeout: seconds a call may take. A call that takes longer is left behind in its thread, which does not keep
            the process alive, and its late result is dropped.
    """
    if concurrency == 1 and timeout is None:
        return [attempt(call) for call in calls]
    return _Batch(calls).run(concurrency, timeout)


class _Batch(Generic[T]):
    """Calls in threads. A thread a call costs some 0.1 ms, little beside the environments that need threads."""

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self._results: list[T | Fault] = [Fault("not called")] * len(calls)
        self._waiting = deque(enumerate(calls))
        self._done: queue.SimpleQueue[tuple[int, T | Fault]] = queue.SimpleQueue()
        self._deadlines: dict[int, float] = {}

    def run(self, concurrency: int, timeout: float | None) -> list[T | Fault]:
        while self._waiting or self._deadlines:
            while self._waiting and len(self._deadlines) < concurrency:
                index, call = self._waiting.popleft()
                self._deadlines[index] = time.monotonic() + (float("inf") if timeout is None else timeout)
                threading.Thread(target=self._work, args=(index, call), daemon=True).start()
            self._take(timeout)
        return self._results

    def _work(self, index: int, call: Callable[[], T]) -> None:
        self._done.put((index, attempt(call)))

    def _take(self, timeout: float | None) -> None:
        """Wait for one result or for the next deadline."""
        left = None if timeout is None else max(min(self._deadlines.values()) - time.monotonic(), 0.0)
        try:
            index, result = self._done.get(timeout=left)
        except queue.Empty:
            now = time.monotonic()
            for index in [index for index, deadline in self._deadlines.items() if deadline <= now]:
                del self._deadlines[index]
                self._results[index] = Fault(f"no answer within {timeout:g} s", hung=True)
            return
        if self._deadlines.pop(index, None) is not None:
            self._results[index] = result
