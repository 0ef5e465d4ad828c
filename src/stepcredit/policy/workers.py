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


def add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients to what the parameters hold already."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
