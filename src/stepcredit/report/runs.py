"""A run folder as a report: which updates and task groups are shown, and what is said first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepcredit.core.files import read_episodes
from stepcredit.evaluation.evaluate import OVERALL
from stepcredit.report.batch import METHODS, Batch, make_batch
from stepcredit.report.overview import Line, evaluation_points, run_figures, update_lines
from stepcredit.report.page import Report, write_page
from stepcredit.training.run_folder import RunFolder

UPDATES_SHOWN = 10
"""Updates whose episodes a page holds: the first, the last, and evenly spaced ones between."""


def write_report(run_folder: Path, out: Path) -> Path:
    """Write the report of a run, finished or not, into the folder ``out``, and say where it is.

    Raises:
        CheckpointError: the folder holds no run.
        MissingExtraError: the extra ``report`` is not installed.
    """
    return write_page(run_report(run_folder), out)


def run_report(folder: Path, methods: Sequence[str] = METHODS) -> Report:
    """What the page of a run shows; the run's own method comes first.

    Raises:
        CheckpointError: the folder holds no run, or one whose recipe or log is not as training writes it.
    """
    run = RunFolder(folder)
    with run.as_written():
        config, metrics, timing = run.read_config(), run.metrics(), run.metrics("timing")
        by_update = {one["update"]: one for one in update_lines(metrics)}
        own, facts, headline = own_method(config), _facts(config, len(by_update)), _headline(metrics, timing)
        figures, warnings = run_figures(metrics, timing), run_warnings(metrics)
    files = sorted((folder / "rollouts").glob("*.jsonl.gz"))
    batches = [
        make_batch(
            f"update {int(file.name.partition('.')[0])}",
            list(read_episodes(file)),
            [own, *methods],
            metrics=by_update.get(int(file.name.partition(".")[0])),
        )
        for file in spread(files, UPDATES_SHOWN)
    ]
    return Report(
        title=folder.resolve().name,
        facts=facts,
        headline=headline,
        figures=figures,
        warnings=warnings,
        config=config,
        batches=batches,
        sampling=_sampling(batches, len(files)),
    )


def own_method(config: Mapping[str, Any]) -> str:
    """The run's method with its options, as the catalogue reads it: ``graft:lam=0.8``."""
    options = ",".join(f"{name}={str(value).lower()}" for name, value in config["method_options"].items())
    return f"{config['method']}:{options}" if options else str(config["method"])


def spread(items: Sequence[Path], count: int) -> list[Path]:
    """At most ``count`` of the items, evenly spaced, the first and the last among them."""
    if not items:
        return []
    chosen = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[place] for place in chosen]


def run_warnings(metrics: Sequence[Line]) -> list[str]:
    """Sentences about the whole run: failures, unreplayable branches, skipped steps, and each method's own warnings."""
    updates = update_lines(metrics)
    found = []
    failures = sum(one["failures"] for one in updates)
    if failures:
        found.append(f"{failures} episodes failed before their first turn and are in no figure.")
    suffixes = [one["allocation"]["round_outcomes"] for one in updates if "round_outcomes" in one["allocation"]]
    lost = sum(one["unreplayable"] for one in suffixes)
    if lost:
        found.append(f"{lost} of {sum(one['openings'] for one in suffixes)} branches could not be replayed.")
    skipped = sum(one["policy"].get("skipped_steps", 0) for one in updates)
    if skipped:
        found.append(f"{skipped:.0f} optimiser steps were skipped because their gradient was not finite.")
    still = [one for one in updates if "skipped" in one]
    if still:
        found.append(
            f"{len(still)} updates moved nothing; the last, update {still[-1]['update']}: {still[-1]['skipped']}"
        )
    if updates:
        found += _group_warnings(updates[-1])
    return found


def _group_warnings(latest: Line) -> list[str]:
    if not latest["credit"]:
        return []
    groups = latest["credit"]["groups"]
    found = [f"Update {latest['update']}: {warning}" for warning in latest["credit"].get("warnings", ())]
    if 2 * groups["singletons"] > groups["count"]:
        found.append(
            f"Update {latest['update']}: {groups['singletons']:,} of {groups['count']:,} credit groups hold one turn, "
            "which has no peer."
        )
    if 2 * groups["all_equal"] > groups["count"] - groups["singletons"]:
        found.append(
            f"Update {latest['update']}: {groups['all_equal']:,} of {groups['count'] - groups['singletons']:,} credit "
            "groups of two or more have equal values throughout and say nothing."
        )
    return found


def _facts(config: Mapping[str, Any], done: int) -> dict[str, str]:
    return {
        "environment": str(config["environment"]),
        "model": str(config["model"]),
        "method": own_method(config),
        "updates": f"{done} of {config['updates']}",
        "episodes an update": f"{config['tasks_per_update']} × {config['group_size']}",
        "seed": str(config["seed"]),
    }


def _headline(metrics: Sequence[Line], timing: Sequence[Line]) -> dict[str, str]:
    """Success on each split before and after, episodes played, and time."""
    found = {}
    by_split: dict[str, list[Line]] = {}
    for _, one in evaluation_points(metrics):
        by_split.setdefault(one["split"], []).append(one["families"][OVERALL]["success"])
    for split, moments in by_split.items():
        first, last = moments[0], moments[-1]
        label = f"success on {split} (95 %: {last['low']:.1%} – {last['high']:.1%})"
        found[label] = f"{first['mean']:.1%} → {last['mean']:.1%}"
    updates = update_lines(metrics)
    if updates:
        found["episodes played"] = f"{sum(one['episodes'] for one in updates):,}"
        found["turns an episode"] = f"{updates[0]['turns']:.1f} → {updates[-1]['turns']:.1f}"
    seconds = sum(value for one in timing for name, value in one.items() if name != "step" and isinstance(value, float))
    if seconds:
        found["time in updates"] = f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
    return found


def _sampling(batches: Sequence[Batch], updates: int) -> list[str]:
    if len(batches) == updates:
        return []
    return [f"Curves cover all {updates} updates; episodes, graphs and distributions {len(batches)} of them."]
