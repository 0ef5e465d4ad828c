"""Which tasks are played: by update, by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.training.streams import Stream


def training_tasks(suite: TaskSuite) -> Sequence[Task]:
    """The tasks of the suite's first split: what training may see."""
    return suite.tasks(suite.splits()[0])


def choose_tasks(groups: Mapping[str, Sequence[Task]], count: int, *, update: int, seed: int) -> list[Task]:
    """The tasks of one update: families in turn, each family's tasks in a fresh seeded order every pass over them."""
    families = sorted(groups)
    chosen = []
    for place in range(update * count, (update + 1) * count):
        family = place % len(families)
        tasks = groups[families[family]]
        epoch, position = divmod(place // len(families), len(tasks))
        order = np.random.default_rng((seed, Stream.TASKS, family, epoch)).permutation(len(tasks))
        chosen.append(tasks[order[position]])
    return chosen


def by_family(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """The tasks of each family, in order."""
    families: dict[str, list[Task]] = {}
    for task in tasks:
        families.setdefault(task.family, []).append(task)
    return families


def spread_over_families(tasks: Sequence[Task], count: int) -> list[Task]:
    """The first ``count`` tasks when families take turns; fewer where the split has fewer."""
    queues = list(by_family(tasks).values())
    depth = max((len(queue) for queue in queues), default=0)
    return [queue[place] for place in range(depth) for queue in queues if place < len(queue)][:count]
