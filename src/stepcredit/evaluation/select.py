"""Which checkpoint of several runs to report: the maximum of the mean over seeds, and the fixed update beside it.

A maximum over checkpoints is an optimistic number, the more so the more checkpoints there are. GACA reports the update
whose mean over seeds is highest; a figure at an update fixed in advance has no such bias. Both are always given.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stepcredit.core.errors import InputError, OptionError
from stepcredit.core.objects import as_written
from stepcredit.evaluation.results import OVERALL


@dataclass(frozen=True, slots=True)
class SeedMean:
    """Success over seeds at one update.

    Attributes:
        update: updates done; 0 is the policy that reinforcement learning began from.
        mean: of the seeds.
        deviation: standard deviation over seeds, divisor n − 1; None for a single seed.
        seeds: success of each run, in their order.
    """

    update: int
    mean: float
    deviation: float | None
    seeds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Selection:
    """One split's figures.

    Attributes:
        maximum: at the update whose mean over seeds is highest on the split that the choice was made on.
        fixed: at the update fixed in advance.
        each_maximum: mean over seeds of every run's own maximum; never the figure to report.
        curve: at every update at which all runs were evaluated.
    """

    maximum: SeedMean
    fixed: SeedMean
    each_maximum: float
    curve: Sequence[SeedMean]


@dataclass(frozen=True, slots=True)
class Selected:
    """Figures by split; the choice was made on ``chosen_on`` alone."""

    chosen_on: str
    splits: Mapping[str, Selection]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)


def select_checkpoint(
    runs: Sequence[Sequence[Mapping[str, Any]]], *, on: str | None = None, fixed: int | None = None
) -> Selected:
    """The maximum mean over seeds and the fixed-update figure, for every split that all runs evaluated.

    Args:
        runs: the metrics of each run, line by line; the runs differ in their seed alone.
        on: split that the maximum is chosen on; the first of the runs by default. Other splits are reported at that
            update, which is free of the choice's optimism.
        fixed: the update fixed in advance; the last one by default.

    Returns:
        One ``Selection`` a split. Ties go to the earlier update.

    Raises:
        OptionError: no runs, no split or no update that all of them evaluated.
        InputError: a line of metrics is not as training writes it.
    """
    with as_written(
        lambda found: InputError(f"The metrics of a run are not as training writes them ({found}); restore them.")
    ):
        curves = [_curve(run) for run in runs]
    splits = [split for split in curves[0] if all(split in curve for curve in curves)] if curves else []
    if not splits:
        raise OptionError(
            "The runs share no evaluated split; train them with eval_splits, and with eval_every above 0."
        )
    chosen_on = splits[0] if on is None else on
    if chosen_on not in splits:
        raise OptionError(f"Not all runs evaluated split {on!r}; expected one of: {', '.join(splits)}.")
    means = {split: _means([curve[split] for curve in curves], split) for split in splits}
    chosen = max(means[chosen_on], key=lambda one: (one.mean, -one.update)).update
    results = {}
    for split, curve in means.items():
        at = {one.update: one for one in curve}
        last = max(at) if fixed is None else fixed
        for update in (last, chosen):
            if update not in at:
                raise OptionError(
                    f"Not all runs were evaluated on {split!r} after {update} updates; "
                    f"expected one of: {', '.join(map(str, sorted(at)))}."
                )
        each = [max(one[split].values()) for one in curves]
        results[split] = Selection(at[chosen], at[last], math.fsum(each) / len(each), curve)
    return Selected(chosen_on, results)


def _curve(metrics: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Split → updates done → success. The control is another policy and left out."""
    curve: dict[str, dict[int, float]] = {}
    done = 0
    for line in metrics:
        if line["kind"] == "update":
            done = operator.index(line["update"])
        elif line["kind"] == "evaluation" and line["moment"] != "control":
            curve.setdefault(line["split"], {})[done] = _share(line["families"][OVERALL]["success"]["mean"])
    return curve


def _share(value: Any) -> float:
    if isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"a success of {value!r}")
    return float(value)


def _means(curves: Sequence[Mapping[int, float]], split: str) -> list[SeedMean]:
    updates = sorted(update for update in curves[0] if all(update in curve for curve in curves))
    if not updates:
        raise OptionError(f"There is no update after which all runs were evaluated on {split!r}.")
    result = []
    for update in updates:
        values = [curve[update] for curve in curves]
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        result.append(SeedMean(update, math.fsum(values) / len(values), deviation, values))
    return result
