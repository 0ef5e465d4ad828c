"""A run at this moment, for a terminal: progress, curves, the newest task groups, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stepcredit.core.episodes import Episode
from stepcredit.core.files import read_episodes
from stepcredit.evaluation.evaluate import OVERALL
from stepcredit.report.overview import Line, evaluation_points, update_lines
from stepcredit.report.runs import own_method, run_warnings
from stepcredit.report.text import visible
from stepcredit.training.run_folder import RunFolder

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 48
"""Characters of a curve."""
GROUPS_SHOWN = 8
GOAL_WIDTH = 56

_CURVES = (
    ("success", ("success",), ".1%"),
    ("turns", ("turns",), ".1f"),
    ("valid", ("valid",), ".1%"),
    ("entropy", ("policy", "entropy"), ".3f"),
    ("KL", ("policy", "approx_kl"), ".4f"),
    ("clipped", ("policy", "clip_share"), ".1%"),
    ("|A|", ("credit", "mean_abs", "advantage"), ".3f"),
)


def snapshot(folder: Path) -> tuple[RenderableType, bool]:
    """What to show of a run, and whether the run is finished.

    A last line of the log that is still being written is left for the next look.

    Raises:
        CheckpointError: the folder holds no run, or one whose recipe or log is not as training writes it.
        InputError: the newest rollout file cannot be read.
    """
    run = RunFolder(folder)
    with run.as_written():
        return _snapshot(run)


def _snapshot(run: RunFolder) -> tuple[RenderableType, bool]:
    config, metrics = run.read_config(), run.metrics()
    updates = update_lines(metrics)
    control = not config["control_epochs"]
    moments = {line["moment"] for _, line in evaluation_points(metrics)}
    # Without held-out splits the last update is the last line.
    evaluated = "after" in moments or not (config["eval_splits"] or config["also_evaluate"])
    finished = len(updates) >= config["updates"] and evaluated and (control or "control" in moments)
    parts = [
        _head(run.path, config, metrics),
        _curves(updates),
        _evaluations(metrics),
        _newest(run.path),
        _warnings(metrics),
    ]
    return Group(*(part for part in parts if part is not None)), finished


def curve(values: Sequence[float], width: int = WIDTH) -> str:
    """Block characters from the lowest to the highest value; more values than ``width`` are averaged into it."""
    if not values:
        return ""
    parts = np.array_split(np.array(values, dtype=np.float64), min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    span = means.max() - means.min()
    level = np.zeros(len(means)) if span == 0 else (means - means.min()) / span
    return "".join(BLOCKS[place] for place in np.rint(level * (len(BLOCKS) - 1)).astype(int))


def _head(folder: Path, config: Mapping[str, Any], metrics: Sequence[Line]) -> RenderableType:
    done = len(update_lines(metrics))
    epochs = [line["epoch"] for line in metrics if line["kind"] == "imitation"]
    stage = f"update {done} of {config['updates']}"
    if not done and epochs:
        stage = f"imitation epoch {epochs[-1]} of at most {config['imitation_epochs']}"
    facts = f"{config['environment']} · {config['model']} · {own_method(config)} · seed {config['seed']}"
    table = Table.grid(padding=(0, 2))
    table.add_row(Text(visible(folder.resolve().name), style="bold"), Text(visible(facts), style="dim"))
    table.add_row(Text(stage), ProgressBar(total=max(config["updates"], 1), completed=done, width=WIDTH))
    return table


def _curves(updates: Sequence[Line]) -> RenderableType | None:
    if not updates:
        return None
    table = Table.grid(padding=(0, 2))
    for label, path, form in _CURVES:
        values = [value for line in updates if (value := _at(line, path)) is not None]
        if values:
            numbers = f"{values[-1]:{form}}"
            extent = f"{min(values):{form}} – {max(values):{form}}"
            table.add_row(
                Text(label, style="dim"), Text(curve(values), style="cyan"), numbers, Text(extent, style="dim")
            )
    return Panel(table, title="updates", title_align="left", border_style="dim", expand=False)


def _at(line: Line, path: Sequence[str]) -> float | None:
    value: Any = line
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def _evaluations(metrics: Sequence[Line]) -> RenderableType | None:
    points = list(evaluation_points(metrics))
    if not points:
        return None
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("evaluation", "after updates", "success", "95 % interval"):
        table.add_column(column, header_style="dim")
    latest = {(line["split"], line["moment"] == "control"): (updates, line) for updates, line in points}
    for updates, line in latest.values():
        success = line["families"][OVERALL]["success"]
        name = line["split"] if line["moment"] != "control" else f"{line['split']}, control"
        interval = f"{success['low']:.1%} – {success['high']:.1%}"
        table.add_row(Text(visible(name)), str(updates), Text(f"{success['mean']:.1%}", style="bold"), interval)
    return table


def _newest(folder: Path) -> RenderableType | None:
    """Task groups of the newest update: outcomes of roots, then of branches, and the mean number of turns."""
    files = sorted((folder / "rollouts").glob("*.jsonl.gz"))
    if not files:
        return None
    groups: dict[str, list[Episode]] = {}
    for episode in read_episodes(files[-1]):
        groups.setdefault(episode.task, []).append(episode)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in (f"groups of update {int(files[-1].name.partition('.')[0])}", "outcomes", "turns"):
        table.add_column(column, header_style="dim", no_wrap=True)
    mixed_first = sorted(groups.items(), key=lambda group: len({one.success for one in group[1]}) == 1)
    for task, episodes in mixed_first[:GROUPS_SHOWN]:
        goal = visible(str(episodes[0].extra.get("goal", task)), GOAL_WIDTH).replace("\n", " ")
        turns = sum(len(one.turns) for one in episodes) / len(episodes)
        table.add_row(Text(goal), _marks(episodes), f"{turns:.1f}")
    return table


def _marks(episodes: Sequence[Episode]) -> Text:
    roots = [one for one in episodes if one.parent is None]
    branches = [one for one in episodes if one.parent is not None]
    marks = Text()
    for part in (roots, branches):
        if marks and part:
            marks.append(" ⑂ ", style="dim")
        for one in part:
            marks.append("✓" if one.success else "✗", style="green" if one.success else "red")
    return marks


def _warnings(metrics: Sequence[Line]) -> RenderableType | None:
    warnings = run_warnings(metrics)
    return Text("\n".join(f"! {visible(warning)}" for warning in warnings), style="yellow") if warnings else None
