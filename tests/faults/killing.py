"""Kill a verb anywhere, look at what it left, let it go on, and compare the end with that of an unhurt run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from faults.nursery import ROOT, Ended, Nursery
from stepcredit.core.files import read_episodes

NEVER_EQUAL = {"timing.jsonl", "lock", "report.html"}
"""Seconds are never bit-equal; the report shows them."""
SMALL = (
    *("--model", "linear", "--updates", "3", "--tasks-per-update", "2", "--group-size", "2", "--horizon", "4"),
    *("--environment-options.train", "12", "--environment-options.valid-unseen", "6", "--eval-tasks", "4"),
    *("--eval-splits", '["valid_unseen"]', "--eval-every", "2"),
)
BRANCHING = (
    *("--method", "tsbpo", "--objective", "tsbpo", "--root", "fitted"),
    *("--branch", "fitted", "--branch-budget", "4"),
)
LOG = ROOT / "tests" / "integrations" / "files" / "verl_v1.jsonl"

Arguments = list[str | Path]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One verb at work in a folder.

    Attributes:
        start: arguments for a folder in which nothing has happened.
        go_on: arguments for the folder as a kill left it.
        tidies: whether going on removes what a kill left half-written, beside finishing the work.
    """

    name: str
    start: Callable[[Path], Arguments]
    go_on: Callable[[Path], Arguments]
    tidies: bool = False


def train_scenario(name: str, options: Sequence[str]) -> Scenario:
    """A training of the linear policy."""

    def start(folder: Path) -> Arguments:
        return ["train", *SMALL, *options, "--out", folder / "run"]

    def go_on(folder: Path) -> Arguments:
        begun = (folder / "run" / "config.json").exists()
        return ["train", "--resume", folder / "run"] if begun else start(folder)

    return Scenario(name, start, go_on, tidies=True)


def repeated(name: str, arguments: Callable[[Path], Arguments], *, tidies: bool = False) -> Scenario:
    """A verb that is simply called again."""
    return Scenario(name, arguments, arguments, tidies)


def scenarios(prepared: Path) -> list[Scenario]:
    """Every verb that writes; ``prepared`` holds a finished run in ``run``."""
    run = prepared / "run"
    rollouts = run / "rollouts" / "000001.jsonl.gz"
    return [
        train_scenario("train", ()),
        train_scenario("train-branching", BRANCHING),
        repeated("assign", lambda folder: ["assign", rollouts, "--method", "gigpo", "--out", folder / "credit.jsonl"]),
        repeated("convert", lambda folder: ["convert", LOG, "--out", folder / "rollouts.jsonl.gz"]),
        repeated(
            "evaluate",
            lambda folder: [
                *("evaluate", run, "--split", "valid_unseen", "--tasks", "3", "--episodes-per-task", "32"),
                *("--horizon", "3", "--resamples", "100", "--out", folder / "evaluation"),
            ],
            tidies=True,
        ),
        repeated(
            "demonstrate",
            lambda folder: ["demonstrate", folder / "chats.jsonl", "--tasks", "12", "--horizon", "20"],
            tidies=True,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Unhurt:
    """A run that nothing disturbed: its files, and how long and how busy with the disk it was."""

    files: dict[str, bytes]
    ended: Ended

    @property
    def largest(self) -> int:
        """Bytes of its largest file."""
        return max(map(len, self.files.values()))


def run_unhurt(nursery: Nursery, scenario: Scenario, folder: Path) -> Unhurt:
    """Run a scenario once, in peace."""
    folder.mkdir()
    ended = nursery.run(scenario.start(folder), watched=folder)
    assert ended.status == 0, ended.err
    return Unhurt(files_of(folder), ended)


def kill_and_go_on(nursery: Nursery, scenario: Scenario, unhurt: Unhurt, folder: Path, rng: Random) -> list[str]:
    """Kill a scenario once or twice, let it go on to the end, and check everything on the way.

    Returns:
        When it was killed, in words.
    """
    folder.mkdir()
    moments = []
    for _ in range(rng.choice((1, 1, 2))):
        moment = _moment(unhurt, rng)
        order = scenario.go_on(folder) if moments else scenario.start(folder)
        ended = nursery.run(order, watched=folder, **moment)  # type: ignore[arg-type]
        assert ended.status <= 0, f"{scenario.name}, {moment}: {ended.err}"
        moments.append(", ".join(f"{key} {value}" for key, value in moment.items()) + f": {ended.status}")
        check_whole(folder)
    ended = nursery.run(scenario.go_on(folder), watched=folder)
    assert ended.status == 0, f"{scenario.name} after {moments}: {ended.err}"
    found = files_of(folder)
    left = {name for name in found if name.endswith(".partial")}
    assert not (left and scenario.tidies), f"{scenario.name} after {moments} left {left}"
    assert found.keys() - left == unhurt.files.keys(), f"{scenario.name} after {moments}"
    different = [name for name, content in unhurt.files.items() if found[name] != content]
    assert different == [], f"{scenario.name} after {moments}"
    shutil.rmtree(folder)
    return moments


def _moment(unhurt: Unhurt, rng: Random) -> dict[str, int | float | bool]:
    kind = rng.choice(("change", "time", "size"))
    if kind == "change":
        return {"at_change": rng.randint(1, unhurt.ended.changes)}
    if kind == "time":
        return {"after": rng.uniform(0.0, unhurt.ended.seconds)}
    return {"file_size": int(unhurt.largest ** rng.uniform(0.3, 1.0)), "dies_of_size": True}


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file that must be equal, by relative path."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in NEVER_EQUAL
    }


def check_whole(folder: Path) -> None:
    """Every file that bears its final name can be read to its end."""
    for file in sorted(folder.rglob("*")):
        hidden = any(part.endswith(".partial") for part in file.relative_to(folder).parts)
        if hidden or not file.is_file():
            continue
        if file.name.startswith("credit"):
            assert all(map(json.loads, file.read_text().splitlines())), file
        elif file.name.endswith(".jsonl.gz"):
            assert list(read_episodes(file)), file
        elif file.suffix == ".jsonl":
            assert all(map(json.loads, file.read_text().split("\n")[:-1])), file  # the last line may be cut short
        elif file.suffix == ".json":
            json.loads(file.read_text())
        elif file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                assert all(arrays[name].size >= 0 for name in arrays.files), file
