"""Retrievers: BM25 over a corpus, in memory or on disk, and any server that speaks Search-R1's protocol."""

from __future__ import annotations

import json
import math
import mmap
import urllib.error
import urllib.request
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from stepcredit.core.errors import EnvironmentFaultError, InputError
from stepcredit.environments.retrieval.analysis import plain_terms
from stepcredit.environments.retrieval.bm25 import Bm25Index
from stepcredit.environments.search_qa.corpus import Passage, is_packed, make_passage, read_json_lines

Dialect = Literal["batch", "single"]
"""What a request to a server holds: ``batch``: "queries", a list; ``single``: "query", a text."""

_LARGEST_ANSWER = 8 * 1024 * 1024
"""Bytes read of a server's answer."""
_OFFSETS = "offsets.npy"


class Bm25Retriever:
    """BM25 over passages.

    Args:
        passages: the corpus.
        index: of their contents, in the same order.
    """

    def __init__(self, passages: Sequence[Passage], index: Bm25Index) -> None:
        self._passages = passages
        self._index = index

    @classmethod
    def in_memory(cls, passages: Sequence[Passage]) -> Bm25Retriever:
        """Index passages now."""
        return cls(passages, Bm25Index.build((passage.contents for passage in passages), plain_terms))

    @classmethod
    def on_disk(cls, corpus: Path, folder: Path) -> Bm25Retriever:
        """Retrieve from a corpus file through an index folder, which is built first where it is absent.

        Neither passages nor postings are loaded; both are read as they are needed.

        Args:
            corpus: JSON lines, not packed.
            folder: the index; belongs to this corpus.

        Raises:
            InputError: the corpus cannot be read, is packed, or is not the one that was indexed.
        """
        if not folder.exists():
            _build_on_disk(corpus, folder)
        index = Bm25Index.open(folder, plain_terms)
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

    def retrieve(self, query: str, limit: int) -> list[Passage]:
        """The ``limit`` best passages, best first."""
        found = self._index.search(query, limit)
        return [replace(self._passages[number], score=score) for number, score in found]


class ServerRetriever:
    """Asks a server: ``POST`` of ``{"queries": […], "topk": k, "return_scores": true}``, or of ``{"query": …, …}``.

    Args:
        url: the whole address, usually ending in ``/retrieve``.
        dialect: see ``Dialect``.
        timeout: seconds a request may take.
    """

    def __init__(self, url: str, dialect: Dialect = "batch", *, timeout: float = 20.0) -> None:
        self._url = url
        self._dialect = dialect
        self._timeout = timeout

    def retrieve(self, query: str, limit: int) -> list[Passage]:
        """The server's passages, at most ``limit``.

        Raises:
            EnvironmentFaultError: no answer in time, or one that cannot be understood.
        """
        asked = {"queries": [query]} if self._dialect == "batch" else {"query": query}
        body = json.dumps({**asked, "topk": limit, "return_scores": True}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                answer = json.loads(response.read(_LARGEST_ANSWER))
            return _read_hits(answer)[:limit]
        except (OSError, ValueError, RecursionError, urllib.error.URLError) as error:
            raise EnvironmentFaultError(f"The retriever at {self._url} failed: {error}.") from None


def _read_hits(answer: Any) -> list[Passage]:
    """The passages of the first query of an answer, with or without scores, with or without the outer list.

    Raises:
        ValueError: the answer has another form.
    """
    hits = answer.get("result") if isinstance(answer, dict) else None
    if isinstance(hits, list) and hits and isinstance(hits[0], list):
        hits = hits[0]
    if not isinstance(hits, list):
        raise ValueError('it answered without a list "result"')  # noqa: TRY004  # one error for all it may answer
    return [_read_hit(hit) for hit in hits]


def _read_hit(hit: Any) -> Passage:
    document = hit.get("document", hit) if isinstance(hit, dict) else None
    contents = document.get("contents") if isinstance(document, dict) else None
    if document is None or not isinstance(contents, str):
        raise ValueError('a document of its answer has no text "contents"')
    score = hit.get("score")
    if not (isinstance(score, int | float) and math.isfinite(score)):
        score = 0.0
    return make_passage(str(document.get("id", "")), contents, float(score))


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


def _build_on_disk(corpus: Path, folder: Path) -> None:
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
    index = Bm25Index.build(contents(), plain_terms)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    index.save(unfinished)
    np.save(unfinished / _OFFSETS, np.array([*offsets, size], np.int64))
    unfinished.rename(folder)
