"""Speed and memory of every credit method on one core, beside the limits the project sets itself.

    python benchmarks/credit_speed.py [--turns 6400 51200 1024000] [--file-mb 1000] [--json FILE]

Times are CPU time of one process, the best of a few calls, so other work on the machine counts little. A batch has
groups of 8 episodes of 50 turns over 15 observations of 600 characters a task; for tree methods half the episodes of a
group are branches that leave a root at a random turn. ``--file-mb`` also writes a rollout file of that size and lets
``stepcredit assign`` read it in a process of its own, whose wall time and peak memory are reported.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.files import write_episodes
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign

GROUP, LENGTH, STATES, CHARACTERS = 8, 50, 15, 600
SIZES = (6_400, 51_200, 1_024_000)
LIMITS_MS = {
    "group": dict(zip(SIZES, (5, 40, 1_200), strict=True)),
    "graph": dict(zip(SIZES, (30, 250, 8_000), strict=True)),
    "tree": dict(zip(SIZES, (10, 80, 2_500), strict=True)),
    "build": dict(zip(SIZES, (30, 250, 6_000), strict=True)),
}
KIND = {"graph": "graph", "tree": "tree", "contrib": "tree"}
MOST_BYTES_A_TURN, LEAST_MB_A_SECOND, MOST_GB = 200, 40, 3


def synthetic(turns: int, seed: int, *, branches: bool = False) -> Iterator[Episode]:
    """Episodes of a batch, one by one; texts of a task are shared as a collector would share them."""
    rng = random.Random(f"{turns} {seed} {branches}")
    for task in range(turns // (GROUP * LENGTH)):
        texts = [
            f"{f'Task {task}, room {state}: a shelf, a lamp, a door. ' * 20}"[:CHARACTERS] for state in range(STATES)
        ]
        roots: list[Episode] = []
        for index in range(GROUP):
            seen = [rng.choice(texts) for _ in range(LENGTH + 1)]
            parent = None
            if branches and index >= GROUP // 2:
                root, at = rng.choice(roots), rng.randrange(LENGTH)
                parent, seen[0] = Parent(root.episode, at), root.turns[at].observation
            won = rng.random() < 0.5
            made = tuple(
                Turn(
                    seen[t],
                    f"go {rng.randrange(6)}",
                    reward=10.0 * (won and t + 1 == LENGTH),
                    nll=rng.random(),
                    entropy=1.0,
                )
                for t in range(LENGTH)
            )
            episode = Episode(f"task {task}", f"{task}/{index}", made, seen[LENGTH], won, parent)
            if parent is None:
                roots.append(episode)
            yield episode


def best_ms(call: Callable[[], Any], repeats: int) -> float:
    """CPU milliseconds of the fastest of several calls."""
    fastest = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        fastest = min(fastest, time.process_time() - start)
    return 1000 * fastest


def measure(turns: int, seed: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """One row for building the table and one for each method."""
    repeats = 5
    chains, forest = (list(synthetic(turns, seed, branches=branches)) for branches in (False, True))
    rows = [row("build", "build", turns, best_ms(partial(Turns.from_episodes, chains), repeats))]
    tables = {"tree": Turns.from_episodes(forest)}
    tables["group"] = tables["graph"] = Turns.from_episodes(chains)
    del chains, forest
    for name in names:
        kind = KIND.get(METHODS[name].family, "group")
        given = {column: np.zeros(turns) for column in ("values", "hindsight") if column in METHODS[name].options}
        rows.append(row(name, kind, turns, best_ms(partial(assign, tables[kind], name, **given), repeats)))
    return rows


def row(name: str, kind: str, turns: int, ms: float) -> dict[str, Any]:
    """One measurement beside its limit."""
    return {"name": name, "kind": kind, "turns": turns, "ms": round(ms, 3), "limit_ms": LIMITS_MS[kind].get(turns)}


def bytes_a_turn(turns: int, seed: int) -> float:
    """Memory of the table's columns beyond the texts."""
    table = Turns.from_episodes(synthetic(turns, seed))
    columns = [getattr(table, field.name) for field in dataclasses.fields(table)]
    return sum(column.nbytes for column in columns if isinstance(column, np.ndarray)) / len(table)


def file_figures(megabytes: int, seed: int, method: str) -> dict[str, Any]:
    """``stepcredit assign`` on a file, end to end, interpreter start included."""
    with tempfile.TemporaryDirectory() as folder:
        rollouts, credit = Path(folder, "rollouts.jsonl"), Path(folder, "credit.jsonl")
        turns = megabytes * 1_000_000 // 700 // (GROUP * LENGTH) * GROUP * LENGTH
        write_episodes(rollouts, synthetic(turns, seed))
        code = "from stepcredit.cli import main; main()"
        command = [sys.executable, "-c", code, "assign", str(rollouts), "--method", method, "--out", str(credit)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        size = rollouts.stat().st_size / 1e6
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {
            "method": method,
            "megabytes": round(size),
            "turns": turns,
            "wall_s": round(wall, 2),
            "cpu_s": round(spent, 2),
            "megabytes_a_second": round(size / wall, 1),
            "megabytes_a_cpu_second": round(size / spent, 1),
            "peak_gb": round(after.ru_maxrss / 1e6, 2),  # kilobytes on Linux
        }


def show(result: dict[str, Any], sizes: Sequence[int]) -> None:
    """The tables a person reads."""
    table = Table(title="CPU milliseconds (limit)")
    table.add_column("what")
    for size in sizes:
        table.add_column(f"{size:,} turns", justify="right")
    by_name: dict[str, dict[int, dict[str, Any]]] = {}
    for entry in result["rows"]:
        by_name.setdefault(entry["name"], {})[entry["turns"]] = entry
    for name, entries in by_name.items():
        cells = (f"{entries[size]['ms']:,.1f} ({entries[size]['limit_ms'] or '–'})" for size in sizes)
        table.add_row(name, *cells)
    console = Console()
    console.print(table)
    console.print(f"table: {result['bytes_a_turn']:.0f} bytes a turn beyond the texts (limit {MOST_BYTES_A_TURN})")
    if "file" in result:
        console.print(f"file: {result['file']} (limits {LEAST_MB_A_SECOND} MB/s, {MOST_GB} GB)", markup=False)


def main() -> None:
    """Measure, print, and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=list(SIZES), help="batch sizes, multiples of 400")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="which methods")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file-mb", type=int, default=0, help="size of the rollout file; 0 leaves that part out")
    parser.add_argument("--file-method", default="gaca", help="method that credits the file")
    parser.add_argument("--machine", default="two shared cores", help="what to record about the machine")
    parser.add_argument("--json", type=Path, help="store the figures in this file")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/credit_speed.py", *sys.argv[1:]]),
        "seed": options.seed,
        "machine": options.machine,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if options.file_mb:  # first: a child's peak memory starts at that of the process that made it
        result["file"] = file_figures(options.file_mb, options.seed, options.file_method)
    result["bytes_a_turn"] = round(bytes_a_turn(min(options.turns), options.seed), 1)
    result["rows"] = [entry for turns in options.turns for entry in measure(turns, options.seed, options.methods)]
    show(result, options.turns)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
