"""Task graphs and physical trees as matplotlib draws them, and their numbers as CSV; both from a group's payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.report.figures import Number, csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

PLUS, MINUS, NONE = "#0072b2", "#d55e00", "#d5d5cf"
LOW, HIGH = "#f3efe2", "#00614a"
WON, LOST, BOTH, QUIET, INK = "#007a59", "#c04f00", "#e69f00", "#697077", "#1d2023"

GRAPH_COLUMNS = ("kind", "node", "source", "target", "count", "value", "credit", "endings", "wins", "text")
TREE_COLUMNS = ("episode", "from_depth", "to_depth", "score", "credit", "value_at_end", "above_splits")

Group = Mapping[str, Any]
"""What ``describe_group`` returns."""


def draw_graph(axes: Axes, group: Group) -> None:
    """States coloured by value, outlined by how episodes end there; transitions by the first method's credit."""
    from matplotlib.patches import FancyArrowPatch

    nodes, edges = group["graph"]["nodes"], group["graph"]["edges"]
    spots = [(float(x), -float(y)) for x, y in zip(nodes["x"], nodes["y"], strict=True)]
    columns = (credit_colours(edges["credit"][0]), edges["source"], edges["target"], edges["count"])
    for colour, source, target, count in zip(*columns, strict=True):
        if source == target:
            continue
        bend = 0.06 if spots[target][0] > spots[source][0] else 0.3
        arrow = FancyArrowPatch(
            spots[source],
            spots[target],
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>",
            mutation_scale=6,
            color=colour,
            linewidth=min(0.5 + 0.3 * count**0.5, 3),
            shrinkA=3,
            shrinkB=4,
            zorder=1,
        )
        axes.add_patch(arrow)
    ramp = _ramp(LOW, HIGH)
    for at, (x, y) in enumerate(spots):
        visits, ends, wins = (nodes[name][at] for name in ("visits", "endings", "wins"))
        outline = QUIET if not ends else WON if wins == ends else LOST if not wins else BOTH
        axes.scatter(
            x,
            y,
            s=min(14 + 10 * (visits + ends), 160),
            color=ramp(nodes["value"][at]),
            edgecolors=outline,
            linewidths=1.4 if ends else 0.6,
            marker="o" if visits else "D",
            zorder=2,
        )
    axes.axis("off")
    axes.set_title(_heading(group))


def draw_tree(axes: Axes, group: Group) -> None:
    """One row an episode: segments coloured by credit, splits by the mean return below, ends by outcome."""
    tree = group["tree"]
    segments, rows = tree["segments"], tree["rows"]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    columns = (credit_colours(segments["credit"]), segments["episode"], segments["from"], segments["to"])
    for colour, episode, begin, end in zip(*columns, strict=True):
        axes.hlines(rows[episode], begin, end, color=colour, linewidth=5)
        first.setdefault(episode, begin)  # an episode's segments stand in order
        last[episode] = end
    for number, episode in enumerate(group["episodes"]):
        if episode["parent"] is not None:
            axes.vlines(first[number], rows[episode["parent"]], rows[number], color=QUIET, linewidth=0.8, zorder=0)
        marker, colour = ("D", WON) if episode["success"] else ("x", LOST)
        axes.scatter(last[number] + 0.5, rows[number], marker=marker, s=16, color=colour)
    splits = tree["splits"]
    values = np.array(splits["value"], dtype=np.float64)
    most = max([*splits["value"], *(episode["return"] for episode in group["episodes"]), 0.0])
    axes.scatter(
        splits["at"],
        splits["row"],
        c=values,
        cmap=_ramp(LOW, HIGH),
        vmin=0,
        vmax=most,
        s=30,
        edgecolors=INK,
        linewidths=0.8,
        zorder=3,
    )
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    axes.set_xlabel("turns")
    axes.set_title(_heading(group))


def credit_colours(values: Sequence[Number]) -> FloatArray:
    """``[n, 4]`` colours from vermilion (blame) over grey (0, or not scored) to blue; the largest |credit| is full."""
    credit = np.array([0.0 if value is None else value for value in values], dtype=np.float64)
    share = credit / (np.abs(credit).max(initial=0.0) or 1.0)
    colours: FloatArray = _ramp(MINUS, NONE, PLUS)((np.sign(share) * np.abs(share) ** 0.6 + 1) / 2)
    return colours


def graph_csv(group: Group) -> str:
    """Nodes, then the choices between them: distinct (state, action, next state) with count and mean credit."""
    texts, graph = group["texts"], group["graph"]
    nodes, edges, choices = graph["nodes"], graph["edges"], graph["choices"]
    states = (nodes["visits"], nodes["value"], nodes["endings"], nodes["wins"], nodes["text"])
    rows: list[tuple[Any, ...]] = [
        ("node", at, "", "", visits, value, "", endings, wins, texts[text])
        for at, (visits, value, endings, wins, text) in enumerate(zip(*states, strict=True))
    ]
    taken = (choices["edge"], choices["count"], choices["credit"][0], choices["action"])
    rows += [
        ("choice", "", edges["source"][edge], edges["target"][edge], count, "", credit, "", "", texts[action])
        for edge, count, credit, action in zip(*taken, strict=True)
    ]
    return csv_text(GRAPH_COLUMNS, rows)


def tree_csv(group: Group) -> str:
    """One line a segment."""
    segments = group["tree"]["segments"]
    names = [group["texts"][episode["name"]] for episode in group["episodes"]]
    columns = [segments[name] for name in ("episode", "from", "to", "score", "credit", "reached", "root")]
    return csv_text(TREE_COLUMNS, ([names[episode], *rest] for episode, *rest in zip(*columns, strict=True)))


def _ramp(*colours: str) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ramp", list(colours))


def _heading(group: Group) -> str:
    return str(group["texts"][group["goal"]] or group["texts"][group["task"]])
