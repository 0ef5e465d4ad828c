"""Two evaluations of the same tasks, paired task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stepcredit.core.errors import OptionError
from stepcredit.core.objects import first_difference
from stepcredit.evaluation.folder import Kept
from stepcredit.evaluation.intervals import Interval, paired_bootstrap
from stepcredit.evaluation.results import OVERALL, Outcome


@dataclass(frozen=True, slots=True)
class PairedResult:
    """Second against first on one family, or on ``OVERALL``.

    Attributes:
        tasks: how many.
        first, second: share of episodes won.
        difference: second − first, with its 95 % interval from resampling whole tasks, both sides together.
        score: second − first of the mean graded outcome, likewise.
        wins, ties, losses: tasks of which the second won more, as many, and fewer episodes than the first.
    """

    tasks: int
    first: float
    second: float
    difference: Interval
    score: Interval
    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired results by family in alphabetical order, ``OVERALL`` last."""

    families: Mapping[str, PairedResult]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"families": {name: asdict(row) for name, row in self.families.items()}}


def compare_evaluations(first: Kept, second: Kept, *, resamples: int | None = None) -> Comparison:
    """Pair two finished evaluations.

    Args:
        first: what is compared with.
        second: what is compared.
        resamples: bootstrap draws; those of the protocol by default.

    Raises:
        OptionError: they were not played alike, or not on the same tasks; names the first difference.
    """
    difference = first_difference(_material(first.plan), _material(second.plan))
    if difference is not None:
        raise OptionError(
            f"{str(first.folder)!r} and {str(second.folder)!r} were not played alike: {difference}; "
            "evaluate both under one protocol."
        )
    if first.plan["tasks"] != second.plan["tasks"]:
        own = set(first.plan["tasks"])
        shared = sum(task in own for task in second.plan["tasks"])
        raise OptionError(
            f"{str(first.folder)!r} and {str(second.folder)!r} were not played on the same tasks "
            f"({len(own)} and {len(second.plan['tasks'])}, {shared} of them shared); evaluate both with one --tasks."
        )
    draws = resamples if resamples is not None else first.plan["protocol"]["resamples"]
    before, after = first.result.outcomes, second.result.outcomes
    results = {}
    for family in sorted({outcome.family for outcome in before}):
        ours, theirs = ([one for one in side if one.family == family] for side in (before, after))
        results[family] = _paired(ours, theirs, draws)
    return Comparison({**results, OVERALL: _paired(before, after, draws)})


_IMMATERIAL = ("name", "sources", "resamples")
"""What a protocol says that changes no episode."""


def _material(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What two plans must agree in, beside their tasks."""
    protocol = {name: value for name, value in plan["protocol"].items() if name not in _IMMATERIAL}
    return {**{name: value for name, value in plan.items() if name != "tasks"}, "protocol": protocol}


def _paired(first: Sequence[Outcome], second: Sequence[Outcome], resamples: int) -> PairedResult:
    before, after = _by_task(first), _by_task(second)
    pairs = [(before[task], after[task]) for task in before]
    won = [([float(one.success) for one in a], [float(one.success) for one in b]) for a, b in pairs]
    scores = [([one.score for one in a], [one.score for one in b]) for a, b in pairs]
    gains = [sum(b) - sum(a) for a, b in won]
    return PairedResult(
        tasks=len(pairs),
        first=sum(one.success for one in first) / len(first),
        second=sum(one.success for one in second) / len(second),
        difference=paired_bootstrap(*zip(*won, strict=True), resamples=resamples),
        score=paired_bootstrap(*zip(*scores, strict=True), resamples=resamples),
        wins=sum(gain > 0 for gain in gains),
        ties=sum(gain == 0 for gain in gains),
        losses=sum(gain < 0 for gain in gains),
    )


def _by_task(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    tasks: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda one: one.task):
        tasks.setdefault(outcome.task, []).append(outcome)
    return tasks
