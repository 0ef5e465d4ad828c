"""Several processes, one update: each differentiates its share of the micro-batches, and gradients are added up.

Every rank is handed the same batch, so each knows the divisors of the whole minibatch by itself, and after adding up
every rank takes the same step. Without ``torch.distributed``, or before it is initialised, there is one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def share(parts: Sequence[T]) -> Sequence[T]:
    """The parts that this rank computes: rank, rank + R, rank + 2R, …"""
    world = _world()
    return parts[dist.get_rank() :: world] if world > 1 else parts


def gather(results: Sequence[T], count: int) -> Sequence[T]:
    """The results of all ``count`` parts in their order, from those of this rank's share."""
    world = _world()
    if world == 1:
        return results
    by_rank: list[Sequence[T]] = [()] * world
    dist.all_gather_object(by_rank, results)
    return [by_rank[part % world][part // world] for part in range(count)]


def add_up(gradients: Sequence[Tensor | None], parameters: Sequence[nn.Parameter]) -> Sequence[Tensor | None]:
    """The sum over ranks; None where no rank has a gradient."""
    if _world() == 1:
        return gradients
    present = torch.tensor([gradient is not None for gradient in gradients], dtype=torch.int32)
    present = present.to(parameters[0].device)
    dist.all_reduce(present, op=dist.ReduceOp.MAX)
    summed: list[Tensor | None] = []
    for gradient, parameter, found in zip(gradients, parameters, present.tolist(), strict=True):
        total = (torch.zeros_like(parameter) if gradient is None else gradient.contiguous()) if found else None
        if total is not None:
            dist.all_reduce(total)
        summed.append(total)
    return summed
