"""Speed and memory of the shop on one core.

    python benchmarks/shopping_speed.py [--items FILE] [--json FILE]

Times are CPU time of this one process, so other work on the machine does not count. ``--items`` takes an official file
of products, with its instructions beside it; its entries are repeated under new identifiers to make 1,000 products.
Without it 1,000 products are generated. A step is one ``step`` call with its page, its admissible commands and its
score, in a walk of which half the commands are the expert's; a fifth of the searches are new ones. The catalogue of
100,000 products is generated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stepcredit.environments.shopping.environment import FREE_SEARCH
from stepcredit.environments.shopping.suite import ShoppingSuite

SMALL, LARGE = 1_000, 100_000
TARGETS = {
    "load 1,000 products, s": (3, "at most"),
    "steps per second": (3_000, "at least"),
    "search, ms": (1, "at most"),
    "load 100,000 products, s": (None, ""),
    "search among 100,000, ms": (None, ""),
    "100,000 products, GB": (2, "at most"),
}


def read_json(path: Path) -> Any:
    """A JSON file, gzipped or not."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def repeat_official(items: Path, folder: Path) -> dict[str, Any]:
    """Official files of 1,000 products made from fewer; the options that point to them."""
    entries, notes = read_json(items), read_json(items.with_name(items.name.replace("items", "items_ins")))
    repeated, described = [], {}
    for number in range(SMALL):
        entry = entries[number % len(entries)]
        asin = f"X{number:09d}"
        repeated.append({**entry, "asin": asin})
        described[asin] = notes.get(entry["asin"], {})
    (folder / "items.json").write_text(json.dumps(repeated), encoding="utf-8")
    (folder / "items_ins.json").write_text(json.dumps(described), encoding="utf-8")
    return {"items": str(folder / "items.json")}


def steps_per_second(suite: ShoppingSuite, episodes: int) -> float:
    """Half the commands are the expert's."""
    tasks = suite.tasks("train")
    rng = random.Random(0)
    played, spent = 0, 0.0
    for number in range(episodes):
        environment = suite.make(tasks[number * 7 % len(tasks)])
        expert = suite.expert(environment)
        _, info = environment.reset()
        for _ in range(suite.horizon):
            command = (expert.act() if rng.random() < 0.5 else None) or rng.choice(info["admissible"])
            if command == FREE_SEARCH or (command.startswith("search[") and rng.random() < 0.2):
                words = environment.goal.request.split()
                command = f"search[{' '.join(rng.sample(words, min(4, len(words))))}]"
            started = time.process_time()
            *_, ended, _, info = environment.step(command)
            spent += time.process_time() - started
            played += 1
            if ended:
                break
    return played / spent


def search_ms(suite: ShoppingSuite, count: int) -> float:
    """Mean time of searches for the sentences of goals, after ten to warm up."""
    sentences = [task.goal for task in suite.tasks("train")[: count + 10]]
    for sentence in sentences[:10]:
        suite.shop.index.search(sentence, 50)
    started = time.process_time()
    for sentence in sentences[10:]:
        suite.shop.index.search(sentence, 50)
    return (time.process_time() - started) / count * 1e3


def loaded(**options: Any) -> tuple[ShoppingSuite, float]:
    """A suite with its search index, and the seconds both took."""
    started = time.process_time()
    suite = ShoppingSuite(nouns="light", **options)
    suite.shop.index  # noqa: B018  # built when first asked for
    return suite, time.process_time() - started


def measure(items: Path | None) -> dict[str, float]:
    """All figures; the large catalogue comes last, since peak memory never falls again."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"products": SMALL} if items is None else repeat_official(items, Path(folder))
        suite, load = loaded(**options)
    figures = {
        "load 1,000 products, s": load,
        "steps per second": steps_per_second(suite, 1_000),
        "search, ms": search_ms(suite, 1_000),
    }
    large, load = loaded(products=LARGE)
    search = search_ms(large, 200)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {
        **figures,
        "load 100,000 products, s": load,
        "search among 100,000, ms": search,
        "100,000 products, GB": peak,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=Path, help="official file of products; generated ones without it")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.items)
    table = Table(title="Shop, one core")
    for column in ("figure", "stepcredit", "target"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in figures.items():
        target, direction = TARGETS[name]
        table.add_row(name, f"{value:,.2f}", "–" if target is None else f"{direction} {target:,}")
    Console().print(table)
    if arguments.json is not None:
        record = {
            "official": arguments.items is not None,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "stepcredit": figures,
        }
        arguments.json.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
