"""Runs side by side: the same figures with a line a run, and differences with intervals over shared tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepcredit.core.errors import InputError
from stepcredit.core.files import read_episodes
from stepcredit.evaluation.evaluate import OVERALL
from stepcredit.evaluation.intervals import Interval, cluster_bootstrap
from stepcredit.report.figures import Figure, Series
from stepcredit.report.overview import (
    UPDATES,
    Line,
    evaluation_points,
    run_figures,
    success_figures,
    training_figures,
    update_lines,
)
from stepcredit.report.page import Report
from stepcredit.training.run_folder import RunFolder

DIFFERENCE = "Difference of success"
Outcomes = Mapping[str, tuple[str, float]]
"""Task → its family and the share of its episodes won."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run that is compared: its label on the page, recipe, log and folder."""

    label: str
    config: Mapping[str, Any]
    metrics: Sequence[Line]
    folder: Path


def compare_report(folders: Sequence[Path]) -> Report:
    """Two or more runs on the same axes; every other run's difference is against the first.

    Raises:
        InputError: fewer than two runs.
        CheckpointError: a folder holds no run, or one whose recipe or log is not as training writes it.
    """
    if len(folders) < 2:
        raise InputError(f"Got {len(folders)} run to compare, expected at least two.")
    runs = [_read(label, RunFolder(folder)) for label, folder in zip(_labels(folders), folders, strict=True)]
    metrics = {run.label: run.metrics for run in runs}
    differences = [found for run in runs[1:] for found in _differences(runs[0], run)]
    return Report(
        title=" · ".join(run.label for run in runs),
        facts={"compared with": runs[0].label, "runs": str(len(runs))},
        headline={},
        figures=[
            *success_figures(metrics),
            *_difference_figures(runs[0].label, differences),
            *training_figures(metrics),
        ],
        warnings=_warnings(runs, differences),
        tables={**_difference_table(runs[0].label, differences), **_config_table(runs)},
    )


def _read(label: str, run: RunFolder) -> Run:
    with run.as_written():
        metrics = run.metrics()
        run_figures(metrics, ())  # once alone, so that an error names the run
        return Run(label, run.read_config(), metrics, run.path)


@dataclass(frozen=True, slots=True)
class Difference:
    """Success of ``label`` less that of the first run, on the tasks both played."""

    label: str
    split: str
    family: str
    updates: int
    tasks: int
    value: Interval


def paired_difference(first: Outcomes, other: Outcomes, family: str = OVERALL) -> tuple[int, Interval] | None:
    """Mean over shared tasks of (other − first) with a 95 % interval from resampling tasks; None without such tasks.

    Both runs play the same tasks, so a task that is hard for both widens neither side of the difference.
    """
    shared = [task for task, (own, _) in first.items() if task in other and family in (OVERALL, own)]
    if not shared:
        return None
    return len(shared), cluster_bootstrap([[other[task][1] - first[task][1]] for task in shared])


def _labels(folders: Sequence[Path]) -> list[str]:
    """Last parts of the paths, with as many parent folders as it takes to tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(part[-depth:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    raise InputError(f"Got the run {str(folders[0])!r} twice; expected different runs.")


def _differences(first: Run, other: Run) -> Iterator[Difference]:
    """At every evaluation that both runs made after the same number of updates."""
    ours = {(line["split"], updates): line for updates, line in evaluation_points(first.metrics) if _counts(line)}
    for updates, line in evaluation_points(other.metrics):
        matching = ours.get((line["split"], updates))
        if matching is None or not _counts(line):
            continue
        before, after = _outcomes(first, matching), _outcomes(other, line)
        for family in dict.fromkeys((OVERALL, *(family for family, _ in before.values()))):
            found = paired_difference(before, after, family)
            if found is not None:
                yield Difference(other.label, line["split"], family, updates, *found)


def _counts(line: Line) -> bool:
    return bool(line["moment"] != "control")


def _outcomes(run: Run, line: Line) -> Outcomes:
    file = run.folder / "evaluations" / f"{line['moment']}-{line['split']}.jsonl.gz"
    won: dict[str, tuple[str, list[bool]]] = {}
    for episode in read_episodes(file) if file.is_file() else ():
        won.setdefault(episode.task, (str(episode.extra.get("family", "")), []))[1].append(episode.success)
    return {task: (family, sum(outcomes) / len(outcomes)) for task, (family, outcomes) in won.items()}


def _difference_figures(first: str, differences: Sequence[Difference]) -> Iterator[Figure]:
    overall = [one for one in differences if one.family == OVERALL]
    for split in dict.fromkeys(one.split for one in overall):
        curves: dict[str, list[Difference]] = {}
        for one in overall:
            if one.split == split:
                curves.setdefault(one.label, []).append(one)
        yield Figure(
            f"difference-{split}",
            DIFFERENCE,
            split,
            "line",
            UPDATES,
            f"success less that of {first}",
            [
                Series(
                    label,
                    [one.updates for one in points],
                    [one.value.mean for one in points],
                    [one.value.low for one in points],
                    [one.value.high for one in points],
                )
                for label, points in curves.items()
            ],
            f"Share of episodes won less that of {first} on the same tasks; the band is the 95 % interval over tasks.",
            percent=True,
        )


def _difference_table(first: str, differences: Sequence[Difference]) -> dict[str, list[list[str]]]:
    """By family at the last evaluation that both runs have."""
    latest: dict[tuple[str, str, str], Difference] = {}
    for one in differences:
        latest[one.label, one.split, one.family] = one
    rows = [
        [
            one.label,
            one.split,
            "all" if one.family == OVERALL else one.family,
            str(one.updates),
            str(one.tasks),
            _points(one.value.mean),
            f"{_points(one.value.low)} … {_points(one.value.high)}",
        ]
        for one in latest.values()
    ]
    header = ["run", "split", "family", "updates", "tasks", "difference", "95 % interval"]
    return {f"Success less that of {first}": [header, *rows]} if rows else {}


def _points(share: float) -> str:
    return f"{share:+.1%}".replace("-", "−")


def _config_table(runs: Sequence[Run]) -> dict[str, list[list[str]]]:
    """The recipe keys in which the runs differ."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    differing = [key for key in keys if any(run.config.get(key) != runs[0].config.get(key) for run in runs)]
    rows = [[key, *(str(run.config.get(key, "–")) for run in runs)] for key in differing]
    return {"Recipe keys that differ": [["key", *(run.label for run in runs)], *rows]} if rows else {}


def _warnings(runs: Sequence[Run], differences: Sequence[Difference]) -> list[str]:
    found = []
    done = {run.label: len(update_lines(run.metrics)) for run in runs}
    if len(set(done.values())) > 1:
        found.append(
            f"The runs differ in length: {', '.join(f'{label} {count}' for label, count in done.items())} updates."
        )
    without = [run.label for run in runs[1:] if not any(one.label == run.label for one in differences)]
    if without:
        found.append(
            f"No difference for {', '.join(without)}: no evaluation on shared tasks after the same number of updates."
        )
    return found
