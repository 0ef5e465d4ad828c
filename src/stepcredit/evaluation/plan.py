"""What an evaluation plays, as its folder says it; and whether what was played is that."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepcredit.core.errors import OptionError
from stepcredit.evaluation.protocols import Protocol
from stepcredit.evaluation.results import Outcome


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played: two evaluations can be compared where their plans are equal.

    Attributes:
        environment, environment_options, split: where the tasks live.
        tasks: their identifiers, in order.
        first_seed: repetitions have the seeds ``first_seed``, ``first_seed + 1``, …
        protocol: how they are played.

    Raises:
        OptionError: a seed that no generator takes, or a file holds.
    """

    environment: str
    environment_options: Mapping[str, Any]
    split: str
    tasks: Sequence[str]
    first_seed: int
    protocol: Protocol

    def __post_init__(self) -> None:
        if not 0 <= self.first_seed < 2**32:
            raise OptionError(f"The first seed is {self.first_seed}; expected a number from 0 to {2**32 - 1}.")

    def to_json(self) -> dict[str, Any]:
        """Plain values; the protocol with its sources."""
        return {
            "environment": self.environment,
            "environment_options": dict(self.environment_options),
            "split": self.split,
            "first_seed": self.first_seed,
            "protocol": {**self.protocol.settings(), "sources": dict(self.protocol.sources)},
            "tasks": list(self.tasks),
        }


def first_unplanned(outcomes: Sequence[Outcome], tasks: Sequence[str], seeds: range, times: int) -> str | None:
    """What episodes say that the plan does not, as a clause; None where they are the planned ones.

    Args:
        outcomes: one an episode.
        tasks: what was to be played.
        seeds: of the repetitions.
        times: episodes of each task a seed.
    """
    total = len(tasks) * len(seeds) * operator.index(times)
    if len(outcomes) != total:
        return f"{len(outcomes)} episodes, where {total} were to be played"
    planned = Counter((task, seed) for task in tasks for seed in seeds for _ in range(times))
    played = Counter((outcome.task, outcome.seed) for outcome in outcomes)
    for (task, seed), wanted in planned.items():  # as many in all: what is there too often is missing elsewhere
        found = played[task, seed]
        if found != wanted:
            return f"{found} episodes of task {task!r} with seed {seed}, where {wanted} were to be played"
    return None
