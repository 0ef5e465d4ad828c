"""Figures about one batch, over all of its episodes: groups, weights, propagation, and methods beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.turns import Turns
from stepcredit.credit.groups import group_sizes, joint_groups
from stepcredit.evaluation.intervals import cluster_bootstrap
from stepcredit.report.batch import Batch
from stepcredit.report.figures import Figure, Series, size_classes

GROUPS, CREDIT, ALLOCATION = "Groups", "Methods beside each other", "Allocation"
PERCENTILES = np.arange(0, 101, 2)
WEIGHT_BINS = 20
FEWEST_AT_DEPTH = 5
"""Turns at one depth from which a share is worth a point."""
RESAMPLES = 2_000


def batch_figures(batch: Batch) -> list[Figure]:
    """All figures that the batch has data for."""
    return [*_groups(batch), *_methods(batch), *_reliability(batch)]


def _groups(batch: Batch) -> Iterator[Figure]:
    turns = batch.turns
    sizes = group_sizes(turns.state)
    classes = size_classes(sizes, sizes.astype(np.float64))
    yield Figure(
        "group-size",
        GROUPS,
        "Size of observation groups",
        "bars",
        "turns that leave one state",
        "share of turns",
        [Series("turns", list(classes), list(classes.values()))],
        "How many turns of its task leave the same state as a turn does; a turn alone in its state has no peer.",
        percent=True,
    )
    yield from _density(turns)
    yield _propagation(batch)


def _density(turns: Turns) -> Iterator[Figure]:
    """Share of turns in company, by depth on the path."""
    company = group_sizes(turns.state)[turns.state] >= 2
    count = np.bincount(turns.depth)
    shared = np.bincount(turns.depth, weights=company) / np.maximum(count, 1)
    depth = np.flatnonzero(count >= FEWEST_AT_DEPTH)
    if not len(depth):
        return
    yield Figure(
        "group-density",
        GROUPS,
        "Observation-group density",
        "line",
        "turn on the path",
        "share with a peer",
        [Series("turns in a group of two or more", depth.tolist(), shared[depth].tolist())],
        "Share of turns at each depth whose state another turn of the task leaves too.",
        percent=True,
    )


def _propagation(batch: Batch) -> Figure:
    turns = batch.turns
    left = np.flatnonzero(batch.graph.departures > 0)
    visit = joint_groups(turns.state, turns.episode)
    through = np.bincount(turns.state[np.unique(visit, return_index=True)[1]], minlength=len(batch.graph))
    ones = np.ones(len(left))
    series = [
        Series(name, list(classes), list(classes.values()))
        for name, classes in (
            ("episodes through the state (groups)", size_classes(through[left], ones)),
            ("episodes that reach it through the graph", size_classes(batch.degree[left], ones)),
        )
    ]
    return Figure(
        "propagation",
        GROUPS,
        "Information propagation degree",
        "bars",
        "distinct episodes whose outcome reaches the state",
        "share of states",
        series,
        "State groups learn from the episodes that pass a state, graph methods from all that can be reached from it.",
        percent=True,
    )


def _methods(batch: Batch) -> Iterator[Figure]:
    scored = {name: values for name, credit in batch.credits.items() if len(values := credit.advantage[credit.scored])}
    yield Figure(
        "credit-magnitude",
        CREDIT,
        "Credit magnitude",
        "line",
        "percentile of turns",
        "|A|",
        [Series(name, PERCENTILES.tolist(), np.percentile(np.abs(values), PERCENTILES).tolist())
         for name, values in scored.items()],
        "Absolute advantage below which each share of the turns lies; methods differ in unit.",
    )  # fmt: skip
    yield from _disagreement(batch)
    yield from _conflicts(batch)
    weights = {name: credit.components["weight"] for name, credit in batch.credits.items() if _mixes(credit.components)}
    if weights:
        edges = np.linspace(0, 1, WEIGHT_BINS + 1)
        names = [f"{low:.2f}" for low in edges[:-1]]
        yield Figure(
            "mixing-weight",
            CREDIT,
            "Mixing weight λ",
            "bars",
            "weight of the step credit, from … on",
            "share of turns",
            [Series(name, names, _shares(values, edges)) for name, values in weights.items()],
            "0 is pure episode credit, 1 pure step credit.",
            percent=True,
        )


def _mixes(parts: Mapping[str, FloatArray]) -> bool:
    return {"episode", "step", "weight"} <= parts.keys()


def _shares(values: FloatArray, edges: FloatArray) -> list[float]:
    counts, _ = np.histogram(values, edges)
    return (counts / max(counts.sum(), 1)).tolist()  # type: ignore[no-any-return]


def _disagreement(batch: Batch) -> Iterator[Figure]:
    """Share of turns that two methods push in opposite directions, with whole tasks resampled."""
    (first, reference), *others = batch.credits.items()
    if not others:
        return
    opposite = [(name, reference.advantage * credit.advantage < 0) for name, credit in others]
    yield _shares_by_method(
        batch,
        opposite,
        "disagreement",
        f"Turns where a method opposes {first}",
        f"Share of turns that {first} rewards and the other method punishes, or the reverse; 95 % interval over tasks.",
    )


def _conflicts(batch: Batch) -> Iterator[Figure]:
    both = [
        (name, credit.components["episode"] * credit.components["step"] < 0)
        for name, credit in batch.credits.items()
        if {"episode", "step"} <= credit.components.keys()
    ]
    if both:
        yield _shares_by_method(
            batch,
            both,
            "sign-conflicts",
            "Sign conflicts inside a method",
            "Share of turns whose episode credit and step credit have opposite signs; 95 % interval over tasks.",
        )


def _shares_by_method(batch: Batch, marked: list[tuple[str, Any]], name: str, title: str, caption: str) -> Figure:
    intervals = [_over_tasks(batch.turns, mask.astype(np.float64)) for _, mask in marked]
    return Figure(
        name,
        CREDIT,
        title,
        "bars",
        "method",
        "share of turns",
        [
            Series(
                "turns",
                [label for label, _ in marked],
                [one.mean for one in intervals],
                [one.low for one in intervals],
                [one.high for one in intervals],
            )
        ],
        caption,
        percent=True,
    )


def _over_tasks(turns: Turns, values: FloatArray) -> Any:
    order = np.argsort(turns.task, kind="stable")
    bounds = np.cumsum(np.bincount(turns.task))[:-1]
    return cluster_bootstrap(np.split(values[order], bounds), resamples=RESAMPLES)  # type: ignore[arg-type]


def _reliability(batch: Batch) -> Iterator[Figure]:
    meaning = {"root": "the task's rollouts disagree", "branch": "suffixes find the opposite outcome"}
    for side, event in meaning.items():
        bins = batch.metrics.get("allocation", {}).get(side, {}).get("bins", [])
        if bins:
            yield Figure(
                f"reliability-{side}",
                ALLOCATION,
                f"Reliability of {side.capitalize()}",
                "points",
                "predicted probability",
                "observed share",
                [
                    Series(
                        side,
                        [one["predicted"] for one in bins],
                        [one["observed"] for one in bins],
                        size=[one["count"] for one in bins],
                    )
                ],
                f"How often {event}, against how often it was predicted; on the diagonal predictions are honest.",
                percent=True,
            )
