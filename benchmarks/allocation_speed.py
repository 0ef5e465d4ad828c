"""Time and memory of the Root/Branch allocator at the scale of the TSBPO paper.

python benchmarks/allocation_speed.py [--updates 200] [--json] [--out FILE]

Each update chooses 15 of 120 candidate tasks for 90 root rollouts and splits 120 suffixes over 400 candidate states,
in a made-up world with known success probabilities; after 200 updates the history holds 3,000 root groups and about
6,000 branch groups. Rows differ in the number of training tasks and in semantic evidence. The sentence encoder is a
stand-in whose own time is subtracted. Every row runs in its own process: times are of one thread, medians over the
last 20 updates; memory is the peak resident set of the process, the made-up world included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads its BLAS

import numpy as np

from stepcredit.allocation import (
    AllocationSettings,
    Allocator,
    RootOutcome,
    StateGroup,
    SuffixOutcome,
    Visits,
)
from stepcredit.core.episodes import Parent

SCENARIOS = ((120, False), (120, True), (3553, False), (3553, True))
"""(training tasks, semantic evidence); ALFWorld trains on 3,553 tasks."""
ROOT_BUDGET, BRANCH_BUDGET, CANDIDATES, HORIZON, STATES = 90, 120, 400, 50, 120
MEASURED = 20


@dataclass(frozen=True)
class Task:
    """A task of the made-up world."""

    id: str
    goal: str


class StandInEncoder:
    """384 numbers a text; texts with the same word before "/" lie at cosines around .97. Counts its own time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See ``Encoder.encode``."""
        start = time.process_time()
        vectors = np.stack([self._draw(text.partition("/")[0]) + 0.18 * self._draw(text) for text in texts])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.seconds += time.process_time() - start
        return vectors

    @staticmethod
    def _draw(text: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(384, dtype=np.float32)


class World:
    """Tasks with success probabilities, and states visited by their episodes."""

    def __init__(self, tasks: int) -> None:
        self.rng = np.random.default_rng(0)
        self.tasks = [Task(f"task {number}", f"goal {number % 60}/{number}") for number in range(tasks)]
        self.rate = dict(zip([task.id for task in self.tasks], self.rng.beta(0.6, 0.8, tasks).tolist(), strict=True))

    def visit(self, update: int, task: str, rollouts: int) -> tuple[RootOutcome, list[StateGroup]]:
        """Outcomes of a task's rollouts, and the states they passed."""
        won = (self.rng.random(rollouts) < self.rate[task]).astype(int)
        visited = []
        for state in range(STATES):
            depth = state * HORIZON // STATES
            passed = [0] if state else list(range(rollouts))
            passed += np.flatnonzero(self.rng.random(rollouts) < 0.15).tolist() if state else []
            visits = tuple(
                Visits(f"{update} {task} {episode}", int(won[episode]), 1 - int(won[episode]))
                for episode in dict.fromkeys(passed)
            )
            text = f"room {depth}/{task} {state} {self.rng.integers(6)}"
            visited.append(StateGroup(task, text, depth, HORIZON, Parent(visits[0].cluster, state), visits))
        return RootOutcome(task, int(won.sum()), rollouts - int(won.sum())), visited


def measure(tasks: int, semantic: bool, updates: int) -> dict[str, float | int | bool]:
    """Play ``updates`` updates in this process."""
    encoder = StandInEncoder()
    world = World(tasks)
    allocator = Allocator(AllocationSettings(), 0, encoder if semantic else None)
    seconds: dict[str, list[float]] = {"choose_roots": [], "choose_branches": [], "observe": []}
    root_groups = branch_groups = 0

    def timed(name: str, start: float, encoding: float) -> None:
        seconds[name].append(time.process_time() - start - (encoder.seconds - encoding))

    for update in range(updates):
        start, encoding = time.process_time(), encoder.seconds
        quotas = allocator.choose_roots(world.tasks, ROOT_BUDGET)
        timed("choose_roots", start, encoding)
        played = [world.visit(update, task, rollouts) for task, rollouts in quotas]
        visited = [group for _, groups in played for group in groups]
        candidates = [group for group in visited if group.branchable]
        world.rng.shuffle(candidates)
        start, encoding = time.process_time(), encoder.seconds
        suffixes = allocator.choose_branches(candidates[:CANDIDATES], BRANCH_BUDGET)
        timed("choose_branches", start, encoding)
        task_at = {group.occurrence: group.task for group in candidates}
        outcomes = []
        for occurrence, quota in suffixes:
            won = int(world.rng.binomial(quota, world.rate[task_at[occurrence]]))
            outcomes.append(SuffixOutcome(occurrence, won, quota - won))
        root_groups, branch_groups = root_groups + len(quotas), branch_groups + len(suffixes)
        start, encoding = time.process_time(), encoder.seconds
        allocator.observe_roots([outcome for outcome, _ in played])
        allocator.observe_branches(outcomes, visited)
        timed("observe", start, encoding)

    state = allocator.state_dict()
    median = {name: float(np.median(values[-MEASURED:])) for name, values in seconds.items()}
    return {
        "tasks": tasks,
        "semantic": semantic,
        "updates": updates,
        "root_groups": root_groups,
        "branch_groups": branch_groups,
        "candidates": min(CANDIDATES, len(candidates)),
        "states": allocator.diagnostics()["memory"]["states"],
        **median,
        "allocation": median["choose_roots"] + median["choose_branches"],
        "state_mib": sum(array.nbytes for array in state.arrays.values()) / 2**20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print the results as JSON: seconds, MiB")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    parser.add_argument("--scenario", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scenario is not None:
        print(json.dumps(measure(*SCENARIOS[options.scenario], options.updates)))
        return
    rows = []
    for scenario in range(len(SCENARIOS)):
        command = [sys.executable, __file__, "--scenario", str(scenario), "--updates", str(options.updates)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    result = json.dumps({"command": f"python benchmarks/allocation_speed.py --updates {options.updates}", "rows": rows})
    if options.out:
        options.out.write_text(result + "\n", encoding="utf-8")
    if options.json:
        print(result)
        return
    print("tasks semantic  groups     states    roots  branches  allocation  observe     saved      peak")
    for row in rows:
        groups = f"{row['root_groups']}+{row['branch_groups']}"
        seconds = [row[name] for name in ("choose_roots", "choose_branches", "allocation", "observe")]
        print(f"{row['tasks']:5} {'on' if row['semantic'] else 'off':8} {groups:9} {row['states']:7}", end=" ")
        print("{:6.3f} s {:7.3f} s {:9.3f} s {:6.3f} s".format(*seconds), end=" ")
        print(f"{row['state_mib']:5.0f} MiB {row['peak_mib']:5.0f} MiB")


if __name__ == "__main__":
    main()
