"""Retrieval from a corpus: BM25 or sentence embeddings, in memory or on disk."""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, overload

import numpy as np

from stepcredit.core.encoder import bundled_encoder
from stepcredit.core.errors import InputError
from stepcredit.environments.retrieval.analysis import plain_terms
from stepcredit.environments.retrieval.bm25 import Bm25Index
from stepcredit.environments.retrieval.dense import DenseIndex, Encode
from stepcredit.environments.search_qa.corpus import Passage, is_packed, make_passage, read_json_lines

Kind = Literal["bm25", "dense"]
"""How passages are found: by their words, or by the cosine of sentence embeddings."""

_OFFSETS = "offsets.npy"
_ENCODED_TOGETHER = 32
"""Texts in a batch of the sentence encoder."""


class Index(Protocol):
    """Finds documents by number."""

    def __len__(self) -> int:
        """Documents it knows."""
        ...

    def search(self, query: str, limit: int) -> list[tuple[int, float]]:
        """The ``limit`` best documents as (number, score), best first."""
        ...

    def save(self, folder: Path) -> None:
        """Write it into a folder."""
        ...


class CorpusRetriever:
    """Finds passages of a corpus. May be used by several threads.

    Args:
        passages: the corpus.
        index: of their contents, in the same order.
    """

    def __init__(self, passages: Sequence[Passage], index: Index) -> None:
        self._passages = passages
        self._index = index

    @classmethod
    def in_memory(cls, passages: Sequence[Passage], kind: Kind = "bm25") -> CorpusRetriever:
        """Index passages now.

        Raises:
            MissingExtraError: ``dense`` without the extra ``embed``.
        """
        return cls(passages, _build((passage.contents for passage in passages), kind))

    @classmethod
    def on_disk(cls, corpus: Path, folder: Path, kind: Kind = "bm25") -> CorpusRetriever:
        """Retrieve from a corpus file through an index folder, which is built first where it is absent.

        Neither passages nor index are loaded; both are read as they are needed.

        Args:
            corpus: JSON lines, not packed.
            folder: the index; belongs to this corpus and kind.
            kind: how passages are found.

        Raises:
            InputError: the corpus cannot be read, is packed, or is not the one that was indexed.
            MissingExtraError: ``dense`` without the extra ``embed``.
        """
        if not folder.exists():
            _build_on_disk(corpus, folder, kind)
        index = _open(folder, kind)
        try:
            offsets = np.load(folder / _OFFSETS)
            size = corpus.stat().st_size
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} and {corpus} cannot be read ({error}); build the index again.") from None
        if len(offsets) != len(index) + 1 or offsets[-1] != size:
            raise InputError(
                f"{folder} is the index of another corpus than {corpus}; name another folder for its index."
            )
        return cls(_FilePassages(corpus, offsets.tolist()), index)

    def __len__(self) -> int:
        return len(self._passages)

    def retrieve(self, query: str, limit: int) -> list[Passage]:
        """The ``limit`` best passages, best first."""
        found = self._index.search(query, limit)
        return [replace(self._passages[number], score=score) for number, score in found]


def _build(documents: Iterable[str], kind: Kind) -> Index:
    if kind == "dense":
        return DenseIndex.build(documents, _encode())
    return Bm25Index.build(documents, plain_terms)


def _open(folder: Path, kind: Kind) -> Index:
    return DenseIndex.open(folder, _encode()) if kind == "dense" else Bm25Index.open(folder, plain_terms)


def _encode() -> Encode:
    return partial(bundled_encoder().encode, batch=_ENCODED_TOGETHER)


class _FilePassages(Sequence[Passage]):
    """Passages of a corpus file, each read when it is asked for."""

    def __init__(self, path: Path, offsets: Sequence[int]) -> None:
        self._offsets = offsets
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        entry = json.loads(self._bytes[self._offsets[index] : self._offsets[index + 1]])
        return make_passage(str(entry["id"]), entry["contents"])


def _build_on_disk(corpus: Path, folder: Path, kind: Kind) -> None:
    """Write index and offsets: passage n stands in the bytes from the n-th offset to the next."""
    offsets = array("q")

    def contents() -> Iterator[str]:
        for line in read_json_lines(corpus):
            offsets.append(line.start)
            yield line.passage().contents

    try:
        if is_packed(corpus):
            raise InputError(
                f"{corpus} is packed; unpack it to read passages from disk, or leave the index folder out."
            )
        size = corpus.stat().st_size
    except OSError as error:
        raise InputError(f"{corpus}: {error.strerror}; expected JSON lines.") from None
    index = _build(contents(), kind)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    index.save(unfinished)
    np.save(unfinished / _OFFSETS, np.array([*offsets, size], np.int64))
    unfinished.rename(folder)
