"""Building an index on disk and searching it, on one core, at a size of choice.

    python benchmarks/search_speed.py [--passages 100000] [--json FILE]

Passages of about a hundred words are drawn from a vocabulary of 300,000 whose frequencies fall like those of English
text (Zipf). Times are CPU time of this one process, so other work on the machine does not count. Building and memory
grow in proportion to the number of passages, apart from what the process holds before; so does a search, apart from a
constant part. Beside what was measured stands what follows for 1,000,000 passages. Queries are the first eight words of
passages, stop words among them.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from stepcredit.environments.retrieval.analysis import STOP_WORDS
from stepcredit.environments.search_qa.retrievers import CorpusRetriever

WORDS_PER_PASSAGE, VOCABULARY = 100, 300_000
FULL = 1_000_000
TARGETS = {"build, s": 600.0, "memory, GB": 4.0, "search, ms": 20.0}
"""For ``FULL`` passages."""


def write_corpus(path: Path, passages: int) -> list[str]:
    """Write a corpus; queries to ask of it."""
    rng = np.random.default_rng(0)
    words = np.array([*sorted(STOP_WORDS), *(f"w{number}" for number in range(VOCABULARY))], object)
    weights = 1 / (np.arange(len(words)) + 2.7)
    cumulative = np.cumsum(weights / weights.sum())
    queries = []
    with path.open("w", encoding="utf-8") as file:
        for number in range(passages):
            drawn = words[np.searchsorted(cumulative, rng.random(WORDS_PER_PASSAGE))]
            text = " ".join(drawn)
            file.write(json.dumps({"id": str(number), "contents": f'"Title {number}"\n{text}'}) + "\n")
            if number % max(passages // 200, 1) == 0:
                queries.append(" ".join(drawn[:8]))
    return queries


def measure(passages: int) -> dict[str, float]:
    """Seconds to build, peak memory, milliseconds a search after ten to warm up."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        queries = write_corpus(corpus, passages)
        before = peak_memory()
        started = time.process_time()
        retriever = CorpusRetriever.on_disk(corpus, Path(folder) / "index")
        built = time.process_time() - started
        for query in queries[:10]:
            retriever.retrieve(query, 3)
        started = time.process_time()
        for query in queries[10:]:
            retriever.retrieve(query, 3)
        searched = (time.process_time() - started) / len(queries[10:])
    return {
        "build, s": built,
        "memory before, GB": before,
        "memory, GB": peak_memory(),
        "search, ms": searched * 1e3,
    }


def peak_memory() -> float:
    """Of this process so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def in_proportion(figures: dict[str, float], passages: int) -> dict[str, float]:
    """What follows for ``FULL`` passages."""
    scale, before = FULL / passages, figures["memory before, GB"]
    return {
        "build, s": figures["build, s"] * scale,
        "memory, GB": before + (figures["memory, GB"] - before) * scale,
        "search, ms": figures["search, ms"] * scale,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=FULL // 10)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.passages)
    scaled = in_proportion(figures, arguments.passages)
    table = Table(title=f"BM25 on disk, one core, {arguments.passages:,} passages")
    for column in ("figure", "measured", f"in proportion, {FULL:,}", "target"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name in TARGETS:
        table.add_row(name, f"{figures[name]:,.2f}", f"{scaled[name]:,.2f}", f"at most {TARGETS[name]:,g}")
    Console().print(table)
    if arguments.json is not None:
        record = {
            "passages": arguments.passages,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "stepcredit": figures,
            f"in proportion, {FULL:,} passages": scaled,
        }
        arguments.json.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
