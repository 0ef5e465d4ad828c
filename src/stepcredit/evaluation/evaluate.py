"""Play a fixed set of tasks and say how often they succeed, by family and overall."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stepcredit.core.errors import OptionError
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.evaluation.intervals import Interval, cluster_bootstrap
from stepcredit.rollouts.collect import Collected, collect
from stepcredit.rollouts.types import Policy, Rollout

OVERALL = "all"
"""Name of the row over all families; no family may be called so."""


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """Success of one family (or of ``OVERALL``): share of episodes won, with a task-cluster bootstrap interval.

    ``turns`` is the mean number of turns, ``valid`` the share of valid responses, ``horizon`` the share of episodes
    that ran out of turns, ``score`` the mean graded outcome (success where the environment has none).
    """

    tasks: int
    episodes: int
    success: Interval
    score: float
    turns: float
    valid: float
    horizon: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result by family, ``OVERALL`` last; the rollouts it came from; how many episodes failed to play at all."""

    families: Mapping[str, FamilyResult]
    rollouts: Sequence[Rollout]
    failures: int

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, without the rollouts."""
        return {"failures": self.failures, "families": {name: asdict(row) for name, row in self.families.items()}}


def summarize(rollouts: Sequence[Rollout], family_of: Mapping[str, str]) -> dict[str, FamilyResult]:
    """Results by family in alphabetical order, then ``OVERALL``.

    Args:
        rollouts: root episodes.
        family_of: family of each task id.
    """
    by_family: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        by_family.setdefault(family_of[rollout.episode.task], []).append(rollout)
    results = {family: _result(by_family[family]) for family in sorted(by_family)}
    if rollouts:
        results[OVERALL] = _result(rollouts)
    return results


def _result(rollouts: Sequence[Rollout]) -> FamilyResult:
    by_task: dict[str, list[float]] = {}
    for rollout in rollouts:
        by_task.setdefault(rollout.episode.task, []).append(float(rollout.episode.success))
    episodes = [rollout.episode for rollout in rollouts]
    turns = [turn for episode in episodes for turn in episode.turns]
    scores = [float(episode.success) if episode.score is None else episode.score for episode in episodes]
    return FamilyResult(
        tasks=len(by_task),
        episodes=len(episodes),
        success=cluster_bootstrap(list(by_task.values())),
        score=sum(scores) / len(scores),
        turns=len(turns) / len(episodes),
        valid=sum(turn.valid for turn in turns) / len(turns),
        horizon=sum(episode.stop == "horizon" for episode in episodes) / len(episodes),
    )


def evaluate(
    policy: Policy,
    suite: TaskSuite,
    tasks: Sequence[Task],
    *,
    horizon: int,
    seed: Sequence[int],
    temperature: float,
    episodes_per_task: int = 1,
    response_format: str = "action",
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Play every task ``episodes_per_task`` times and summarise by family.

    Args:
        policy: who plays.
        suite: where the tasks live.
        tasks: which tasks; at least one.
        horizon: turns an episode may take.
        seed: fixes every draw.
        temperature: 0 is greedy.
        episodes_per_task: repetitions; the interval resamples whole tasks whatever their number.
        response_format: ``action`` or ``think-action``.
        progress: called with (finished episodes, all episodes).

    Raises:
        OptionError: no tasks.
    """
    if not tasks:
        raise OptionError("Nothing to evaluate: the list of tasks is empty; choose another split or more games.")
    collected: Collected = collect(
        policy,
        suite,
        tasks,
        group_size=episodes_per_task,
        horizon=horizon,
        seed=seed,
        temperature=temperature,
        response_format=response_format,
        progress=progress,
    )
    family_of = {task.id: task.family for task in tasks}
    return Evaluation(summarize(collected.rollouts, family_of), collected.rollouts, len(collected.failures))
