"""The report page: size, writing time, opening time and the answer to a hover, by states in one task graph.

python benchmarks/report_page.py [--states 150 1000] [--out RESULT.json]

Needs a Chromium; the browser's driver is that of the tests. A hover is the script's time from the pointer event to the
laid-out panel, the median and the worst of every state.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser.chromium import Browser
from stepcredit.core.episodes import Episode, Turn
from stepcredit.report.batch import make_batch
from stepcredit.report.page import Report, write_page

HOVER = """(() => [...document.querySelectorAll(".canvas .node")].map((node) => {
    const began = performance.now();
    node.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
    document.querySelector(".panel").getBoundingClientRect();
    return performance.now() - began;
}))()"""
OPENED = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def episodes(states: int) -> list[Episode]:
    """Random walks that visit almost every state of one task."""
    rng = np.random.default_rng([3])
    walks = [np.concatenate([[0], rng.integers(0, states, 50)]) for _ in range(80)]
    return [
        Episode(
            "t", f"e{at}", tuple(Turn(f"room {room}", f"go {at}") for room in walk), f"room {walk[-1]}", at % 2 == 0
        )
        for at, walk in enumerate(walks)
    ]


def measure(states: int, folder: Path) -> dict[str, Any]:
    """Every figure of one page."""
    began = time.perf_counter()
    batch = make_batch("batch", episodes(states), ("gigpo", "graft"))
    file = write_page(Report(f"{states} states", {}, {}, [], [], batches=[batch]), folder)
    written = time.perf_counter() - began
    with Browser(folder / "browser") as browser:
        browser.open(file, "#graph/0/0/0/0")
        browser.wait(f"document.querySelectorAll('.canvas .node').length > {states // 2}")
        hovers = browser.evaluate(HOVER)
        opened = browser.evaluate(OPENED)
    return {
        "states": len(hovers),
        "written_s": round(written, 2),
        "megabytes": round(file.stat().st_size / 1e6, 2),
        "opened_ms": round(opened),
        "hover_median_ms": round(float(np.median(hovers)), 1),
        "hover_worst_ms": round(max(hovers), 1),
    }


def main() -> None:
    """Print a line a graph, and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, nargs="+", default=[150, 1000])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for states in options.states:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(states, Path(folder)))
        print(json.dumps(rows[-1]))
    if options.out:
        stored = {
            "command": f"python benchmarks/report_page.py {' '.join(sys.argv[1:])}",
            "machine": f"two shared cores, {platform.machine()}, software rendering",
            "rows": rows,
        }
        options.out.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
