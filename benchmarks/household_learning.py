"""Reinforcement learning against more imitation: a recipe over several seeds, success before, after and of the control.

python benchmarks/household_learning.py [--recipe FILE] [--seeds 0 1 2] [--out RESULT.json] [--runs FOLDER]

Every seed is one whole `stepcredit train`. Families with few demonstrations are *scarce*, the others *known*; each
group gets one interval from resampling its tasks. A finished run folder is read instead of being trained again.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stepcredit.core.files import read_episodes
from stepcredit.environments.catalogue import make_suite
from stepcredit.evaluation.intervals import cluster_bootstrap
from stepcredit.training.config import TrainConfig, make_config
from stepcredit.training.run_folder import RunFolder

MOMENTS = ("before", "after", "control")
SCARCE_BELOW = 20
"""Demonstrations of a family below which it counts as scarce."""


def main() -> None:
    """Train what is missing, then print and store the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("examples/recipes/household-tiny.toml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("options", nargs="*", help="recipe keys for every run, after a bare --")
    arguments = parser.parse_args()
    results = []
    for seed in arguments.seeds:
        folder = arguments.runs / f"{arguments.recipe.stem}-seed-{seed}"
        if not (folder / "evaluations").is_dir() or not list((folder / "evaluations").glob("control-*")):
            command = [sys.executable, "-m", "stepcredit.cli", "train", str(arguments.recipe), "--out", str(folder)]
            subprocess.run([*command, "--seed", str(seed), *arguments.options], check=True)
        results.append(read_result(folder, seed))
    show(results)
    if arguments.out:
        stored = {
            "command": f"python benchmarks/household_learning.py {' '.join(sys.argv[1:])}",
            "machine": f"two shared cores, {platform.machine()}, Python {platform.python_version()}",
            "runs": results,
        }
        arguments.out.write_text(json.dumps(stored, indent=1) + "\n")


def read_result(folder: Path, seed: int) -> dict[str, Any]:
    """Success by group and moment of one finished run, and the seconds of its stages."""
    run = RunFolder(folder)
    config = make_config(run.read_config())
    timing = run.metrics("timing")
    return {
        "seed": seed,
        "recipe": config.model_dump(mode="json"),
        "success": {label: by_group(config, folder, label) for label in (*config.eval_splits, *config.also_evaluate)},
        "seconds": {
            "updates": sum(line.get(part, 0.0) for line in timing for part in ("rollout", "credit", "update")),
            "control": sum(line.get("control", 0.0) for line in timing),
        },
        "imitation_epochs": sum(line["kind"] == "imitation" for line in run.metrics()),
    }


def by_group(config: TrainConfig, folder: Path, label: str) -> dict[str, Any]:
    """``scarce``, ``known`` and ``all``: moment → mean and interval."""
    elsewhere = dict(config.also_evaluate.get(label, {}))
    split = elsewhere.pop("split", label)
    elsewhere.pop("horizon", None)
    suite = make_suite(config.environment, **(elsewhere or config.environment_options))
    family = {task.id: task.family for task in suite.tasks(split)}
    groups: dict[str, dict[str, Any]] = {"scarce": {}, "known": {}, "all": {}}
    for moment in MOMENTS:
        outcomes: dict[str, list[list[float]]] = {name: [] for name in groups}
        for episode in read_episodes(folder / "evaluations" / f"{moment}-{label}.jsonl.gz"):
            shown = config.demonstrations.get(family[episode.task], 0)
            outcomes["scarce" if shown < SCARCE_BELOW else "known"].append([float(episode.success)])
            outcomes["all"].append([float(episode.success)])
        for name, values in outcomes.items():
            interval = cluster_bootstrap(values)
            groups[name][moment] = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return groups


def show(results: list[dict[str, Any]]) -> None:
    """One table per set of games."""
    for label in results[0]["success"]:
        table = Table(title=f"Success on {label} (95 % interval over tasks)")
        for column in ("seed", "families", *MOMENTS):
            table.add_column(column)
        for result in results:
            for name, moments in result["success"][label].items():
                cells = [f"{one['mean']:.1%} [{one['low']:.1%}, {one['high']:.1%}]" for one in moments.values()]
                table.add_row(str(result["seed"]), name, *cells)
        Console().print(table)


if __name__ == "__main__":
    main()
