"""Who is evaluated, and how a batch of tasks is played by it: once, or again after reflecting on failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepcredit.core.episodes import Episode, Turn
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.evaluation.protocols import Protocol
from stepcredit.evaluation.results import Outcome
from stepcredit.policy.endpoint_policy import Counted
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.play import Progress
from stepcredit.rollouts.react import goal_with_lessons, reflect
from stepcredit.rollouts.types import Policy, Response, Rollout

REFLEXION_TRIALS = 3
"""Attempts at a task at most (Reflexion as the papers' tables run it)."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Who plays.

    Attributes:
        policy: chooses the words.
        response_format: ``action`` or ``think-action``.
        trials: attempts at a task at most; after each failed one the agent writes down a lesson for the next.
        speaker: answers the requests for lessons; needed for more than one trial.
    """

    policy: Policy
    response_format: str
    trials: int = 1
    speaker: Policy | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """A batch of tasks, played.

    Attributes:
        episodes: every trial of every episode; those that were followed by another trial say ``retried`` in ``extra``.
        failures: episodes whose last trial never had a turn.
    """

    episodes: tuple[Episode, ...]
    failures: tuple[Outcome, ...]

    def outcomes(self) -> list[Outcome]:
        """One outcome an episode: that of its last trial."""
        last = [episode for episode in self.episodes if not episode.extra.get("retried")]
        return [*map(Outcome.of, last), *self.failures]


@dataclass(slots=True)
class _Attempt:
    """One episode over its trials. ``name`` is the collection's, ``TASK#k``."""

    name: str
    task: Task
    lessons: tuple[str, ...] = ()


def play_tasks(
    agent: Agent,
    suite: TaskSuite,
    tasks: Sequence[Task],
    protocol: Protocol,
    *,
    seed: int,
    batch: int,
    progress: Progress | None = None,
) -> Played:
    """Play every task ``protocol.episodes_per_task`` times.

    Episodes are called ``TASK#SEED.k``, from the second trial on ``TASK#SEED.k.tTRIAL``. A trial's policy sees the
    lessons of earlier ones behind the task's sentence.

    Args:
        agent: who plays.
        suite: makes the environments.
        tasks: what to play.
        protocol: how.
        seed, batch: fix every draw, together with the trial.
        progress: called with (finished episodes, all episodes); a trial that is retried counts for its share of them.
    """
    attempts = [_Attempt(f"{task.id}#{number}", task) for task in tasks for number in range(protocol.episodes_per_task)]
    total = len(attempts)
    episodes: list[Episode] = []
    failures: list[Outcome] = []
    for trial in range(1, agent.trials + 1):
        before = total - len(attempts) + len(attempts) * (trial - 1) / agent.trials
        collected = collect(
            agent.policy,
            suite,
            [replace(one.task, goal=goal_with_lessons(one.task.goal, one.lessons)) for one in attempts],
            group_size=1,
            horizon=protocol.horizon,
            seed=(seed, batch, trial),
            temperature=protocol.temperature,
            response_format=agent.response_format,
            progress=_share(progress, before, agent.trials, total),
        )
        # The collection numbers the episodes of a task anew where some need no further trial.
        asked = dict(zip(_collected_names(attempts), attempts, strict=True))
        failures += [
            Outcome(failure.task, asked[failure.episode].task.family, seed, trial, reason=failure.reason)
            for failure in collected.failures
        ]
        last = trial == agent.trials
        again = []
        for rollout in collected.rollouts:
            attempt = asked[rollout.episode.episode]
            retried = not last and not rollout.episode.success and rollout.episode.stop != "error"
            episodes.append(_named(rollout, attempt, seed, trial if agent.trials > 1 else None, retried))
            if retried:
                again.append((attempt, rollout.episode))
        attempts = _with_lessons(agent, again, protocol, (seed, batch, trial)) if again else []
        if not attempts:
            break
    return Played(tuple(episodes), tuple(failures))


def _share(progress: Progress | None, before: float, trials: int, total: int) -> Progress | None:
    """Progress of one trial as progress of the whole batch."""
    if progress is None:
        return None
    return lambda now, _: progress(int(before + now / trials), total)


def _collected_names(attempts: Sequence[_Attempt]) -> list[str]:
    """The names ``collect`` gives to these episodes."""
    counted: Counter[str] = Counter()
    names = []
    for attempt in attempts:
        names.append(f"{attempt.task.id}#{counted[attempt.task.id]}")
        counted[attempt.task.id] += 1
    return names


def _with_lessons(
    agent: Agent, failed: Sequence[tuple[_Attempt, Episode]], protocol: Protocol, seed: Sequence[int]
) -> list[_Attempt]:
    assert agent.speaker is not None
    lessons = reflect(
        agent.speaker,
        [attempt.task.goal for attempt, _ in failed],
        [episode for _, episode in failed],
        seed=(*seed, 0),
        temperature=protocol.temperature,
    )
    return [
        replace(attempt, lessons=(*attempt.lessons, lesson))
        for (attempt, _), lesson in zip(failed, lessons, strict=True)
    ]


def _named(rollout: Rollout, attempt: _Attempt, seed: int, trial: int | None, retried: bool) -> Episode:
    """The episode under its name in the evaluation, saying what it was part of."""
    task, _, number = attempt.name.rpartition("#")
    name = f"{task}#{seed}.{number}"
    extra: dict[str, Any] = {**rollout.episode.extra, "goal": attempt.task.goal, "seed": seed}
    if trial is not None:
        extra["trial"] = trial
        if trial > 1:
            name += f".t{trial}"
            extra["lessons"] = list(attempt.lessons)
        if retried:
            extra["retried"] = True
    turns = tuple(
        _counted(turn, response) for turn, response in zip(rollout.episode.turns, rollout.responses, strict=True)
    )
    return replace(rollout.episode, episode=name, turns=turns, extra=extra)


def _counted(turn: Turn, response: Response) -> Turn:
    """The turn of an endpoint with its token count, and without an entropy that nobody knows."""
    if not isinstance(response.record, Counted):
        return turn
    tokens = {} if response.record.tokens is None else {"tokens": response.record.tokens}
    return replace(turn, entropy=None, extra={**turn.extra, **tokens})
