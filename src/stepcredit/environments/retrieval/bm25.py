"""BM25 over an inverted index, with Lucene's arithmetic.

For a query q and a document d of length |d| in a collection of N documents of mean length L,

    score(q, d) = Σ_t  w_t − w_t / (1 + f_td / (k₁ (1 − b + b ⌊|d|⌋ / L))),    w_t = count of t in q · idf_t,
    idf_t = ln(1 + (N − n_t + ½) / (n_t + ½)),

where f_td counts term t in d and n_t documents hold t. It is Robertson's BM25 without the constant factor k₁ + 1. As in
Lucene, ⌊|d|⌋ is the length rounded down to what one byte can say, each summand is computed in single precision, and
the sum in double precision is rounded to single: equal scores are ties here where they are ties there.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from stepcredit.core.errors import InputError

Analyser = Callable[[str], list[str]]
_Ints = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float32]

_EXACT_LENGTHS = 24
"""Lengths below this are kept exactly."""
_ARRAYS = ("start", "document", "damping", "idf", "rank")
_TERMS = "terms.txt"


def round_length(length: int) -> int:
    """A length rounded down to the nearest that Lucene's one-byte norm can hold: four significant bits above 24."""
    excess = length - _EXACT_LENGTHS
    shift = excess.bit_length() - 4
    return length if excess < 0 or shift <= 0 else _EXACT_LENGTHS + (excess >> shift << shift)


class Bm25Index:
    """An immutable inverted index over documents 0 to N − 1, in memory or memory-mapped.

    Args:
        analyse: text or query → index terms.
        terms: number of each term.
        start: ``[T + 1]``; term t's postings are rows ``start[t]:start[t + 1]``.
        document: ``[P]`` document of each posting, ascending within a term.
        damping: ``[P]`` the parenthesis 1 + f_td / (…) of the formula above.
        idf: ``[T]``.
        rank: ``[N]`` place of each document among documents of equal score.
    """

    def __init__(
        self,
        analyse: Analyser,
        terms: dict[str, int],
        *,
        start: _Ints,
        document: _Ints,
        damping: _Floats,
        idf: _Floats,
        rank: _Ints,
    ) -> None:
        self._analyse = analyse
        self._terms = terms
        self._start, self._document, self._damping, self._idf, self._rank = start, document, damping, idf, rank

    @classmethod
    def build(
        cls,
        documents: Iterable[str],
        analyse: Analyser,
        *,
        names: Sequence[str] | None = None,
        k1: float = 0.9,
        b: float = 0.4,
    ) -> Self:
        """Index documents.

        Args:
            documents: texts in the order of their numbers.
            analyse: text or query → index terms.
            names: one per document; documents of equal score rank by name. None: by number.
            k1: term-frequency saturation, > 0.
            b: weight of the document length, in [0, 1].
        """
        terms: dict[str, int] = {}
        term, document, frequency, length = _count(documents, analyse, terms)
        count = len(length)
        held_by = np.bincount(term, minlength=len(terms))
        order = np.argsort(term, kind="stable")
        document = document[order]
        damping = frequency[order].astype(np.float32)
        damping *= _inverse_norm(length, k1, b)[document]
        damping += 1
        rank = np.arange(count, dtype=np.int32)
        if names is not None:
            rank[sorted(range(count), key=names.__getitem__)] = np.arange(count, dtype=np.int32)
        return cls(
            analyse,
            terms,
            start=np.concatenate(([0], np.cumsum(held_by))),
            document=document,
            damping=damping,
            idf=np.log(1.0 + (count - held_by + 0.5) / (held_by + 0.5)).astype(np.float32),
            rank=rank,
        )

    @classmethod
    def open(cls, folder: Path, analyse: Analyser) -> Self:
        """An index that ``save`` wrote; its postings stay on disk and are read as they are needed.

        Raises:
            InputError: the folder does not hold a whole index.
        """
        try:
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
            terms = (folder / _TERMS).read_text(encoding="utf-8").split("\n")[:-1]
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} does not hold an index that can be read ({error}); build it again.") from None
        if len(terms) != len(arrays["idf"]):
            raise InputError(
                f"{folder} holds {len(arrays['idf'])} terms and names {len(terms)}; build the index again."
            )
        return cls(analyse, {term: number for number, term in enumerate(terms)}, **arrays)

    def save(self, folder: Path) -> None:
        """Write the index into a folder, which is made if absent."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, f"_{name}"))
        (folder / _TERMS).write_text("".join(f"{term}\n" for term in self._terms), encoding="utf-8")

    def __len__(self) -> int:
        return len(self._rank)

    def search(self, query: str, limit: int) -> list[tuple[int, float]]:
        """The ``limit`` best documents that hold a term of the query, as (number, score), best first."""
        total = np.zeros(len(self), np.float64)
        for name, repeats in Counter(self._analyse(query)).items():
            term = self._terms.get(name)
            if term is not None:
                rows = slice(self._start[term], self._start[term + 1])
                weight = np.float32(repeats) * self._idf[term]
                total[self._document[rows]] += weight - weight / self._damping[rows]
        found = np.flatnonzero(total)
        score = total[found].astype(np.float32)
        if len(found) > limit:
            least = np.partition(score, -limit)[-limit]
            found, score = found[score >= least], score[score >= least]
        best = np.lexsort((self._rank[found], -score))[:limit]
        return list(zip(found[best].tolist(), score[best].tolist(), strict=True))


def _count(documents: Iterable[str], analyse: Analyser, terms: dict[str, int]) -> list[_Ints]:
    """One row per (document, term) in order of documents: term, document, frequency; and each document's length.

    New terms are numbered in ``terms``.
    """
    term, document, frequency, length = array("i"), array("i"), array("i"), array("i")
    for number, text in enumerate(documents):
        counts = Counter(analyse(text))
        term.extend(terms.setdefault(name, len(terms)) for name in counts)
        document.extend(repeat(number, len(counts)))
        frequency.extend(counts.values())
        length.append(counts.total())
    return [np.frombuffer(column, np.int32) for column in (term, document, frequency, length)]


def _inverse_norm(length: _Ints, k1: float, b: float) -> npt.NDArray[np.float32]:
    """``[N]`` 1 / (k₁ (1 − b + b ⌊|d|⌋ / L)), rounded to single precision after every operation."""
    mean = np.float32(length.sum() / max(len(length), 1))
    rounded = np.array([round_length(value) for value in length.tolist()], np.float32)
    single_b = np.float32(b)
    relative = single_b * rounded / mean if mean else rounded
    norm = np.float32(k1) * ((np.float32(1) - single_b) + relative)
    inverse = np.zeros_like(norm)  # of an empty document at b = 1, which holds no term that would ask for it
    np.divide(np.float32(1), norm, out=inverse, where=norm > 0)
    return inverse
