"""Figures about a whole run, from ``metrics.jsonl`` and ``timing.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepcredit.evaluation.evaluate import OVERALL
from stepcredit.report.figures import Figure, Number, Series, line

Line = Mapping[str, Any]

SUCCESS, TRAINING, CREDIT, ALLOCATION, TIME = (
    "Success on held-out tasks",
    "Training",
    "Credit",
    "Allocation",
    "Time",
)
UPDATES = "updates"
STAGES = ("rollout", "credit", "update", "evaluation")

_TRACKED = (
    # name, section, title, y label, path in the line, share of one
    ("training-success", TRAINING, "Success while training", "root episodes won", ("success",), True),
    ("turns", TRAINING, "Turns an episode", "turns", ("turns",), False),
    ("validity", TRAINING, "Valid responses", "share of turns", ("valid",), True),
    ("entropy", TRAINING, "Token entropy", "nats", ("policy", "entropy"), False),
    ("kl", TRAINING, "KL from the behaviour policy", "nats", ("policy", "approx_kl"), False),
    ("clip-share", TRAINING, "Clipped", "share", ("policy", "clip_share"), True),
    ("gradient", TRAINING, "Gradient norm", "norm", ("policy", "grad_norm"), False),
    ("shared-states", CREDIT, "Turns with a peer", "share of turns", ("credit", "groups", "shared"), True),
    ("group-size-mean", CREDIT, "Mean group size", "turns", ("credit", "groups", "mean_size"), False),
    ("conflicts", CREDIT, "Sign conflicts", "share of turns", ("credit", "sign_conflicts"), True),
    ("conversion", ALLOCATION, "Openings converted", "share", ("allocation", "round_outcomes", "conversion"), True),
    ("contrast", ALLOCATION, "Suffixes with contrast", "share", ("allocation", "round_outcomes", "contrast"), True),
    ("brier-root", ALLOCATION, "Brier score of Root", "score", ("allocation", "root", "brier"), False),
    ("brier-branch", ALLOCATION, "Brier score of Branch", "score", ("allocation", "branch", "brier"), False),
)
"""One figure a line: a number that every update logs."""


def run_figures(metrics: Sequence[Line], timing: Sequence[Line]) -> list[Figure]:
    """Everything that the logs have data for, in reading order."""
    return [
        *success_figures({"": metrics}),
        *training_figures({"": metrics}),
        *_magnitudes(metrics),
        *_time(metrics, timing),
    ]


def success_figures(runs: Mapping[str, Sequence[Line]]) -> Iterator[Figure]:
    """One figure for all families together, then one a family, with a line a run and split."""
    curves = {
        (family, run, split): points
        for run, metrics in runs.items()
        for (family, split), points in _evaluations(metrics).items()
    }
    families = dict.fromkeys((OVERALL, *(family for family, _, _ in curves)))
    one_split = len({split for _, _, split in curves}) == 1
    for family in families:
        series = [
            Series(
                " · ".join(filter(None, (run, "" if run and one_split else split))),
                *map(list, zip(*points, strict=True)),
            )
            for (own, run, split), points in curves.items()
            if own == family
        ]
        if series:
            yield Figure(
                f"success-{family}",
                SUCCESS,
                "All families" if family == OVERALL else family,
                "line",
                UPDATES,
                "episodes won",
                series,
                "Share of episodes won; the band is the 95 % interval over tasks." if family == OVERALL else "",
                percent=True,
            )


def training_figures(runs: Mapping[str, Sequence[Line]]) -> Iterator[Figure]:
    """What every update logs, one figure a number and one line a run."""
    for name, section, title, label, path, percent in _TRACKED:
        series = [line(run or title, *_column(metrics, path)) for run, metrics in runs.items()]
        found = [one for one in series if one is not None]
        if any(any(one.y) for one in found):
            yield Figure(name, section, title, "line", UPDATES, label, found, percent=percent)


def update_lines(metrics: Sequence[Line]) -> list[Line]:
    """The lines of updates."""
    return [one for one in metrics if one["kind"] == "update"]


def evaluation_points(metrics: Sequence[Line]) -> Iterator[tuple[int, Line]]:
    """Every evaluation line with the number of updates that came before it."""
    done = 0
    for one in metrics:
        if one["kind"] == "update":
            done = one["update"]
        elif one["kind"] == "evaluation":
            yield done, one


def _evaluations(metrics: Sequence[Line]) -> dict[tuple[str, str], list[tuple[float, float, float, float]]]:
    """(family, split) → points (updates, mean, low, high); the control is a split of its own."""
    curves: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for done, one in evaluation_points(metrics):
        split = f"{one['split']}, control" if one["moment"] == "control" else one["split"]
        for family, row in one["families"].items():
            success = row["success"]
            points = curves.setdefault((family, split), [])
            points.append((done, success["mean"], success["low"], success["high"]))
    return curves


def _column(metrics: Sequence[Line], path: Sequence[str]) -> tuple[list[float], list[Number]]:
    x: list[float] = []
    y: list[Number] = []
    for one in update_lines(metrics):
        value: Any = one
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        x.append(one["update"])
        y.append(value)
    return x, y


def _magnitudes(metrics: Sequence[Line]) -> Iterator[Figure]:
    updates = update_lines(metrics)
    parts = dict.fromkeys(part for one in updates for part in one["credit"].get("mean_abs", ()))
    series = [line(part, *_column(updates, ("credit", "mean_abs", part))) for part in parts]
    found = [one for one in series if one is not None]
    if found:
        caption = "Mean absolute value of the advantage and of its parts, over the scored turns."
        yield Figure("credit-size", CREDIT, "Size of the credit", "line", UPDATES, "mean |A|", found, caption)


def _time(metrics: Sequence[Line], timing: Sequence[Line]) -> Iterator[Figure]:
    # A timing line's ``update`` is the seconds of that stage; its step says which update it was.
    number = {one["step"]: one for one in update_lines(metrics)}
    timed = [one for one in timing if one["step"] in number and "rollout" in one]
    if not timed:
        return
    x = [number[one["step"]]["update"] for one in timed]
    stages = [
        Series(stage, x, [one.get(stage, 0.0) for one in timed])
        for stage in STAGES
        if any(stage in one for one in timed)
    ]
    yield Figure("time", TIME, "Seconds an update", "stack", UPDATES, "seconds", stages)
    turns = [number[one["step"]]["turns"] * number[one["step"]]["episodes"] for one in timed]
    speed = [count / max(one["rollout"], 1e-9) for count, one in zip(turns, timed, strict=True)]
    yield Figure("speed", TIME, "Speed of collection", "line", UPDATES, "turns a second", [Series("turns", x, speed)])
