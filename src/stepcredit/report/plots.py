"""Every figure of a report as PNG and SVG for papers, with its numbers as CSV beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import InputError, missing_extra
from stepcredit.core.files import open_atomic
from stepcredit.report.batch import Batch
from stepcredit.report.distributions import batch_figures
from stepcredit.report.figures import Figure, Number, Series
from stepcredit.report.forest import Forest
from stepcredit.report.group import describe_group
from stepcredit.report.page import Report, preferred_tasks
from stepcredit.report.pictures import draw_graph, draw_tree, graph_csv, tree_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#55585c", "#9a8c00")
"""Okabe and Ito's palette, safe for colour-blind readers; a darker yellow, which white paper does not swallow."""
SIZE, PICTURE_SIZE = (4.4, 2.9), (9.0, 5.6)
"""Inches."""
DPI = 200
FEW_POINTS = 16
"""Up to this many a line shows its points."""
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e2e2dc",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "stepcredit",  # element names that do not change from run to run
    "text.parse_math": False,
}
PICTURED = 4
"""Task groups of the newest batch whose graph and tree are drawn."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Something to draw: file stem, inches, how, and its numbers as CSV."""

    name: str
    size: tuple[float, float]
    draw: Callable[[Axes], None]
    table: str


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write NAME.png, NAME.svg and NAME.csv of every figure of the overview and of the newest batch.

    Task graphs and physical trees are drawn for the first four task groups, by the batch's first method.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: the folder cannot be written.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise missing_extra("matplotlib", "report", "Writing figures") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write {str(folder)!r}: {error.strerror}.") from None
    written: list[Path] = []
    for picture in _pictures(report):
        with mpl.rc_context(STYLE):
            canvas = Canvas(figsize=picture.size, layout="constrained")
            picture.draw(canvas.add_subplot())
            # No date and no version inside: equal figures are equal files.
            for kind, silenced in (("png", "Software"), ("svg", "Date")):
                written.append(folder / f"{picture.name}.{kind}")
                with open_atomic(written[-1]) as file:
                    canvas.savefig(file, format=kind, dpi=DPI, metadata={silenced: None})
        written.append(folder / f"{picture.name}.csv")
        with open_atomic(written[-1]) as file:
            file.write(picture.table.encode())
    return written


def _pictures(report: Report) -> Iterator[Picture]:
    figures = list(report.figures)
    if report.batches:
        figures += batch_figures(report.batches[-1])
    for figure in figures:
        yield Picture(re.sub(r"[^\w.-]+", "-", figure.name), SIZE, partial(_draw, figure=figure), figure.to_csv())
    if report.batches:
        yield from _graphs_and_trees(report.batches[-1])


def _graphs_and_trees(batch: Batch) -> Iterator[Picture]:
    forest = Forest(batch.turns) if batch.turns.is_forest else None
    for number, task in enumerate(preferred_tasks(batch)[:PICTURED], 1):
        group = describe_group(batch, forest, task)
        yield Picture(f"task-graph-{number}", PICTURE_SIZE, partial(draw_graph, group=group), graph_csv(group))
        if forest is not None:
            yield Picture(f"physical-tree-{number}", PICTURE_SIZE, partial(draw_tree, group=group), tree_csv(group))


def _draw(axes: Axes, figure: Figure) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_title(figure.title)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    {"line": _lines, "bars": _bars, "stack": _stack, "points": _points}[figure.kind](axes, figure.series)
    if figure.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    if len(figure.series) > 1:
        axes.legend()


def _lines(axes: Axes, series: Sequence[Series]) -> None:
    for number, one in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        marker = "o" if len(one.x) <= FEW_POINTS else ""
        x = np.array(one.x, dtype=np.float64)
        axes.plot(x, _floats(one.y), color=colour, label=one.name, marker=marker, markersize=3)
        if one.low:
            axes.fill_between(x, _floats(one.low), _floats(one.high), color=colour, alpha=0.16, linewidth=0)


def _bars(axes: Axes, series: Sequence[Series]) -> None:
    names = list(dict.fromkeys(str(x) for one in series for x in one.x))
    width = 0.76 / len(series)
    for number, one in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * width
        place = np.array([names.index(str(x)) for x in one.x]) + shift
        y = _floats(one.y)
        spread = np.abs(np.stack([y - _floats(one.low), _floats(one.high) - y])) if one.low else None
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(place, y, width * 0.94, yerr=spread, color=colour, label=one.name, error_kw={"linewidth": 1})
    many = len(names) > 8
    axes.set_xticks(range(len(names)), names, rotation=45 if many else 0, ha="right" if many else "center")


def _stack(axes: Axes, series: Sequence[Series]) -> None:
    x = np.array(series[0].x, dtype=np.float64)
    axes.stackplot(x, [_floats(one.y) for one in series], labels=[one.name for one in series], colors=COLOURS)


def _points(axes: Axes, series: Sequence[Series]) -> None:
    axes.plot([0, 1], [0, 1], color="#697077", linestyle="--", linewidth=0.8)
    for number, one in enumerate(series):
        most = max(one.size, default=1)
        area = [12 + 90 * size / most for size in one.size]
        x = np.array(one.x, dtype=np.float64)
        axes.scatter(x, _floats(one.y), s=area, color=COLOURS[number % len(COLOURS)], label=one.name)


def _floats(values: Sequence[Number]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
