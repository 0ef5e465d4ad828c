"""The long form of tests/faults: kills, full disks, 50,000 episodes, servers under siege, a clean installation.

    python benchmarks/soak.py kill [--moments 200]       every verb that writes, killed and continued, bit by bit
    python benchmarks/soak.py disk [--moments 40]        a disk that refuses from some moment on, then continued
    python benchmarks/soak.py episodes [--count 50000]   memory while environments come and go, one in a hundred faulty
    python benchmarks/soak.py servers [--seconds 60] [--clients 200]   the shop's page and the retriever
    python benchmarks/soak.py install                    wheel, twice built and byte-equal, in a clean environment

Each part adds its figures to benchmarks/results/soak.json and fails where a promise does not hold; the size of the
installation is only measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "soak.json"
sys.path.insert(0, str(ROOT / "tests"))

from faults.killing import check_whole, files_of, kill_and_go_on, run_unhurt, scenarios, train_scenario  # noqa: E402
from faults.nursery import Nursery  # noqa: E402
from faults.siege import besiege  # noqa: E402

KILL_SHARES = {"train": 5, "train-branching": 3, "assign": 3, "convert": 3, "evaluate": 3, "demonstrate": 3}
"""Moments of each verb, as twentieths of all."""
MOST_INSTALLED = 150e6
"""Bytes that an installation without extras should take."""


def kill(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill and continue every verb; any difference to the unhurt run ends the soak."""
    moments: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    with Nursery() as nursery:
        run_unhurt(nursery, train_scenario("train", ()), folder / "trained")
        for scenario in scenarios(folder / "trained"):
            unhurt = run_unhurt(nursery, scenario, folder / scenario.name)
            number = 0
            while moments[scenario.name] < arguments.moments * KILL_SHARES[scenario.name] / 20:
                rng = Random(f"soak {arguments.seed} {scenario.name} {number}")
                for moment in kill_and_go_on(nursery, scenario, unhurt, folder / "hurt", rng):
                    ended = "finished before it" if moment.endswith(" 0") else moment.partition(" ")[0]
                    moments[scenario.name] += ended != "finished before it"
                    kinds[ended] += 1
                number += 1
            print(f"{scenario.name}: {moments[scenario.name]} kills", file=sys.stderr, flush=True)
    return {"kills": sum(moments.values()), "by_verb": dict(moments), "by_kind": dict(kinds), "different_files": 0}


def disk(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Refuse what a training writes from a random change on; continue, and compare."""
    scenario, found = train_scenario("train", ()), Counter[str]()
    with Nursery() as nursery:
        unhurt = run_unhurt(nursery, scenario, folder / "unhurt")
        for number in range(arguments.moments):
            rng, hurt = Random(f"soak {arguments.seed} disk {number}"), folder / "hurt"
            hurt.mkdir()
            refusal = rng.choice(("ENOSPC", "EDQUOT", "EROFS", "EIO"))
            moment = rng.randint(1, unhurt.ended.changes)
            ended = nursery.run(scenario.start(hurt), watched=hurt, at_change=moment, refusal=refusal)
            sentence = ended.status == 2 and ended.err.strip().split("\n")[-1].startswith("stepcredit: ")
            assert sentence or ended.status == 0, (refusal, moment, ended)  # late refusals touch only the report
            assert "Traceback" not in ended.err, (refusal, moment, ended)
            check_whole(hurt)
            assert nursery.run(scenario.go_on(hurt), watched=hurt).status == 0, (refusal, moment)
            assert files_of(hurt) == unhurt.files, (refusal, moment)
            shutil.rmtree(hurt)
            found[refusal] += 1
    return {"refusals": sum(found.values()), "by_kind": dict(found), "different_files": 0}


def episodes(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Collect many episodes; every hundredth environment raises or hangs. Memory after a fifth, and at the end."""
    from rollouts.stand_ins import MendedSuite, RandomPolicy, Wrapped
    from stepcredit.rollouts.collect import collect

    release = threading.Event()

    class Faulty(Wrapped):
        """Raises or hangs at its second step where its number says so."""

        def __init__(self, environment: Any) -> None:
            super().__init__(environment)
            self.number = next(numbers)

        def step(self, action: str) -> Any:
            self.steps += 1
            if self.steps == 2 and self.number % 100 == 50:
                raise RuntimeError("burst")
            if self.steps == 2 and self.number % 1000 == 99:
                release.wait()
            return self.inner.step(action)

    class Forgetful(MendedSuite):
        """Keeps no environment."""

        def make(self, task: Any) -> Any:
            environment = super().make(task)
            self.made.clear()
            return environment

    numbers = iter(range(sys.maxsize))
    suite = Forgetful(Faulty)
    batch = 1000
    memory: dict[int, float] = {}
    stops: Counter[str] = Counter()
    tasks = suite.tasks("train")[:10]
    for done in range(batch, arguments.count + 1, batch):
        found = collect(
            RandomPolicy(), suite, tasks, group_size=batch // 10, horizon=6, seed=[done], step_timeout=0.5
        )  # fmt: skip
        stops.update(one.episode.stop or "" for one in found.rollouts)
        release.set()
        release.clear()
        del found
        gc.collect()
        memory[done] = _resident(os.getpid())
    settled = memory[max(arguments.count // 5 // batch * batch, batch)]
    grown = memory[max(memory)] - settled
    assert sum(stops.values()) == arguments.count
    assert grown < 8e6, memory
    return {
        "episodes": arguments.count,
        "stops": dict(stops),
        "resident_after_a_fifth_mb": round(settled / 1e6, 1),
        "grown_since_mb": round(grown / 1e6, 2),
        "threads_left": threading.active_count(),
        "children_left": len(_children()),
    }


def servers(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Besiege the shop's page and the retriever: many clients, slow ones, then a stop."""
    corpus = folder / "corpus.jsonl"
    lines = ({"id": str(n), "contents": f'"Town {n}"\nTown {n} lies on river {n % 97}.'} for n in range(2000))
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found: dict[str, Any] = {}
    for name, command, request in (
        ("shop", ["play", "shopping", "--web"], b"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        (
            "retriever",
            ["serve-retriever", str(corpus), "--port", "0"],
            b"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Length: 29\r\nConnection: close\r\n\r\n"
            b'{"queries": ["river 7 town"]}',
        ),
    ):
        figures = besiege(command, request, clients=arguments.clients, seconds=arguments.seconds)
        print(name, figures, file=sys.stderr, flush=True)
        assert figures["errors"] == 0, figures
        assert figures["slow_clients_cut"] == figures["slow_clients"], figures
        assert figures["stop_seconds"] < 5, figures
        assert figures["grown_mb"] < 20, figures
        found[name] = figures
    return found


def install(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Build the wheel twice, install it without extras into a clean environment, weigh it, and use it."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    built = []
    for name in ("first", "second"):
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / name, ROOT]
        subprocess.run(command, check=True, env=environment)
        built.append(next((folder / name).glob("*.whl")))
    assert built[0].read_bytes() == built[1].read_bytes()
    home = folder / "home"
    venv.create(home, with_pip=True)
    site = next(home.glob("lib/python*/site-packages"))
    before = _bytes_below(site)
    python = home / "bin" / "python"
    constraints = ROOT / "requirements" / "constraints.txt"
    subprocess.run([python, "-m", "pip", "install", "--quiet", built[0], "-c", constraints], check=True)
    installed = _bytes_below(site, compiled=False) - before
    sizes = {entry.name: _bytes_below(entry, compiled=False) for entry in site.iterdir() if entry.is_dir()}
    largest = dict(sorted(sizes.items(), key=lambda item: -item[1])[:6])
    rollouts = folder / "rollouts.jsonl"
    turn = {"observation": "o", "action": "a", "reward": 1.0}
    episode = {"task": "t", "parent": None, "turns": [turn], "final_observation": "", "success": True}
    rollouts.write_text("".join(json.dumps({**episode, "episode": name}) + "\n" for name in "ab"))
    used = []
    for verb in (["methods"], ["envs"], ["assign", str(rollouts), "--method", "graft"]):
        subprocess.run(
            [home / "bin" / "stepcredit", *verb], check=True, cwd=folder, capture_output=True, env=environment
        )
        used.append(verb[0])
    figures = {
        "wheel_kb": round(built[0].stat().st_size / 1e3),
        "reproducible": True,
        "installed_mb": round(installed / 1e6, 1),
        "small_enough": installed < MOST_INSTALLED,
        "largest_mb": {name: round(size / 1e6, 1) for name, size in largest.items()},
        "used": used,
    }
    print(figures, file=sys.stderr)
    return figures


def _bytes_below(path: Path, *, compiled: bool = True) -> int:
    files = (file for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files if compiled or file.suffix != ".pyc")


def _resident(process: int) -> float:
    """Bytes of memory a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())


def _children() -> list[str]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return task.read_text().split() if task.exists() else []


PARTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "kill": kill,
    "disk": disk,
    "episodes": episodes,
    "servers": servers,
    "install": install,
}


def main() -> None:
    """Run one part and keep its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--moments", type=int, help="kills, or refusals of the disk")
    parser.add_argument("--count", type=int, default=50_000, help="episodes")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the siege of a server")
    parser.add_argument("--clients", type=int, default=200, help="of the siege, at once")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")
    arguments = parser.parse_args()
    if arguments.moments is None:
        arguments.moments = 200 if arguments.part == "kill" else 40
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        figures = PARTS[arguments.part](arguments, Path(name))
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[arguments.part] = {
        "command": f"python benchmarks/soak.py {' '.join(sys.argv[1:])}",
        "machine": f"{os.cpu_count()} shared cores, {platform.system()}, Python {platform.python_version()}",
        "seconds": round(time.monotonic() - began),
        **figures,
    }
    RESULTS.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n")


if __name__ == "__main__":
    main()
