"""Play a fixed set of tasks once and say how often they succeed, by family and overall."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stepcredit.core.errors import OptionError
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.evaluation.results import OVERALL, FamilyResult, Outcome, summarize
from stepcredit.rollouts.collect import Collected, collect
from stepcredit.rollouts.types import Policy, Rollout

__all__ = ["OVERALL", "Evaluation", "FamilyResult", "evaluate", "outcomes_of"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result by family, ``OVERALL`` last; the rollouts it came from; how many episodes never had a turn."""

    families: Mapping[str, FamilyResult]
    rollouts: Sequence[Rollout]
    failures: int

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, without the rollouts."""
        return {"failures": self.failures, "families": {name: asdict(row) for name, row in self.families.items()}}


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
    collected = collect(
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
    outcomes = outcomes_of(collected, {task.id: task.family for task in tasks})
    return Evaluation(summarize(outcomes), collected.rollouts, len(collected.failures))


def outcomes_of(collected: Collected, family_of: Mapping[str, str]) -> list[Outcome]:
    """Outcomes of all episodes of a collection, those that never had a turn last."""
    played = [Outcome.of(rollout.episode) for rollout in collected.rollouts]
    return played + [
        Outcome(failure.task, family_of[failure.task], reason=failure.reason) for failure in collected.failures
    ]
