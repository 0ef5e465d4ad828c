"""Whether an environment keeps the promises of ``environments/protocol.py``: plays some of its tasks and says what does
not hold, one sentence a finding.

Tasks are walked with seeded random commands, some of them the expert's where there is one. Every walk is then played
again: in a fresh environment, after a reset, with unknown commands in between, and from snapshots.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from stepcredit.core.errors import OptionError
from stepcredit.environments.check_forms import answer_faults, suite_faults
from stepcredit.environments.protocol import PLACEHOLDER, Environment, Snapshots, Task, TaskSuite
from stepcredit.environments.replay import first_divergence, replay

Elsewhere = Callable[[str, Sequence[str]], Sequence[Mapping[str, Any]]]
"""Split, commands → the steps of a replay of its first task in another process, as JSON."""

UNKNOWN_COMMANDS = ("", "no such command", "\x00\x1b[31m\u202e", "<answer>", "x" * 100_000)
_EXPERT_SHARE = 0.5
_WORDS = ("red shoes", "the capital", "look")
_PICKLE_METHODS = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that does not hold.

    Attributes:
        promise: which one, in a word or two.
        task: where it showed first; empty for the suite itself.
        fault: what was got and what is expected, one sentence.
        count: how many tasks showed it.
    """

    promise: str
    task: str
    fault: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """What a check came to.

    Attributes:
        tasks, steps: played.
        findings: promises that do not hold; empty is good.
    """

    tasks: int
    steps: int
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


def check_suite(
    suite: TaskSuite, *, tasks: int = 5, steps: int = 30, seed: int = 0, elsewhere: Elsewhere | None = None
) -> Report:
    """Check a suite on the first tasks of each of its splits.

    Args:
        suite: what is checked.
        tasks: tasks a split.
        steps: commands a task, at most.
        seed: of the random commands.
        elsewhere: replays a walk in another process; None leaves that out.

    Raises:
        OptionError: no task or no command to check with.
    """
    if tasks < 1 or steps < 1:
        raise OptionError(f"Got {tasks} tasks and {steps} steps; expected at least one of each.")
    findings: dict[tuple[str, str], Finding] = {}
    played = walked = 0

    def note(promise: str, task: str, fault: str) -> None:
        known = findings.get((promise, fault))
        findings[promise, fault] = (
            Finding(promise, task, fault) if known is None else replace(known, count=known.count + 1)
        )

    for fault in _attempt(lambda: suite_faults(suite)):
        note("suite", "", fault)
    if findings:
        return Report(0, 0, tuple(findings.values()))
    for split in suite.splits():
        for position, task in enumerate(suite.tasks(split)[:tasks]):
            rng = random.Random(f"{seed} {split} {position}")
            walk = Walk(task)
            for promise, check in _checks(suite, split, position, walk, steps, rng, elsewhere):
                faults = list(_attempt(check))
                for fault in faults:
                    note(promise, task.id, fault)
                if faults and promise == "answers":
                    break  # whatever follows compares answers
            played, walked = played + 1, walked + len(walk.commands)
    return Report(played, walked, tuple(findings.values()))


class Walk:
    """Commands executed in a task, and the environment's answers as JSON, the reset's first."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.commands: list[str] = []
        self.answers: list[dict[str, Any]] = []


def _checks(
    suite: TaskSuite,
    split: str,
    position: int,
    walk: Walk,
    steps: int,
    rng: random.Random,
    elsewhere: Elsewhere | None,
) -> Iterator[tuple[str, Callable[[], Iterator[str]]]]:
    """Promise and its check; each check gives a sentence for every fault."""
    yield "answers", lambda: _walk(suite, walk, steps, rng)
    yield "determinism", lambda: _repeat_faults(suite, walk)
    if elsewhere is not None and position == 0:
        yield "other processes", lambda: _elsewhere_faults(suite, elsewhere, split, walk)
    yield "unknown commands", lambda: _unknown_faults(suite, walk)
    yield "snapshots", lambda: _snapshot_faults(suite, walk)
    yield "ending", lambda: _ending_faults(suite, walk)
    yield "pickling", lambda: _pickling_faults(suite, walk)


def _attempt(check: Callable[[], Iterator[str]]) -> Iterator[str]:
    """The faults of a check; an exception is one, and ends it."""
    try:
        yield from check()
    except Exception as error:
        yield f"{type(error).__name__}: {error}".strip() + "."


def _walk(suite: TaskSuite, walk: Walk, steps: int, rng: random.Random) -> Iterator[str]:
    """Play with random commands and the expert's, filling the walk; faults in the form of the answers."""
    with closing(suite.make(walk.task)) as environment:
        try:
            expert = suite.expert(environment)
        except OptionError:
            expert = None
        answer: Any = environment.reset()
        yield from answer_faults("reset()", answer, 2)
        walk.answers.append(_as_json(answer[0], 0.0, False, False, answer[1]))
        info = answer[1]
        while len(walk.commands) < steps:
            wanted = expert.act() if expert is not None and rng.random() < _EXPERT_SHARE else None
            if wanted is not None and info["admissible"] and not _admits(info["admissible"], wanted):
                yield f"The expert wants {wanted!r:.80}, which is not admissible."
            command = wanted or _choose(info["admissible"], rng)
            answer = environment.step(command)
            walk.commands.append(command)
            where = f"step({command!r:.60})"
            yield from answer_faults(where, answer, 5)
            walk.answers.append(_as_json(*answer))
            info = answer[4]
            if answer[2] or answer[3]:
                break
    environment.close()  # once more, which changes nothing


def _repeat_faults(suite: TaskSuite, walk: Walk) -> Iterator[str]:
    with closing(suite.make(walk.task)) as fresh:
        yield from _difference("A fresh environment", walk.answers, _play(fresh, walk.commands))
        yield from _difference("The same environment after reset()", walk.answers, _play(fresh, walk.commands))


def _elsewhere_faults(suite: TaskSuite, elsewhere: Elsewhere, split: str, walk: Walk) -> Iterator[str]:
    with closing(suite.make(walk.task)) as here:
        divergence = first_divergence(elsewhere(split, walk.commands), replay(here, walk.commands))
    if divergence is not None:
        yield f"Another process, given the same task and commands, differs. {divergence:.300}"


def _unknown_faults(suite: TaskSuite, walk: Walk) -> Iterator[str]:
    """An unknown command is an ordinary step that changes nothing."""
    for unknown in UNKNOWN_COMMANDS:
        with closing(suite.make(walk.task)) as environment:
            yield from _interrupted(environment, walk, unknown)


def _interrupted(environment: Environment, walk: Walk, unknown: str) -> Iterator[str]:
    """The walk with an unknown command in the middle."""
    half = len(walk.commands) // 2
    before = _play(environment, walk.commands[:half])[-1]
    if not before["admissible"] or before["terminated"] or before["truncated"]:
        return
    answer = environment.step(unknown)
    faults = list(answer_faults(f"step({unknown!r:.30})", answer, 5))
    yield from faults
    if not faults:
        after = _as_json(*answer)
        for name in ("admissible", "won"):
            if after[name] != before[name]:
                yield f"The unknown command {unknown!r:.30} changed {name!r}; expected a step that changes nothing."
        rest = [_as_json(*environment.step(command)) for command in walk.commands[half:]]
        yield from _difference(f"After the unknown command {unknown!r:.30} the walk", walk.answers[half + 1 :], rest)


def _snapshot_faults(suite: TaskSuite, walk: Walk) -> Iterator[str]:
    """A snapshot can be restored any number of times, from wherever the environment has gone in the meantime."""
    with closing(suite.make(walk.task)) as environment:
        if not isinstance(environment, Snapshots):
            return
        environment.reset()
        kept = [environment.snapshot()]
        for command in walk.commands:
            environment.step(command)
            kept.append(environment.snapshot())
        middle = len(walk.commands) // 2
        for place in (0, middle, 0, middle):
            environment.restore(kept[place])
            rest = [_as_json(*environment.step(command)) for command in walk.commands[place:]]
            yield from _difference(
                f"After restore() of the state before command {place}", walk.answers[place + 1 :], rest
            )


def _ending_faults(suite: TaskSuite, walk: Walk) -> Iterator[str]:
    """A step after the end raises nothing, and reset() starts anew."""
    with closing(suite.make(walk.task)) as environment:
        last = _play(environment, walk.commands)[-1]
        if last["terminated"] or last["truncated"]:
            answer = environment.step(walk.commands[-1])
            yield from answer_faults("step() after the end", answer, 5)
        yield from _difference("reset() after a walk", walk.answers[:1], _play(environment, []))
    environment.close()


def _pickling_faults(suite: TaskSuite, walk: Walk) -> Iterator[str]:
    """An environment that says how it is pickled goes on as before."""
    with closing(suite.make(walk.task)) as environment:
        if not any(name in vars(type(environment)) for name in _PICKLE_METHODS):
            return
        half = len(walk.commands) // 2
        _play(environment, walk.commands[:half])
        copied: Environment = pickle.loads(pickle.dumps(environment))
        rest = [_as_json(*copied.step(command)) for command in walk.commands[half:]]
        yield from _difference("A pickled copy", walk.answers[half + 1 :], rest)


def _play(environment: Environment, commands: Sequence[str]) -> list[dict[str, Any]]:
    """Reset and execute commands: the answers as JSON."""
    observation, info = environment.reset()
    return [
        _as_json(observation, 0.0, False, False, info),
        *(_as_json(*environment.step(command)) for command in commands),
    ]


def _as_json(
    observation: str, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "observation": observation,
        "reward": float(reward),
        "terminated": terminated,
        "truncated": truncated,
        "admissible": list(info["admissible"]),
        "won": info["won"],
        "score": info.get("score"),
        "state": info.get("state"),
    }


def _difference(what: str, expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One sentence about the first answer that differs."""
    for number, (old, new) in enumerate(zip(expected, got, strict=True)):
        for name, value in old.items():
            if new[name] != value:
                yield f"{what} differs at answer {number}: {name} is {new[name]!r:.80}, before {value!r:.80}."
                return


def _choose(admissible: Sequence[str], rng: random.Random) -> str:
    """A random admissible command with words in place of a placeholder; any text where all are admissible."""
    return (rng.choice(admissible) if admissible else PLACEHOLDER).replace(PLACEHOLDER, rng.choice(_WORDS))


def _admits(admissible: Sequence[str], command: str) -> bool:
    if command in admissible:
        return True
    patterns = (one.partition(PLACEHOLDER) for one in admissible if PLACEHOLDER in one)
    return any(command.startswith(head) and command.endswith(tail) for head, _, tail in patterns)
