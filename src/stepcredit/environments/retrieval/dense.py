"""Dense retrieval: unit vectors of all documents, and the largest cosines with a query's.

Exact, by one matrix product a search. N documents take 4·N·d bytes (1.5 GB for a million at d = 384), which are read
from disk as they are needed where the index was opened from a folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.errors import InputError

Encode = Callable[[Sequence[str]], NDArray[np.floating]]
"""Texts → ``[n, d]`` unit vectors."""

_VECTORS = "vectors.npy"
_ENCODED_AT_ONCE = 1024


class DenseIndex:
    """An immutable index over documents 0 to N − 1, in memory or memory-mapped.

    Args:
        encode: texts → unit vectors; called by one thread at a time.
        vectors: ``[N, d]`` of the documents.
    """

    def __init__(self, encode: Encode, vectors: NDArray[np.float32]) -> None:
        self._encode = encode
        self._vectors = vectors
        self._encoding = threading.Lock()  # tokenizers refuse to be used by two threads

    @classmethod
    def build(cls, documents: Iterable[str], encode: Encode) -> Self:
        """Encode documents, given in the order of their numbers."""
        remaining = iter(documents)
        parts = []
        while texts := list(islice(remaining, _ENCODED_AT_ONCE)):
            parts.append(np.asarray(encode(texts), np.float32))
        return cls(encode, np.concatenate(parts) if parts else np.zeros((0, 0), np.float32))

    @classmethod
    def open(cls, folder: Path, encode: Encode) -> Self:
        """An index that ``save`` wrote.

        Raises:
            InputError: the folder does not hold one.
        """
        try:
            return cls(encode, np.load(folder / _VECTORS, mmap_mode="r"))
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} does not hold vectors that can be read ({error}); build it again.") from None

    def save(self, folder: Path) -> None:
        """Write the index into a folder, which is made if absent."""
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / _VECTORS, self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)

    def search(self, query: str, limit: int) -> list[tuple[int, float]]:
        """The ``limit`` nearest documents as (number, cosine), best first; on a tie the smaller number."""
        if not len(self):
            return []
        with self._encoding:
            vector = np.asarray(self._encode([query])[0], np.float32)
        score = self._vectors @ vector
        least = np.partition(score, -limit)[-limit] if len(score) > limit else -np.inf
        found = np.flatnonzero(score >= least)
        best = found[np.argsort(-score[found], kind="stable")][:limit]
        return list(zip(best.tolist(), score[best].tolist(), strict=True))
