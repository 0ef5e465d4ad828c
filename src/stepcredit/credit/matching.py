"""Which states count as one: equal keys, similar texts, or near embeddings. Clusters never cross task groups.

Greedy clustering depends on the order in which states come up. The order here is canonical, by (episode name, turn)
of a state's first visit within its task, so that shuffling a file's lines never changes a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Annotated, Literal

import numpy as np

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.core.encoder import sentence_vectors
from stepcredit.core.turns import Turns

Matcher = Annotated[
    Literal["exact", "text", "embedding"], "which states are one: equal keys, similar texts, or near embeddings"
]
CentroidMatcher = Annotated[Literal["exact", "embedding"], "which states are one: equal keys, or near a centroid"]

Encoder = Callable[[Sequence[str]], FloatArray]
"""Texts → ``[n, d]`` vectors of length one."""


def match_states(
    turns: Turns,
    matcher: Literal["exact", "text", "embedding"],
    threshold: float,
    encode: Encoder = sentence_vectors,
) -> IntArray:
    """Group column ``[N]``: each state joins the first cluster whose *first member* is similar enough, or founds one.

    ``text``: ``difflib`` ratio of the state against the first member ≥ ``threshold``. ``embedding``: cosine ≥
    ``threshold``. ``exact``: the state column itself.

    Source: GiGPO's released similarity grouping, with a canonical order instead of row order.
    """
    if matcher == "exact":
        return turns.state
    cluster = _text_clusters if matcher == "text" else _embedding_clusters(encode)
    return _clustered(turns, lambda texts: cluster(texts, threshold))


def centroid_groups(
    turns: Turns, matcher: Literal["exact", "embedding"], radius: float, encode: Encoder = sentence_vectors
) -> IntArray:
    """Group column ``[N]``: each state joins the nearest cluster centroid within cosine distance ``radius``.

    A centroid is the mean of its distinct members' unit vectors. ``exact``: the state column itself.
    """
    if matcher == "exact":
        return turns.state
    return _clustered(turns, lambda texts: _centroid_clusters(encode(texts), radius))


def _clustered(turns: Turns, cluster: Callable[[list[str]], Iterable[int]]) -> IntArray:
    """Group column from a function that numbers one task's distinct states 0 …, given in canonical order."""
    label = np.full(len(turns.state_names), -1, dtype=np.int32)
    found = 0
    for states in _canonical_states(turns):
        numbers = np.fromiter(cluster([turns.state_names[state] for state in states]), np.int32, len(states))
        label[states] = found + numbers
        found += int(numbers.max()) + 1
    return label[turns.state]


def _canonical_states(turns: Turns) -> list[IntArray]:
    """Per task, the distinct states its turns left from, by (episode name, turn) of the first visit."""
    rank = np.empty(len(turns.episode_names), dtype=np.int64)
    rank[sorted(range(len(rank)), key=turns.episode_names.__getitem__)] = np.arange(len(rank))
    order = np.lexsort((turns.turn, rank[turns.episode], turns.task))
    states, first = np.unique(turns.state[order], return_index=True)
    ordered = states[np.argsort(first)]
    task = turns.task[order][np.sort(first)]
    return np.split(ordered, np.flatnonzero(np.diff(task)) + 1) if len(ordered) else []


def _text_clusters(texts: Sequence[str], threshold: float) -> list[int]:
    """Cluster of each text. The matcher caches its second text, so each cluster keeps one with its first member."""
    firsts: list[SequenceMatcher[str]] = []
    numbers = []
    for text in texts:
        for number, first in enumerate(firsts):
            first.set_seq1(text)
            # The two quick ratios are upper bounds of the ratio, and much cheaper.
            if (
                first.real_quick_ratio() >= threshold
                and first.quick_ratio() >= threshold
                and first.ratio() >= threshold
            ):
                numbers.append(number)
                break
        else:
            numbers.append(len(firsts))
            firsts.append(SequenceMatcher(None, "", text))
    return numbers


def _embedding_clusters(encode: Encoder) -> Callable[[Sequence[str], float], list[int]]:
    """Cluster of each text by the cosine with each cluster's first member."""

    def clusters(texts: Sequence[str], threshold: float) -> list[int]:
        vectors = encode(texts)
        firsts: list[int] = []
        numbers = []
        for index, vector in enumerate(vectors):
            near = vectors[firsts] @ vector >= threshold
            numbers.append(int(np.argmax(near)) if near.any() else len(firsts))
            if not near.any():
                firsts.append(index)
        return numbers

    return clusters


def _centroid_clusters(vectors: FloatArray, radius: float) -> list[int]:
    """Cluster of each vector; the nearest centroid wins, the older one on a tie."""
    sums: list[FloatArray] = []
    numbers = []
    for vector in vectors:
        number = len(sums)
        if sums:
            centroids = np.array(sums)
            distance = 1 - centroids @ vector / np.linalg.norm(centroids, axis=1)
            nearest = int(np.argmin(distance))
            number = nearest if distance[nearest] <= radius else number
        if number == len(sums):
            sums.append(vector.copy())
        else:
            sums[number] += vector
        numbers.append(number)
    return numbers
