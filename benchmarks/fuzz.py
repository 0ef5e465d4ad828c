"""Fuzzing guided by coverage, and the growth of time and memory with the size of inputs made to hurt.

    python benchmarks/fuzz.py [READER...] [--seconds 60] [--seed 0]    mutate honest files, keep what reaches new code
    python benchmarks/fuzz.py [READER...] --giants [--megabytes 10]    ten times the size in ten times the time?

The readers and their honest files are those of tests/faults/readers.py. A crash is any error but ours, a hang an input
of some kilobytes that takes more than two seconds. Figures go to benchmarks/results/fuzz.json; every input that
crashes or hangs is written beside it, and the status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "fuzz.json"
sys.path.insert(0, str(ROOT / "tests"))

from faults.readers import READERS, feed, giants  # noqa: E402

SOURCE = str(ROOT / "src" / "stepcredit")
HANG = 2.0
"""Seconds of processor time."""
LONGEST_INPUT = 20_000
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, 2**64, -(2**70), 1e308, 0.5, "", "x", "\x00", "\ud800", "../../x", "a" * 300),
    *([], {}, [[]], [None], {"": None}, [[[[]]]], "9" * 400, "1e999", "\u202e", "[red]"),
)
TOKENS = (
    *(b"\x00", b"\xff", b'"', b"[", b"]", b"{", b"}", b"\n", b"null", b"1e999", b"NaN", b"\\ud800", b"(", b")", b";"),
    *(b":", b",", b"-", b"_bar_", b"<action>", b"</think>", b"$", b"/", b".", b"\x1f\x8b\x08", b"PAR1", b"0" * 40),
)


Edges = set[tuple[int, int, int]]
"""Pairs of lines that followed each other, with the code they belong to."""


@dataclass(slots=True)
class Campaign:
    """One reader under fuzzing: what was tried, and what it led to."""

    corpus: list[bytes]
    edges: Edges = field(default_factory=set)
    runs: int = 0
    refused: int = 0
    slowest: float = 0.0
    crashes: dict[str, bytes] = field(default_factory=dict)
    hangs: list[bytes] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """What is kept of it."""
        return {
            "runs": self.runs,
            "refused": self.refused,
            "edges": len(self.edges),
            "kept": len(self.corpus),
            "slowest_s": round(self.slowest, 3),
            "crashes": sorted(self.crashes),
            "hangs": len(self.hangs),
        }

    def try_input(self, name: str, content: bytes, folder: Path) -> Edges:
        """Feed an input, note what becomes of it, and say which edges it passed."""
        refused: list[object] = []
        edges: Edges = set()
        began = time.process_time()
        try:
            edges = traced(lambda: refused.append(feed(name, content, folder)))
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            self.crashes.setdefault(where, content)
        spent = time.process_time() - began
        self.runs += 1
        self.refused += any(one is not None for one in refused)
        self.slowest = max(self.slowest, spent)
        if spent > HANG:
            self.hangs.append(content)
        return edges


def traced(act: Callable[[], object]) -> Edges:
    """The edges between lines of our code that an act passes."""
    edges: Edges = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        code, last = id(frame.f_code), 0

        def follow(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                edges.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return follow

        return follow

    sys.settrace(enter)
    try:
        act()
    finally:
        sys.settrace(None)
    return edges


def fuzz(name: str, seconds: float, seed: int, folder: Path) -> Campaign:
    """Fuzz one reader for some seconds of processor time."""
    rng = random.Random(f"{name} {seed}")
    campaign = Campaign(list(READERS[name].seeds))
    until = time.process_time() + seconds
    for content in campaign.corpus:
        campaign.edges |= traced(lambda content=content: feed(name, content, folder))  # type: ignore[misc]
    while time.process_time() < until:
        # Newer inputs reach further, so they are mutated more often.
        place = int(len(campaign.corpus) * rng.random() ** 0.5)
        content = mutate(campaign.corpus[place], campaign.corpus, rng)[:LONGEST_INPUT]
        edges = campaign.try_input(name, content, folder)
        if edges - campaign.edges:
            campaign.edges |= edges
            campaign.corpus.append(content)
    return campaign


def mutate(content: bytes, corpus: list[bytes], rng: random.Random) -> bytes:
    """A neighbour of an input: a value replaced where it is JSON, else bytes cut, doubled, overwritten, or crossed."""
    if rng.random() < 0.5 and (changed := _mutate_json(content, rng)) is not None:
        return changed
    for _ in range(rng.choice((1, 1, 2, 4))):
        start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        kind = rng.randrange(5)
        if kind == 0:
            content = content[:start] + content[min(end, start + rng.randrange(1, 40)) :]
        elif kind == 1:
            content = content[:start] + rng.choice(TOKENS) + content[start:]
        elif kind == 2:
            content = content[:end] + content[start:end] * rng.choice((1, 2, 9)) + content[end:]
        elif kind == 3:
            content = content[:start] + bytes([rng.randrange(256)]) + content[start + 1 :]
        else:
            other = rng.choice(corpus)
            content = content[:start] + other[rng.randrange(len(other) + 1) :]
        content = content[:LONGEST_INPUT]
    return content


def _mutate_json(content: bytes, rng: random.Random) -> bytes | None:
    """One value of one line changed, removed, or moved; None where the line is no JSON."""
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    try:
        tree = json.loads(lines[number])
        places: list[tuple[Any, Any]] = []
        pending = [tree]
        while pending:
            node = pending.pop()
            keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
            for key in keys:
                places.append((node, key))
                pending.append(node[key])
        if not places:
            return None
        node, key = rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[rng.choice(("", "x", "id", "turns", "parent"))] = node.pop(key)
        elif kind == 2:
            other, there = rng.choice(places)
            node[key] = json.loads(json.dumps(other[there]))
        else:
            node[key] = rng.choice(ODD_VALUES)
        lines[number] = json.dumps(tree).encode()
    except (ValueError, RecursionError, KeyError, IndexError):
        return None
    return b"\n".join(lines)


def grow(name: str, megabytes: float, folder: Path) -> dict[str, dict[str, float]]:
    """Seconds and megabytes of every giant at a tenth of the size and at the size; ``status`` not 0 where it failed."""
    found: dict[str, dict[str, float]] = {}
    sizes = (int(megabytes * 1e5), int(megabytes * 1e6))
    for (label, small), (_, large) in zip(giants(name, sizes[0]), giants(name, sizes[1]), strict=True):
        (before, _, _), (after, memory, status) = (_cost(name, content, folder) for content in (small, large))
        found[label] = {"small_s": round(before, 3), "large_s": round(after, 3), "mb": round(memory), "status": status}
    return found


def _cost(name: str, content: bytes, folder: Path) -> tuple[float, float, int]:
    """Seconds of processor time, megabytes and status of reading in a fork, beyond what the fork itself takes."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
        try:
            feed(name, content, folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, os.waitstatus_to_exitcode(status)


def main() -> None:
    """Fuzz or grow, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}; all without it")
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--giants", action="store_true", help="measure growth instead")
    parser.add_argument("--megabytes", type=float, default=10.0, help="size of a giant")
    arguments = parser.parse_args()
    bad = False
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.readers or READERS:
            if arguments.giants:
                figures = _growth(grow(name, arguments.megabytes, Path(scratch)))
                bad |= bool(figures["failed"])
            else:
                campaign = fuzz(name, arguments.seconds, arguments.seed, Path(scratch))
                for number, content in enumerate((*campaign.crashes.values(), *campaign.hangs)):
                    RESULTS.with_name(f"fuzz-{name}-{number}.input").write_bytes(content)
                figures = campaign.figures()
                bad |= bool(campaign.crashes or campaign.hangs)
            print(name, figures, file=sys.stderr, flush=True)
            _keep("giants" if arguments.giants else "coverage", name, figures)
    sys.exit(int(bad))


def _growth(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    worst = max(found, key=lambda label: found[label]["large_s"])
    return {
        "inputs": len(found),
        "failed": [label for label, cost in found.items() if cost["status"]],
        "slowest": {"input": worst, **found[worst]},
        "most_mb": max(cost["mb"] for cost in found.values()),
    }


def _keep(part: str, name: str, figures: dict[str, Any]) -> None:
    """Put a reader's figures beside those of the others."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    readers = kept.get(part, {}).get("readers", {})
    kept[part] = {
        "command": f"python benchmarks/fuzz.py {' '.join(sys.argv[1:])}",
        "machine": f"{os.cpu_count()} shared cores, {platform.system()}, Python {platform.python_version()}",
        "readers": {**readers, name: figures},
    }
    RESULTS.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
