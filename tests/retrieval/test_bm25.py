"""BM25 against its formula, Lucene's one-byte lengths and tie order, and recorded rankings of Lucene itself."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.core.errors import InputError
from stepcredit.environments.retrieval.analysis import english_terms
from stepcredit.environments.retrieval.bm25 import Bm25Index, round_length
from stepcredit.environments.shopping.products import load_products

WORDS = st.sampled_from(["ash", "bay", "cod", "dew", "elm"])
TEXTS = st.lists(st.lists(WORDS, max_size=60).map(" ".join), max_size=8)


def reference_scores(documents: list[str], query: str, k1: float, b: float) -> list[float]:
    """The formula, document by document, in double precision."""
    bags = [Counter(text.split()) for text in documents]
    mean = sum(bag.total() for bag in bags) / max(len(bags), 1)
    scores = []
    for bag in bags:
        score = 0.0
        for term in query.split():
            held_by = sum(term in other for other in bags)
            if bag[term]:
                idf = math.log(1 + (len(bags) - held_by + 0.5) / (held_by + 0.5))
                damping = k1 * (1 - b + b * round_length(bag.total()) / mean)
                score += idf * bag[term] / (bag[term] + damping)
        scores.append(score)
    return scores


@given(TEXTS, st.lists(WORDS, max_size=6).map(" ".join), st.floats(0.1, 3), st.floats(0, 1))
def test_scores_are_the_formula(documents: list[str], query: str, k1: float, b: float):
    found = Bm25Index.build(documents, str.split, k1=k1, b=b).search(query, len(documents))
    expected = reference_scores(documents, query, k1, b)
    assert {number for number, _ in found} == {number for number, score in enumerate(expected) if score > 0}
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    for number, score in found:
        assert score == pytest.approx(expected[number], rel=1e-5)


@given(TEXTS, st.lists(WORDS, max_size=6).map(" ".join), st.integers(0, 8))
def test_a_limit_keeps_the_first(documents: list[str], query: str, limit: int):
    index = Bm25Index.build(documents, str.split)
    assert index.search(query, limit) == index.search(query, len(documents) + 1)[:limit]


@pytest.mark.parametrize(
    ("length", "rounded"),
    [
        *((length, length) for length in (0, 1, 23, 24, 39, 40, 42, 54, 56, 60, 84, 88)),
        *((41, 40), (55, 54), (59, 56), (87, 84), (151, 144), (152, 152)),
        *((1_000, 984), (10_000, 9_240), (100_000, 98_328), (2**31 - 1, 2_013_265_944)),
    ],
)
def test_lengths_keep_four_bits_above_24(length: int, rounded: int):
    assert round_length(length) == rounded


@given(st.integers(0, 2**31 - 1))
def test_rounding_down_is_idempotent_and_within_an_eighth(length: int):
    rounded = round_length(length)
    assert rounded <= length < rounded + max(1, (rounded - 24 + 7) // 8 + 1)
    assert round_length(rounded) == rounded


def test_equal_scores_rank_by_name():
    documents = ["red shoe", "red shoe", "blue shoe", "red shoe"]
    by_number = Bm25Index.build(documents, str.split).search("red", 4)
    assert [number for number, _ in by_number] == [0, 1, 3]
    by_name = Bm25Index.build(documents, str.split, names=["z", "b", "c", "a"]).search("red", 4)
    assert [number for number, _ in by_name] == [3, 1, 0]
    assert len({score for _, score in by_name}) == 1


def test_a_repeated_query_word_counts_twice():
    index = Bm25Index.build(["red", "blue"], str.split)
    ((_, once),), ((_, twice),) = index.search("red", 2), index.search("red red", 2)
    assert twice == np.float32(2) * np.float32(once)


@pytest.mark.parametrize("documents", [[], [""], ["", ""]])
def test_nothing_to_find(documents: list[str]):
    assert Bm25Index.build(documents, str.split).search("red", 5) == []


def test_rankings_of_lucene(shared_data: Path):
    """All 158 recorded rankings come out in Lucene's order, scores to the four decimals that were recorded."""
    webshop = shared_data / "webshop"
    products = load_products(webshop / "items.json.gz", webshop / "items_ins.json.gz")
    names = [product.asin for product in products]
    index = Bm25Index.build((product.search_text for product in products), english_terms, names=names)
    with gzip.open(webshop / "lucene_rankings.jsonl.gz") as lines:
        recorded = [json.loads(line) for line in lines]
    assert len(recorded) == 158
    for record in recorded:
        found = [(names[number], score) for number, score in index.search(record["query"], 50)]
        assert [name for name, _ in found] == [name for name, _ in record["ranking"]], record["query"]
        for (_, score), (_, true_score) in zip(found, record["ranking"], strict=True):
            assert score == pytest.approx(true_score, abs=1e-4)


def test_a_saved_index_finds_the_same(tmp_path: Path):
    documents = ["red shoe", "blue shoe", "", "red red hat"]
    index = Bm25Index.build(documents, str.split, names=list("zyxw"))
    index.save(tmp_path / "index")
    opened = Bm25Index.open(tmp_path / "index", str.split)
    assert len(opened) == 4
    for query in ("red", "shoe hat", "green", ""):
        assert opened.search(query, 3) == index.search(query, 3)


def test_a_folder_without_a_whole_index(tmp_path: Path):
    with pytest.raises(InputError, match="does not hold an index"):
        Bm25Index.open(tmp_path, str.split)
    Bm25Index.build(["red shoe"], str.split).save(tmp_path)
    (tmp_path / "terms.txt").write_text("red\n", encoding="utf-8")
    with pytest.raises(InputError, match="holds 2 terms and names 1"):
        Bm25Index.open(tmp_path, str.split)
    (tmp_path / "idf.npy").write_bytes(b"broken")
    with pytest.raises(InputError, match="does not hold an index"):
        Bm25Index.open(tmp_path, str.split)
