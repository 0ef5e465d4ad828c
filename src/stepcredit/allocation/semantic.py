"""Semantic evidence: outcomes lent by tasks and states that read almost the same.

Texts become unit vectors through a frozen sentence encoder. Nothing is lent twice: a donor lends what it saw itself,
never what it borrowed.

Source: TSBPO appendix C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepcredit.allocation.memory import Outcomes, RowArray, StateMemory, VectorArray
from stepcredit.core.credit import FloatArray
from stepcredit.core.encoder import Encoder
from stepcredit.core.errors import NumericsError

GOAL_COSINE = 0.95
"""Root: similarity of goals at which lending starts."""
STATE_COSINE, STATE_GOAL_COSINE = 0.95, 0.90
"""Branch: similarities of states and of their goals at which lending starts."""
MOST_DONORS = 8
ROOT_DONOR_MASS, ROOT_MASS = 6.0, 4.0
"""Root: most outcomes one donor task lends (before the kernel), and most that are borrowed in all."""
CLUSTER_MASS, BRANCH_MASS = 1.0, 4.0
"""Branch: most outcomes one cluster lends (before the kernel), and most that are borrowed in all."""

_STATES_AT_ONCE = 8192  # bounds the cosine matrix of states against remembered states


def encode(encoder: Encoder | None, texts: Sequence[str]) -> VectorArray:
    """``[n, d]`` vectors of texts, each distinct text encoded once; ``[n, 0]`` without an encoder or texts.

    Raises:
        NumericsError: the encoder's vectors are not of unit length.
    """
    if encoder is None or not texts:
        return np.zeros((len(texts), 0), dtype=np.float32)
    distinct = {text: position for position, text in enumerate(dict.fromkeys(texts))}
    vectors = np.asarray(encoder.encode(list(distinct)), dtype=np.float32)
    length = np.linalg.norm(vectors, axis=1)
    if not np.allclose(length, 1, atol=1e-3):
        worst = float(length[np.argmax(np.abs(length - 1))])
        raise NumericsError(f"The sentence encoder gave a vector of length {worst:g}; expected vectors of length 1.")
    return vectors[[distinct[text] for text in texts]]


def kernel(cosine: FloatArray, threshold: float) -> FloatArray:
    """((cos − threshold)/(1 − threshold))² above the threshold, 0 below it; 1 for equal texts."""
    return np.clip((cosine - threshold) / (1 - threshold), 0, 1) ** 2


def root_masses(cosine: FloatArray, history: FloatArray) -> FloatArray:
    """What tasks borrow from the tasks whose goals read alike.

    The at most 8 nearest donors of cosine ≥ .95 count with ((cos − .95)/.05)²; each lends at most 6 outcomes before
    that factor (successes and failures in proportion), and at most 4 are borrowed in all.

    Args:
        cosine: ``[Q, T]`` similarity of the querying tasks' goals to all tasks' goals; −1 where a task meets itself.
        history: ``[T, 2]`` decayed successes and failures of all tasks.

    Returns:
        ``[Q, 2]`` masses of success and failure.
    """
    total = history.sum(axis=1)
    lent = _capped(history, ROOT_DONOR_MASS)
    weight = np.where(total > 0, kernel(cosine, GOAL_COSINE), 0.0)
    nearest = np.argsort(-weight, axis=1, kind="stable")[:, :MOST_DONORS]
    borrowed = (np.take_along_axis(weight, nearest, axis=1)[:, :, None] * lent[nearest]).sum(axis=1)
    return _capped(borrowed, ROOT_MASS)


def state_donors(
    memory: StateMemory,
    vectors: VectorArray,
    depth: RowArray,
    horizon: RowArray,
    own_row: RowArray,
    goal_cosine: FloatArray,
) -> tuple[RowArray, RowArray, FloatArray]:
    """The at most 8 nearest remembered states that may lend to each of Q states.

    A donor stands at the same depth under the same horizon, with state cosine > .95 and goal cosine > .90. Its weight
    is ((c_state − .95)/.05)²·((c_goal − .90)/.10)².

    Args:
        memory: the remembered states.
        vectors: ``[Q, d]`` of the querying states' texts.
        depth, horizon: ``[Q]``.
        own_row: ``[Q]`` the querying state's own row, which does not lend to itself.
        goal_cosine: ``[Q, T]`` similarity of the querying state's goal to all tasks' goals.

    Returns:
        Querying state, donor's row and weight (> 0); sorted by querying state, then from the nearest donor.
    """
    found: list[tuple[RowArray, RowArray, FloatArray]] = []
    for place in np.unique(np.stack([depth, horizon]), axis=1).T.tolist():
        asking = np.flatnonzero((depth == place[0]) & (horizon == place[1]))
        rows = memory.rows_at(*place)
        for low in range(0, len(rows), _STATES_AT_ONCE):
            some = rows[low : low + _STATES_AT_ONCE]
            cosine = vectors[asking] @ memory.vectors(some).T
            query, near = np.nonzero(cosine > STATE_COSINE)
            weight = kernel(cosine[query, near].astype(np.float64), STATE_COSINE)
            weight *= kernel(goal_cosine[asking[query], memory.task[some[near]]], STATE_GOAL_COSINE)
            found.append((asking[query], some[near], weight))
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    query, row, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    lending = np.flatnonzero((weight > 0) & (row != own_row[query]))
    order = lending[np.lexsort((row[lending], -weight[lending], query[lending]))]
    rank = np.arange(len(order)) - np.searchsorted(query[order], query[order], side="left")
    order = order[rank < MOST_DONORS]
    return query[order], row[order], weight[order]


def branch_masses(queries: int, donors: tuple[RowArray, FloatArray], lent: Outcomes, own: Outcomes) -> FloatArray:
    """What states borrow from their donors.

    Of each cluster only what its nearest donor state saw counts, as at most one outcome before the donor's weight;
    clusters that already are the borrower's own evidence do not count; at most 4 outcomes are borrowed in all.

    Args:
        queries: number Q of borrowing states.
        donors: querying state and weight of each donor, nearest first.
        lent: what the donors saw; ``owner`` is the position in ``donors``.
        own: what the borrowers saw; ``owner`` is the borrowing state.

    Returns:
        ``[Q, 2]`` masses of success and failure.
    """
    query, weight = donors[0][lent.owner], donors[1][lent.owner]
    width = int(max(lent.cluster.max(initial=0), own.cluster.max(initial=0))) + 1
    pair = query * width + lent.cluster
    first = np.unique(pair, return_index=True)[1]
    first = first[~np.isin(pair[first], own.owner * width + own.cluster)]
    seen = np.stack([lent.successes, lent.failures], axis=1) * lent.weight[:, None]
    mass = _capped(seen[first], CLUSTER_MASS) * weight[first, None]
    borrowed = np.zeros((queries, 2))
    np.add.at(borrowed, query[first], mass)
    return _capped(borrowed, BRANCH_MASS)


def _capped(masses: FloatArray, most: float) -> FloatArray:
    """``[n, 2]`` masses scaled down where their sum exceeds ``most``."""
    total = masses.sum(axis=1, keepdims=True)
    capped: FloatArray = masses * np.minimum(1, most / np.maximum(total, most))
    return capped
