"""Collecting demonstrations from the built-in expert or from a teacher behind an endpoint, task by task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stepcredit.core.errors import check_least
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.policy.endpoint import ChatEndpoint
from stepcredit.policy.endpoint_policy import EndpointPolicy
from stepcredit.rollouts.collect import Collected, collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.react import VERBATIM, goal_with_lessons, reflect
from stepcredit.rollouts.responses import ResponseFormat
from stepcredit.rollouts.types import Rollout
from stepcredit.training.demonstrations import demonstrate


@dataclass(frozen=True, slots=True)
class Taught:
    """What became of one task.

    Attributes:
        task: identifier.
        rollout: the successful attempt; None where there was none.
        weight: per turn of it; 0 for what must not be learnt.
        attempts: how many were played.
        reason: why there is no demonstration; empty where there is one.
    """

    task: str
    rollout: Rollout | None
    weight: tuple[float, ...]
    attempts: int
    reason: str = ""


def ask_expert(
    suite: TaskSuite, tasks: Sequence[Task], numbers: Sequence[int], *, noise: float, horizon: int, seed: int
) -> Iterator[Taught]:
    """The built-in expert's play of each task.

    Args:
        suite: the environment.
        tasks: what to play.
        numbers: one per task, its place among all tasks: with the seed it fixes the random commands.
        noise: probability of a random command in a turn, which has weight 0.
        horizon: turns at most.
        seed: fixes the random commands.
    """
    for task, number in zip(tasks, numbers, strict=True):
        rollouts, weight = demonstrate(suite, [task], noise=noise, horizon=horizon, seed=(seed, number))
        if rollouts:
            yield Taught(task.id, rollouts[0], tuple(weight.tolist()), 1)
        else:
            yield Taught(task.id, None, (), 1, f"no success within {horizon} turns")


@dataclass(frozen=True, slots=True)
class TeacherSettings:
    """How a teacher is asked.

    Attributes:
        template: how a turn becomes a message, for the teacher and for the learner.
        response_format: what makes an answer valid.
        horizon: turns an attempt may take.
        temperature: sampling temperature.
        max_response_tokens: tokens an answer may take.
        repairs: times that an invalid answer is sent back.
        attempts: attempts at a task, at least 1. Before another one the teacher writes down for itself what went wrong.
        seed: passed on to the server.
    """

    template: PromptTemplate
    response_format: ResponseFormat
    horizon: int
    temperature: float = 0.7
    max_response_tokens: int = 512
    repairs: int = 2
    attempts: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"horizon": 1, "temperature": 0, "max_response_tokens": 1, "repairs": 0, "attempts": 1, "seed": 0}
        for name, minimum in least.items():
            check_least(name, getattr(self, name), minimum)


def ask_teacher(
    endpoint: ChatEndpoint, suite: TaskSuite, tasks: Sequence[Task], settings: TeacherSettings, number: int
) -> list[Taught]:
    """A teacher's play of some tasks, all at once.

    Args:
        endpoint: the teacher.
        suite: the environment.
        tasks: what to play.
        settings: how the teacher is asked.
        number: place of the first task among all tasks; part of every seed.

    Raises:
        OptionError: the server refuses the key or knows no such model or address.
    """
    taught: dict[str, Taught] = {}
    open_ = list(tasks)
    lessons: dict[str, list[str]] = {task.id: [] for task in tasks}
    for attempt in range(1, settings.attempts + 1):
        seed = (settings.seed, number, attempt)
        collected = _play(endpoint, suite, open_, settings, lessons, seed)
        taught |= _outcomes(collected, attempt)
        open_ = [task for task in open_ if taught[task.id].rollout is None]
        failed = [rollout for rollout in collected.rollouts if taught[rollout.episode.task].rollout is None]
        if not open_ or attempt == settings.attempts:
            break
        reflected = reflect(
            EndpointPolicy(endpoint, VERBATIM, max_response_tokens=settings.max_response_tokens),
            [rollout.goal for rollout in failed],
            [rollout.episode for rollout in failed],
            seed=(*seed, 1),
            temperature=settings.temperature,
        )
        for rollout, lesson in zip(failed, reflected, strict=True):
            lessons[rollout.episode.task].append(lesson)
    return [taught[task.id] for task in tasks]


def _play(
    endpoint: ChatEndpoint,
    suite: TaskSuite,
    tasks: Sequence[Task],
    settings: TeacherSettings,
    lessons: Mapping[str, Sequence[str]],
    seed: Sequence[int],
) -> Collected:
    """One attempt at every task. The teacher reads its lessons behind the goal; the rollouts do not tell them."""
    teacher = EndpointPolicy(
        endpoint,
        settings.template,
        max_response_tokens=settings.max_response_tokens,
        repairs=settings.repairs,
        response_format=settings.response_format,
    )
    collected = collect(
        teacher,
        suite,
        [replace(task, goal=goal_with_lessons(task.goal, lessons[task.id])) for task in tasks],
        group_size=1,
        horizon=settings.horizon,
        seed=seed,
        temperature=settings.temperature,
        response_format=settings.response_format,
        keep_admissible=True,
    )
    goals = {task.id: task.goal for task in tasks}
    return replace(
        collected, rollouts=tuple(_with_goal(rollout, goals[rollout.episode.task]) for rollout in collected.rollouts)
    )


def _with_goal(rollout: Rollout, goal: str) -> Rollout:
    extra = {**rollout.episode.extra, "goal": goal}
    return replace(rollout, goal=goal, episode=replace(rollout.episode, extra=extra))


def _outcomes(collected: Collected, attempt: int) -> dict[str, Taught]:
    """What an attempt came to, by task. What an invalid answer said is not learnt, even where the task was won."""
    outcomes = {failure.task: Taught(failure.task, None, (), attempt, failure.reason) for failure in collected.failures}
    for rollout in collected.rollouts:
        episode = rollout.episode
        if episode.success:
            weight = tuple(float(turn.valid) for turn in episode.turns)
            outcomes[episode.task] = Taught(episode.task, rollout, weight, attempt)
        else:
            reason = str(episode.extra.get("error", f"no success within {len(episode.turns)} turns"))
            outcomes[episode.task] = Taught(episode.task, None, (), attempt, reason)
    return outcomes
