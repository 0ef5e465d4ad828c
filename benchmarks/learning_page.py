"""Tables and figures of the learning comparison's log page from the stored results of benchmarks/learning.py.

python benchmarks/learning_page.py [--page FILE.md] [--tables]
python benchmarks/learning_page.py --against ARM [--model linear|tiny] [--results FILE]

Rewrites what stands between ``<!-- linear -->`` or ``<!-- tiny -->`` and ``<!-- end -->`` of the page, and draws its
figures beside it (needs matplotlib, extra ``report``); ``--tables`` leaves them alone. With ``--against`` it prints the
table of one model with the differences from that arm instead.

Intervals are 95 % Student intervals over seeds (a bootstrap of five is a third too narrow), and differences are paired
by seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from learning import ARMS, RESULTS, SCALES, read_runs
from pages import STYLE, markdown, put
from scipy import stats

PAGE = RESULTS.parents[1] / "docs" / "log" / "2026-11-30-learning-comparison.md"
REFERENCE = "gigpo"
"""The arm that the page's differences are taken from."""


def table(runs: Sequence[dict[str, Any]], reference: str = REFERENCE) -> str:
    """Final success, area, and area less the reference arm's on the same seeds, a Markdown table, best area first."""
    by_arm: dict[str, dict[int, dict[str, Any]]] = {}
    for line in runs:
        by_arm.setdefault(line["arm"], {})[line["seed"]] = line
    against = by_arm.get(reference, {})
    rows = []
    for arm, ran in by_arm.items():
        area, final = ([line[measure] for line in ran.values()] for measure in ("area", "final"))
        paired = [line["area"] - against[seed]["area"] for seed, line in ran.items() if seed in against]
        versus = with_interval(paired, "+.3f") if arm != reference else ""
        rows.append((np.mean(area), [arm, str(len(ran)), with_interval(area), with_interval(final), versus]))
    head = ["arm", "seeds", "area", "final success", f"area − {reference}"]
    return markdown(head, [row for _, row in sorted(rows, key=lambda row: -row[0])])


def with_interval(values: Sequence[float], form: str = ".3f") -> str:
    """Mean over seeds with its 95 % Student interval: mean ± t(n − 1) · deviation / √n; one seed has none."""
    mean = np.mean(values) if values else np.nan
    if len(values) < 2:
        return f"{mean:{form}}" if values else "–"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean:{form}} [{mean - half:{form}}, {mean + half:{form}}]"


PANELS: Mapping[str, Sequence[str]] = {
    "episodes and states": ("grpo", "rloo", "salt", "gigpo", "hgpo", "rtmc", "gaca"),
    "graphs": (
        "gigpo",
        "graphgpo",
        "graft",
        "graft action",
        "graft no GAE",
        "graft raw",
        "graft turn-clip",
        "graft whole states",
        "graft raw whole states",
    ),
    "trees": (
        "gigpo",
        "gigpo fitted",
        "tsbpo chains",
        "tsbpo none",
        "tsbpo random",
        "tsbpo fitted",
        "tsbpo fitted no step",
        "tsbpo fitted balanced",
        "tsbpo fitted complete turn",
    ),
    "controls of gaca": (
        "grpo",
        "gaca fixed .25",
        "gaca fixed .5",
        "gaca fixed .75",
        "gaca fixed 1",
        "gaca",
        "gaca shuffled",
    ),
}
"""Arms of each panel of the figure."""
_FIXED = {REFERENCE: "#111111", "grpo": "#8b8f94", "gaca": "#cc79a7"}
"""Colours of the arms that several panels show."""
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#9a6b3f", "#7b3fa0", "#8a9a00")


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Mean success against turns by arm, a panel a family; needs matplotlib (extra ``report``)."""
    import matplotlib as mpl
    from matplotlib import pyplot

    with mpl.rc_context({**STYLE}):
        figure, panels = pyplot.subplots(1, len(PANELS), figsize=(14, 3.6), sharey=True)
        for axes, (title, arms) in zip(panels, PANELS.items(), strict=True):
            colours = iter(_COLOURS)
            for arm in arms:
                colour = _FIXED.get(arm) or next(colours)
                curves = [np.array(line["curve"]).T for line in runs if line["arm"] == arm]
                if curves:
                    grid = np.linspace(0, min(at[-1] for at, _ in curves), 41)
                    mean = np.mean([np.interp(grid, at, success) for at, success in curves], axis=0)
                    axes.plot(grid / 1000, mean, color=colour, linewidth=1.5, label=arm)
            axes.set_title(title, loc="left", fontsize=10)
            axes.set_xlabel("thousand turns")
            axes.legend(fontsize=7)
        panels[0].set_ylabel("success on held-out games")
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def fill(page: str, model: str, runs: Sequence[dict[str, Any]]) -> str:
    """The page with one model's table made from the stored runs."""
    return put(page, model, table(runs))


def main() -> None:
    """Rewrite the page, or print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--tables", action="store_true", help="leave the figures alone")
    parser.add_argument("--against", choices=[arm.name for arm in ARMS], help="print the differences from this arm")
    parser.add_argument("--model", choices=sorted(SCALES), default="linear", help="of the table that is printed")
    parser.add_argument("--results", type=Path, help="JSON lines; default benchmarks/results/learning-MODEL.jsonl")
    options = parser.parse_args()
    if options.against:
        path = options.results or RESULTS / f"learning-{options.model}.jsonl"
        print(table(read_runs(path, SCALES[options.model]), options.against))
        return
    text = options.page.read_text(encoding="utf-8")
    for model, scale in SCALES.items():
        runs = read_runs(RESULTS / f"learning-{model}.jsonl", scale)
        text = fill(text, model, runs)
        if not options.tables:
            draw(runs, options.page.with_name(f"{options.page.stem}-{model}.svg"))
    options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
