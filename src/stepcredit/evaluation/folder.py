"""An evaluation on disk: what was played, by whom, every episode, and the result. Killed anywhere, it continues.

    FOLDER/evaluation.json      what is played and by whom, and in the end the result
    FOLDER/parts/               finished batches of an evaluation that still runs
    FOLDER/episodes.jsonl.gz    in the end every episode, as one rollout file

Batches are the same whatever was finished before, and each draws from seeds of its own, so an evaluation that was
interrupted ends bit-equal with one that was not. Files appear whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stepcredit.core.episodes import Episode
from stepcredit.core.errors import CheckpointError, EnvironmentFaultError, InputError, OptionError
from stepcredit.core.files import open_atomic, read_episodes, write_episodes
from stepcredit.core.lock import hold
from stepcredit.core.objects import as_written, first_difference, read_object
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.evaluation.agents import Agent, Played, play_tasks
from stepcredit.evaluation.plan import Plan, first_unplanned
from stepcredit.evaluation.results import FamilyResult, Outcome, summarize
from stepcredit.rollouts.play import Progress

HEAD = "evaluation.json"
EPISODES = "episodes.jsonl.gz"
BATCH = 64
"""Episodes played together; what a kill loses at most."""
FAILING = 8
"""A batch in which so many episodes, and more than half, end in an error is not kept: something else is wrong."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """A finished evaluation: results by family, ``OVERALL`` last, and one outcome an episode."""

    families: Mapping[str, FamilyResult]
    outcomes: Sequence[Outcome]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"families": {name: asdict(row) for name, row in self.families.items()}}


def run_evaluation(
    agent: Agent,
    suite: TaskSuite,
    tasks: Sequence[Task],
    plan: Plan,
    who: Mapping[str, Any],
    folder: Path,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Play what the plan says, or what is left of it, and keep every episode.

    Args:
        agent: who plays.
        suite: makes the environments.
        tasks: the plan's tasks.
        plan: what is played and how.
        who: what identifies the agent, as plain values; an evaluation of another agent is not continued.
        folder: new, or one that this same evaluation began.
        progress: called with (finished episodes, all episodes).

    Raises:
        OptionError: no tasks, or the folder holds an evaluation of something else.
        CheckpointError: the folder cannot be read or written, or is in use by another evaluation.
        EnvironmentFaultError: most episodes of a batch ended in an error; names the first.
    """
    if not tasks:
        raise OptionError("Nothing to evaluate: the list of tasks is empty; choose another split or more games.")
    with _held(folder):
        head = _plain({"plan": plan.to_json(), "agent": dict(who)})
        kept = _begin(folder, head)
        if "result" in kept:
            _clean(folder)
            return load_evaluation(folder).result
        protocol = plan.protocol
        size = max(BATCH // protocol.episodes_per_task, 1)
        batches = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        total = len(tasks) * protocol.episodes_per_task * protocol.seeds
        outcomes: list[Outcome] = []
        said = 0

        def say(done: int, _: int) -> None:
            nonlocal said
            before, said = said, len(outcomes) + done
            if progress is not None and said != before:
                progress(said, total)

        for seed in range(plan.first_seed, plan.first_seed + protocol.seeds):
            for number, batch in enumerate(batches):
                part = _Part(folder / "parts", f"{seed}-{number:06d}")
                if part.finished:
                    with _as_written(folder):
                        played = part.read()
                        names = [task.id for task in batch]
                        _refuse_unplanned(folder, played, names, range(seed, seed + 1), protocol.episodes_per_task)
                else:
                    played = play_tasks(agent, suite, batch, protocol, seed=seed, batch=number, progress=say)
                    _check(played)
                    part.write(played)
                outcomes += played.outcomes()
                say(0, total)
        result = EvaluationResult(summarize(outcomes, resamples=protocol.resamples), outcomes)
        failures = [asdict(outcome) for outcome in outcomes if not outcome.turns]
        write_episodes(folder / EPISODES, _all_episodes(folder / "parts"))
        _write_json(folder / HEAD, {**head, "failures": failures, "result": result.to_json()})
        _clean(folder)
        return result


def _check(played: Played) -> None:
    """A server that is down for a while, or a limit that fits no prompt, must not become a result.

    Raises:
        EnvironmentFaultError: most episodes ended in an error.
    """
    outcomes = played.outcomes()
    reasons = [outcome.reason for outcome in outcomes if outcome.stop == "error"]
    if len(reasons) >= FAILING and 2 * len(reasons) > len(outcomes):
        raise EnvironmentFaultError(
            f"{len(reasons)} of {len(outcomes)} episodes ended in an error; what was finished before is kept. "
            f"The first: {reasons[0]}."
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """A finished evaluation as its folder holds it."""

    folder: Path
    plan: Mapping[str, Any]
    agent: Mapping[str, Any]
    result: EvaluationResult


def load_evaluation(folder: Path) -> Kept:
    """Read a finished evaluation.

    Raises:
        CheckpointError: no evaluation there, one that is not finished, or a head that cannot be read.
        InputError: its episodes are broken, or not what the head says.
    """
    head = _read_head(folder)
    if "result" not in head:
        raise CheckpointError(f"{str(folder)!r} is not finished; run the same evaluation again, and it continues.")
    with _as_written(folder):
        plan, protocol = head["plan"], head["plan"]["protocol"]
        played = _read_played(folder / EPISODES, head)
        seeds = range(plan["first_seed"], plan["first_seed"] + protocol["seeds"])
        _refuse_unplanned(folder, played, plan["tasks"], seeds, protocol["episodes_per_task"])
        outcomes = played.outcomes()
        families = summarize(outcomes, resamples=protocol["resamples"])
        return Kept(folder, plan, head["agent"], EvaluationResult(families, outcomes))


def _refuse_unplanned(folder: Path, played: Played, tasks: Sequence[str], seeds: range, times: int) -> None:
    """Episodes that came from elsewhere, or are missing, would be a wrong figure.

    Raises:
        InputError: names the first.
    """
    difference = first_unplanned(played.outcomes(), tasks, seeds, times)
    if difference is not None:
        raise InputError(f"{str(folder)!r} holds {difference}; start it anew in another folder.")


def _as_written(folder: Path) -> AbstractContextManager[None]:
    return as_written(
        lambda found: InputError(
            f"{str(folder)!r} holds no evaluation as it was written ({found}); start it anew in another folder."
        )
    )


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The folder, made where it is absent and locked: the first of two to finish would clear the other's parts.

    Raises:
        CheckpointError: another evaluation holds it, or nothing can be written there.
    """
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"Cannot write the evaluation {str(folder)!r}: {error.strerror}.") from error
    try:
        hold(descriptor, folder, what="evaluation", way_out="wait for it, or choose another --out")
        yield
    finally:
        os.close(descriptor)


def _begin(folder: Path, head: Mapping[str, Any]) -> Mapping[str, Any]:
    """The folder's own head, written where it has none.

    Raises:
        OptionError: the folder belongs to another evaluation.
    """
    file = folder / HEAD
    if file.exists():
        kept = _read_head(folder)
        difference = first_difference({name: kept.get(name) for name in head}, head)
        if difference is not None:
            raise OptionError(f"{str(folder)!r} holds another evaluation ({difference}); choose another --out.")
        return kept
    if not folder.is_dir() or any(not _left_over(path) for path in folder.iterdir()):
        raise OptionError(f"{str(folder)!r} exists and holds no evaluation; choose another --out.")
    _write_json(file, head)
    return head


def _left_over(path: Path) -> bool:
    """Whether a kill of an evaluation may leave this behind."""
    return path.name == "parts" or path.suffix == ".partial"


def _clean(folder: Path) -> None:
    for path in filter(_left_over, list(folder.iterdir())):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """One batch on disk. Its JSON file is written last and says that all is there."""

    folder: Path
    name: str

    @property
    def finished(self) -> bool:
        return (self.folder / f"{self.name}.json").exists()

    def write(self, played: Played) -> None:
        self.folder.mkdir(exist_ok=True)
        write_episodes(self.folder / f"{self.name}.jsonl.gz", played.episodes)
        _write_json(self.folder / f"{self.name}.json", {"failures": [asdict(one) for one in played.failures]})

    def read(self) -> Played:
        head = read_object(self.folder / f"{self.name}.json", absent="")
        return _read_played(self.folder / f"{self.name}.jsonl.gz", head)


def _read_head(folder: Path) -> dict[str, Any]:
    return read_object(folder / HEAD, absent=f"{str(folder)!r} holds no evaluation: {HEAD} is missing.")


def _read_played(episodes: Path, head: Mapping[str, Any]) -> Played:
    return Played(tuple(read_episodes(episodes)), tuple(Outcome(**failure) for failure in head["failures"]))


def _all_episodes(parts: Path) -> Iterator[Episode]:
    for file in sorted(parts.glob("*.jsonl.gz"), key=lambda file: [int(word) for word in file.name[:-9].split("-")]):
        yield from read_episodes(file)


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    with open_atomic(file) as out:
        out.write(json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """As it reads back from a file: tuples become lists, keys text."""
    plain: dict[str, Any] = json.loads(json.dumps(value, ensure_ascii=False))
    return plain
