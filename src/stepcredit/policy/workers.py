"""Threads that compute parts of a batch at once, each on one core.

Small models on a CPU gain little from splitting every single operation over cores, and lose much (ten times was seen)
when other processes keep those cores busy, because the threads of an operation wait for each other. Whole parts of a
batch wait for nobody. How a batch is cut never depends on the number of workers, so neither do the resulting bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor, nn

from stepcredit.policy import ranks

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """A pool of threads in which torch runs every operation on one core.

    Args:
        count: how many parts are computed at once, ≥ 1.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, "stepcredit", initializer=torch.set_num_threads, initargs=(1,))

    def map(self, function: Callable[[T], R], parts: Iterable[T]) -> Iterator[R]:
        """``function`` of every part, in order. Gradient mode is each thread's own: set it inside ``function``."""
        return self._pool.map(function, parts)

    def call(self, function: Callable[[], R]) -> R:
        """``function`` in one of the threads."""
        return self._pool.submit(function).result()


def loss_gradients(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    """The gradient of a loss per parameter, None where it does not depend on one; nothing is accumulated."""
    if not loss.requires_grad:
        return [None] * len(parameters)
    return list(torch.autograd.grad(loss, parameters, allow_unused=True))


def accumulate(
    workers: Workers,
    parameters: Sequence[nn.Parameter],
    parts: Sequence[T],
    differentiate: Callable[[T], tuple[R, Sequence[Tensor | None]]],
) -> Sequence[R]:
    """Add the gradients of all parts to what the parameters hold already.

    Args:
        workers: compute parts at once; several ranks divide them among each other.
        parameters: whose gradients.
        parts: what is differentiated; the same on every rank.
        differentiate: gives something to report and the gradient per parameter (``loss_gradients``).

    Returns:
        What each part reported.
    """
    reports: list[R] = []
    total: list[Tensor | None] = [None] * len(parameters)
    for report, gradients in workers.map(differentiate, ranks.share(parts)):
        reports.append(report)
        total = [_sum(held, gradient) for held, gradient in zip(total, gradients, strict=True)]
    for parameter, gradient in zip(parameters, ranks.add_up(total, parameters), strict=True):
        parameter.grad = _sum(parameter.grad, gradient)
    return ranks.gather(reports, len(parts))


def _sum(held: Tensor | None, gradient: Tensor | None) -> Tensor | None:
    if held is None or gradient is None:
        return gradient if held is None else held
    return held.add_(gradient)
