"""Tables and figure of docs/fidelity.md from the stored results of benchmarks/fidelity.py.

python benchmarks/fidelity_page.py [--results FILE] [--docs FOLDER] [--tables]

Rewrites what stands between ``<!-- table: NAME -->`` and ``<!-- end -->`` in ``fidelity.md``, and draws
``fidelity.svg`` and ``fidelity-parts.svg`` beside it (needs matplotlib, extra ``report``). ``--tables`` leaves the
figures alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import STYLE, markdown, put

ROOT = Path(__file__).resolve().parents[1]
EXACT = "exact advantage"
ORACLES = (EXACT, "gae", "hcapo")
"""Arms that are told something no rollout records."""
BASE = {"kind": "roaming", "group_size": 8, "horizon": 16, "slip": 0.0, "alike": 1, "success": 0.4}
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "roaming": {},
    "layered": {"kind": "layered", "horizon": 8},
    "slips .25": {"slip": 0.25},
    "4 alike": {"alike": 4},
    "chain, stay": {"kind": "stay", "horizon": 12},
    "chain, fall": {"kind": "fall", "horizon": 12},
}

Results = Mapping[str, Any]


def find_cell(results: Results, forest: bool = False, **differences: Any) -> Results | None:
    """The cell that differs from the base in these settings only."""
    wanted = {**BASE, **differences, "forest": forest}
    for cell in results["cells"]:
        if all(cell[key] == value for key, value in wanted.items()):
            found: Results = cell
            return found
    return None


def number(value: float) -> str:
    """Two digits after the point, no leading zero: .72, −.05, 1.30."""
    text = f"{value:.2f}".replace("-0.", "-.").removeprefix("0") if abs(value) < 1 else f"{value:.2f}"
    return ".00" if text == "-.00" else text.replace("-", "−")


def with_interval(values: Sequence[float]) -> str:
    """Mean and interval, a dash where nothing was measured."""
    return f"{number(values[0])} [{number(values[1])}, {number(values[2])}]" if values else "–"


def with_half(values: Sequence[float], *, bold: bool = False) -> str:
    """Mean and half the width of its interval, a dash where nothing was measured."""
    if not values:
        return "–"
    mean = f"**{number(values[0])}**" if bold else number(values[0])
    return f"{mean} ±{number((values[2] - values[1]) / 2)}"


def named(arm: str) -> str:
    """An arm as the page shows it: methods as code, oracles in italics."""
    method, _, rest = arm.partition(" ")
    return f"*{arm}*" if arm == EXACT else f"`{method}` {rest}".strip() + (" †" if arm in ORACLES else "")


def by_error(cell: Results) -> list[str]:
    """Arms of a cell, least error first."""
    return sorted(cell["arms"], key=lambda arm: float(cell["arms"][arm]["error"][0]))


def glance(results: Results) -> str:
    """All measures of all arms in the base cell."""
    cell = find_cell(results)
    assert cell is not None
    measures = ("error", "bias", "variance", "sign", "rank", "cosine", "direction")
    rows = [[named(arm), *(with_half(cell["arms"][arm][measure]) for measure in measures)] for arm in by_error(cell)]
    return markdown(["method", *measures], rows)


def by_world(results: Results, measure: str, best: Callable[..., float]) -> str:
    """One measure of all arms by kind of game; the best without oracles in bold."""
    columns = {name: find_cell(results, **differences) for name, differences in WORLDS.items()}
    arms = {name: cell["arms"] for name, cell in columns.items() if cell is not None}
    base = find_cell(results)
    assert base is not None
    values = {name: {arm: found[measure] for arm, found in rows.items()} for name, rows in arms.items()}
    leading = {
        name: best((found[0] for arm, found in row.items() if found and arm not in ORACLES), default=0.0)
        for name, row in values.items()
    }
    rows = []
    for arm in by_error(base):
        cells = []
        for name, row in values.items():
            found = row.get(arm, [])
            cells.append(with_half(found, bold=found[:1] == [leading[name]]))
        rows.append([named(arm), *cells])
    return markdown(["method", *values], rows)


def branches(results: Results) -> str:
    """Chains against forests of as many episodes, in the base game and where states look alike."""
    rows = []
    chosen = (
        "grpo",
        "gigpo",
        "rtmc",
        "hgpo",
        "gaca",
        "graft",
        "graft raw",
        "graphgpo",
        "tsbpo",
        "tsbpo no step",
        "treepo",
        "at2po",
    )
    pairs = [(find_cell(results, False, **diff), find_cell(results, True, **diff)) for diff in ({}, {"alike": 4})]
    for arm in chosen:
        cells = [
            with_interval(cell["arms"][arm][measure]) if cell else "–"
            for measure in ("error", "cosine")
            for pair in pairs
            for cell in pair
        ]
        rows.append([named(arm), *cells])
    where = ("roaming, chains", "forests", "4 alike, chains", "forests")
    return markdown(["method", *(f"error: {one}" for one in where), *(f"cosine: {one}" for one in where)], rows)


def proposition(results: Results) -> str:
    """Raw squared error by kind of credit."""
    rows = []
    for found in results["proposition"]:
        cells = [with_interval(found["error"][name]) for name in ("episode", "state groups", "graph")]
        rows.append([describe(found), str(found["group_size"]), *cells])
    return markdown(["games", "group", "episodes", "state groups", "graph"], rows)


def describe(world: Results) -> str:
    """A kind of game in words."""
    chains = {"stay": "chain with a deadline", "fall": "chain that ends at a mistake"}
    name = chains.get(world["kind"], str(world["kind"]))
    slip = f", slips {number(world['slip'])}" if world["slip"] else ""
    return name + slip + (f", {world['alike']} states alike" if world["alike"] > 1 else "")


def minimiser(results: Results) -> str:
    """f* by fifths of the criticality score beside GACA's weight."""
    rows = []
    for found in results["mixture"]:
        rows.append([found["world"], "f*", *map(with_interval, found["minimiser"])])
        rows.append(["", "λ of `gaca`", *map(number, found["gaca"])])
    return markdown(["games", "weight", "least c", "2nd fifth", "3rd", "4th", "most c"], rows)


def risk(results: Results) -> str:
    """What weights cost."""
    kinds = ("episode", "step", "gaca", "best fixed", "best by fifth")
    rows = [[found["world"], *(with_interval(found["risk"][kind]) for kind in kinds)] for found in results["mixture"]]
    return markdown(["games", "λ = 0", "λ = 1", "`gaca`", "best fixed λ", "best λ by fifth of c"], rows)


def siblings(results: Results) -> str:
    """Slopes of raw credit on A and V."""
    rows = []
    for found in results["siblings"]:
        for name, (on_advantage, on_value) in found["slopes"].items():
            where = f"{found['alike']} alike" if found["alike"] > 1 else "all distinct"
            rows.append([where, found["place"], name, with_interval(on_advantage), with_interval(on_value)])
    return markdown(["states", "turns of a segment", "credit", "slope on A", "slope on V"], rows)


def household(results: Results) -> str:
    """Sign and cosine in the household, keyed by observations and by whole states; arms by their cosine."""
    seen, told = (results["household"]["arms"][keys] for keys in ("observations", "whole states"))
    rows = []
    for arm in sorted(seen, key=lambda arm: -float(seen[arm]["cosine"][0])):
        measured = [found[measure] for found in (seen[arm], told[arm]) for measure in ("error", "cosine")]
        rows.append([named(arm), *map(with_interval, measured)])
    return markdown(["method", "error", "cosine", "error, whole states", "cosine, whole states"], rows)


def lengths(results: Results) -> str:
    """Direction of the mean gradient by aggregation."""
    kinds = ("complete turn", "token mean", "mean of token means")
    rows = [
        [found["lengths"], *(with_interval(found["direction"][kind]) for kind in kinds)] for found in results["lengths"]
    ]
    return markdown(["length of a response", *kinds], rows)


TABLES: Mapping[str, Callable[[Results], str]] = {
    "glance": glance,
    "error by world": lambda results: by_world(results, "error", min),
    "cosine by world": lambda results: by_world(results, "cosine", max),
    "branches": branches,
    "proposition": proposition,
    "minimiser": minimiser,
    "risk": risk,
    "siblings": siblings,
    "lengths": lengths,
    "household": household,
}


def fill(page: str, results: Results) -> str:
    """The page with its tables made from the results."""
    for name, make in TABLES.items():
        page = put(page, f"table: {name}", make(results))
    return page


SHOWN = {
    "grpo": ("#55585c", "-"),
    "gigpo": ("#e69f00", "-"),
    "hgpo": ("#9a8c00", "-"),
    "gaca": ("#cc79a7", "-"),
    "rtmc": ("#56b4e9", "-"),
    "graphgpo": ("#009e73", "-"),
    "graft": ("#d55e00", "-"),
    "graft raw": ("#d55e00", "--"),
    "tsbpo": ("#0072b2", ":"),
}
"""Colour and line of the arms drawn; ``tsbpo`` plays forests."""
PANELS = {
    "group_size": "episodes in a group",
    "horizon": "horizon, turns",
    "slip": "probability of a slip",
    "alike": "states that look alike",
    "success": "probability to win",
}


FIGURES: Mapping[str, Mapping[str, str]] = {
    "fidelity.svg": {"error": "error", "cosine": "cosine, one group", "direction": "direction, 256 episodes"},
    "fidelity-parts.svg": {
        "bias": "bias",
        "variance": "variance",
        "sign": "sign agreement",
        "rank": "rank correlation",
    },
}
"""File → measure → label; a row of panels each."""
SILENT = ("error", "bias", "variance", "sign", "rank")
"""Measures of which the exact advantage says nothing."""


def series(results: Results, axis: str, arm: str, measure: str) -> Iterator[tuple[float, Sequence[float]]]:
    """(x, [mean, low, high]) along one axis, everything else as in the base."""
    for x in sorted({cell[axis] for cell in results["cells"] if cell["kind"] == "roaming"}):
        cell = find_cell(results, arm == "tsbpo", **{axis: x})
        if cell is not None:
            yield x, cell["arms"][arm][measure]


def draw(results: Results, measured: Mapping[str, str], path: Path) -> None:
    """Measures along every axis, small multiples."""
    import matplotlib as mpl
    from matplotlib import pyplot

    with mpl.rc_context({**STYLE}):
        figure, rows = pyplot.subplots(
            len(measured), len(PANELS), figsize=(13, 8 * len(measured) / 3), sharey="row", sharex="col"
        )
        for row, (measure, title) in zip(rows, measured.items(), strict=True):
            for axes, axis in zip(row, PANELS, strict=True):
                for arm, (colour, line) in {**SHOWN, EXACT: ("#111111", "-")}.items():
                    points = list(series(results, axis, arm, measure))
                    if measure in SILENT and arm == EXACT:
                        continue
                    x, y = [one for one, _ in points], [found[0] for _, found in points]
                    name = "tsbpo, forests" if arm == "tsbpo" else arm
                    axes.plot(x, y, line, color=colour, marker="o", markersize=3, linewidth=1.5, label=name)
                    low, high = ([found[place] for _, found in points] for place in (1, 2))
                    axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
                if axis in ("group_size", "horizon"):
                    axes.set_xscale("log", base=2)
                    axes.xaxis.set_major_formatter(mpl.ticker.ScalarFormatter())
                if axis == "alike":
                    axes.set_xticks([1, 2, 4])
                if measure == "variance":
                    axes.set_yscale("log", base=2)
                    axes.yaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
            row[0].set_ylabel(title)
        for axes, label in zip(rows[-1], PANELS.values(), strict=True):
            axes.set_xlabel(label)
        handles, names = rows[-1][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="lower center", ncols=5)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "fidelity.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--tables", action="store_true", help="leave the figure alone")
    options = parser.parse_args()
    results = json.loads(options.results.read_text(encoding="utf-8"))
    page = options.docs / "fidelity.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    if not options.tables:
        for name, measured in FIGURES.items():
            draw(results, measured, options.docs / name)


if __name__ == "__main__":
    main()
