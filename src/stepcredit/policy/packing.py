"""Sequences end to end in one row, and what several of them begin with computed once.

Sorted by their tokens, sequences that begin alike stand next to each other, and a sequence shares as much with the one
before it as with any earlier one. So each adds to the row only the tokens its predecessor does not begin with: the row
is the prefix tree of the batch in depth-first order, and every subtree is one run of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from stepcredit.core.credit import IntArray
from stepcredit.policy.attention import Run, Segments

LEAST_SHARE = 1 / 16
"""A start shorter than this share of its sequence is computed again: attention has to gather the keys and values of a
sequence that begins elsewhere, which costs about as much as these few tokens."""


class Inputs(Protocol):
    """Anything that has input tokens."""

    @property
    def tokens(self) -> IntArray:
        """``[T]`` input ids."""
        ...


@dataclass(frozen=True, slots=True)
class Packed:
    """A row of ``T`` distinct tokens that holds several sequences.

    Attributes:
        tokens: ``[T]`` input ids.
        positions: ``[T]`` position of each token in every sequence it belongs to: its depth in the prefix tree.
        where: for each sequence, ``[its length]`` places of its tokens in the row.
        layout: who sees whom.
    """

    tokens: Tensor
    positions: Tensor
    where: list[IntArray]
    layout: Segments


def prefix_order(sequences: Sequence[Inputs]) -> list[int]:
    """The order in which sequences that begin alike stand together: by tokens, equal ones as they were."""
    # Big-endian bytes compare as the non-negative numbers they stand for.
    keys = [np.asarray(sequence.tokens, dtype=">u4").tobytes() for sequence in sequences]
    return sorted(range(len(keys)), key=keys.__getitem__)


def pack(sequences: Sequence[Inputs]) -> Packed:
    """Lay sequences end to end, each without what it shares with the one before it; see ``prefix_order``."""
    shared = list(_shared_starts(sequences))
    where = paths([len(sequence.tokens) for sequence in sequences], shared)
    fresh = [sequence.tokens[start:] for sequence, start in zip(sequences, shared, strict=True)]
    runs: list[Run] = []
    prefixes: list[tuple[Run, ...]] = []
    size = 0
    for start, own in zip(shared, fresh, strict=True):
        runs = list(_first(runs, start))
        prefixes.append(tuple(runs))
        if runs and runs[-1][1] == size:
            runs[-1] = (runs[-1][0], size + len(own))
        else:
            runs.append((size, size + len(own)))
        size += len(own)
    positions = [np.arange(start, start + len(own)) for start, own in zip(shared, fresh, strict=True)]
    return Packed(
        tokens=torch.from_numpy(np.concatenate(fresh).astype(np.int64)),
        positions=torch.from_numpy(np.concatenate(positions)),
        where=where,
        layout=Segments([len(own) for own in fresh], prefixes),
    )


def paths(lengths: Sequence[int], shared: Sequence[int]) -> list[IntArray]:
    """Places in the row of every sequence's tokens, ``shared[i]`` of them taken over from sequence i − 1."""
    where: list[IntArray] = []
    size = 0
    for length, start in zip(lengths, shared, strict=True):
        own = np.arange(size, size + length - start, dtype=np.int32)
        where.append(np.concatenate([where[-1][:start], own]) if start else own)
        size += len(own)
    return where


def micro_batches(sequences: Sequence[Inputs], limit: int) -> list[slice]:
    """Cut into runs whose packed rows need the memory of at most ``limit`` tokens; a longer sequence stands alone.

    A sequence that begins elsewhere counts what it adds, and ``LEAST_SHARE`` of its length for the keys and values that
    attention gathers.
    """
    cuts: list[slice] = []
    start, size = 0, 0.0
    for place, (sequence, shared) in enumerate(zip(sequences, _shared_starts(sequences), strict=True)):
        length = len(sequence.tokens)
        cost = length - shared + (LEAST_SHARE * length if shared else 0)
        if place > start and size + cost > limit:
            cuts.append(slice(start, place))
            start, size, cost = place, 0.0, length
        size += cost
    return [*cuts, slice(start, len(sequences))] if sequences else []


def common_start(one: IntArray, other: IntArray) -> int:
    """Number of tokens that two sequences begin with alike."""
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    first = int(differ.argmax()) if length else 0
    return first if length and differ[first] else length


def _shared_starts(sequences: Sequence[Inputs]) -> Iterator[int]:
    """How much of each sequence is taken over from the one before it."""
    before: IntArray = np.zeros(0, dtype=np.int32)
    for sequence in sequences:
        shared = common_start(before, sequence.tokens)
        yield shared if shared >= LEAST_SHARE * len(sequence.tokens) else 0
        before = sequence.tokens


def _first(runs: Sequence[Run], count: int) -> Iterator[Run]:
    """The first ``count`` places of some runs."""
    for start, stop in runs:
        if count <= 0:
            return
        yield start, min(stop, start + count)
        count -= stop - start
