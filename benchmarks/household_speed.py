"""Speed and memory of the household engine on one core, beside the reference engine's where that is installed.

    python benchmarks/household_speed.py [--games FILE] [--json FILE]

Times are CPU time of this one process, so other work on the machine does not count. ``--games`` takes a compact file
of official games; without it large generated rooms are played. A step is one ``step`` call with
its admissible commands and its check for a win, in a walk of which half the commands are the expert's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.generator import generate
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.problem import parse_problem
from stepcredit.environments.household.suite import HouseholdSuite
from stepcredit.environments.protocol import Task

TARGETS = {
    "steps per second": (50_000, "at least"),
    "snapshot and restore, µs": (5, "at most"),
    "load a game, ms": (5, "at most"),
    "10,000 environments, GB": (1.5, "at most"),
}


def problems(games: Path | None, count: int) -> list[tuple[str, str]]:
    """Problem texts with their sentences: official ones, or generated ones in large rooms."""
    if games is None:
        return [generate(0, "large", "train", FAMILIES[k % 6], k) for k in range(count)]
    lines = map(orjson.loads, gzip.decompress(games.read_bytes()).splitlines())
    return [(line["problem"], line["task"]) for line in lines][:count]


def walk(environment: HouseholdEnvironment, steps: int) -> list[str]:
    """Commands of a walk, half of them the expert's, half random; won games go on."""
    rng = random.Random(environment.task.id)
    _, info = environment.reset()
    expert = HouseholdSuite(train=1).expert(environment)
    commands = []
    for _ in range(steps):
        command = expert.act() if rng.random() < 0.5 else None
        commands.append(command or rng.choice(info["admissible"]))
        info = environment.step(commands[-1])[4]
    return commands


def make(number: int, problem: str, sentence: str) -> HouseholdEnvironment:
    """One loaded environment."""
    return HouseholdEnvironment(Task(f"benchmark/{number}", "", sentence), parse_problem(problem, sentence))


def measure(texts: Sequence[tuple[str, str]], environments: int = 10_000, steps: int = 200) -> dict[str, float]:
    """The four figures."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    loaded = [make(number, *texts[number % len(texts)]) for number in range(environments)]
    load = (time.process_time() - started) / environments
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    played, spent = 0, 0.0
    for environment in loaded[:100]:
        commands = walk(environment, steps)
        environment.reset()
        step = environment.step
        started = time.process_time()
        for command in commands:
            step(command)
        spent += time.process_time() - started
        played += steps

    environment, repeats = loaded[0], 200_000
    started = time.process_time()
    for _ in range(repeats):
        environment.restore(environment.snapshot())
    copied = (time.process_time() - started) / repeats
    return {
        "steps per second": played / spent,
        "snapshot and restore, µs": copied * 1e6,
        "load a game, ms": load * 1e3,
        "10,000 environments, GB": grown * 1024 / 1e9 * 10_000 / environments,
    }


def measure_reference(texts: Sequence[tuple[str, str]], steps: int = 30) -> dict[str, float] | None:
    """The reference engine's steps per second and time to load, or None where it is not installed."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from environments.textworld_reference import TextWorldEngine

    loading = stepping = 0.0
    for number, (problem, sentence) in enumerate(texts[:5]):
        commands = walk(make(number, problem, sentence), steps)
        started = time.process_time()
        try:
            engine = TextWorldEngine(problem, sentence)
        except ImportError:
            return None
        engine.reset()
        loading += time.process_time() - started
        started = time.process_time()
        for command in commands:
            engine.step(command)
        stepping += time.process_time() - started
    return {"steps per second": 5 * steps / stepping, "load a game, ms": loading / 5 * 1e3}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=Path, help="games.jsonl.gz with official games; generated ones without it")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    texts = problems(arguments.games, 400)
    figures, reference = measure(texts), measure_reference(texts)
    table = Table(title="Household engine, one core")
    for column in ("figure", "stepcredit", "target", "reference engine"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in figures.items():
        target, direction = TARGETS[name]
        other = "not installed" if reference is None else f"{reference[name]:,.1f}" if name in reference else "–"
        table.add_row(name, f"{value:,.2f}", f"{direction} {target:,}", other)
    Console().print(table)
    if arguments.json is not None:
        record: dict[str, Any] = {
            "games": len(texts),
            "official": arguments.games is not None,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "stepcredit": figures,
            "reference": reference,
        }
        arguments.json.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
