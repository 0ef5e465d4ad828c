"""Tasks of our environments as verl's dataset; importing it registers the agent loop that plays them.

verl is told by ``data.custom_cls.path=pkg://stepcredit.integrations.verl.tasks``, ``data.custom_cls.name=TaskDataset``,
and splits as ``data.train_files`` and ``data.val_files``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig
from torch.utils.data import Dataset

from stepcredit.allocation.allocator import Allocator
from stepcredit.allocation.settings import AllocationSettings, RootOutcome
from stepcredit.core.episodes import Episode
from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import Task
from stepcredit.integrations.verl.agent_loop import NAME, settings_of
from stepcredit.integrations.verl.settings import EnvironmentSettings
from stepcredit.training.rounds import POOL


class TaskDataset(Dataset[dict[str, Any]]):
    """One item a task.

    Args:
        data_files: name of a split (verl's ``data.train_files`` or ``data.val_files``).
        tokenizer, processor: not used; prompts are made turn by turn.
        config: verl's ``data``.
        max_samples: tasks at most, −1 for all.

    Raises:
        OptionError: no such environment, option or split.
    """

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any,
        processor: Any,
        config: DictConfig,
        max_samples: int = -1,
    ) -> None:
        self._settings = settings_of(config)
        suite = make_suite(self._settings.environment, **self._settings.environment_options)
        splits = _names(data_files)
        tasks = [task for split in splits for task in suite.tasks(split)]
        self._tasks = tasks if max_samples < 0 else tasks[:max_samples]
        self._environment = suite.name
        learns = splits == _names(config.train_files)
        self._suffixes = self._settings.suffixes if learns else 0
        self.curriculum: Curriculum | None = None
        if self._settings.root != "shuffle" and learns:
            self.curriculum = Curriculum(self._tasks, self._settings, int(config.train_batch_size))

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The task, or with a curriculum the next one that it chose, whatever the index."""
        if self.curriculum is None:
            return self._item(index, self._tasks[index])
        place, quota = self.curriculum.next()
        return {**self._item(place, self._tasks[place]), "__rollout_n__": quota}

    def _item(self, index: int, task: Task) -> dict[str, Any]:
        return {
            "raw_prompt": [{"role": "user", "content": task.goal}],
            "agent_name": NAME,
            "data_source": f"{self._environment}/{task.family}",
            "stepcredit_task": task.id,
            "stepcredit_suffixes": self._suffixes,
            "index": index,
            "reward_model": {"style": "rule", "ground_truth": task.goal},
            "extra_info": {"index": index},
            "tools_kwargs": {},
        }


class Curriculum:
    """Root allocation (TSBPO) as the order of a dataset: each training batch is one round of the allocator.

    verl takes ``data.train_batch_size`` items for a batch, one after the other, and each item's quota as the number of
    its episodes. The trainer tells the outcomes before it takes the next batch.

    Args:
        tasks: all tasks of the split.
        settings: ``root``, ``group_size``, ``allocation_options``, ``seed``.
        batch: tasks of a training batch.

    Raises:
        OptionError: no ``group_size``, fewer tasks than a batch has, or an option that does not fit.
    """

    def __init__(self, tasks: Sequence[Task], settings: EnvironmentSettings, batch: int) -> None:
        if settings.group_size is None or settings.group_size < 2:
            raise OptionError(
                f"data.stepcredit.group_size is {settings.group_size}; "
                f"an allocator needs the episodes a task gets on average, 2 or more."
            )
        if len(tasks) < batch:
            raise OptionError(f"{len(tasks)} tasks for batches of {batch}; lower data.train_batch_size.")
        known = {one.name for one in fields(AllocationSettings)} - {"root", "branch", "tasks"}
        for name in settings.allocation_options:
            if name not in known:
                raise unknown_name("key under data.stepcredit.allocation_options:", name, known)
        values: dict[str, Any] = {"tasks": batch, "pool": POOL * batch, **settings.allocation_options}
        self._allocator = Allocator(
            AllocationSettings(root=settings.root, branch="none", **values),  # type: ignore[arg-type]
            settings.seed,
        )
        self._tasks = tasks
        self._place = {task.id: place for place, task in enumerate(tasks)}
        self._budget = batch * settings.group_size
        self._waiting: deque[tuple[int, int]] = deque()

    def next(self) -> tuple[int, int]:
        """Place of the next task among the tasks, and its quota; begins a round where the last one is used up."""
        if not self._waiting:
            quotas = self._allocator.choose_roots(self._tasks, self._budget)
            self._waiting.extend((self._place[quota.task], quota.rollouts) for quota in quotas)
        return self._waiting.popleft()

    def observe(self, episodes: Sequence[Episode]) -> None:
        """Learn from the episodes of a batch; those that ended in error teach nothing."""
        counts: dict[str, list[int]] = {}
        for episode in episodes:
            if episode.parent is None and episode.stop != "error":
                counts.setdefault(episode.task, [0, 0])[0 if episode.success else 1] += 1
        self._allocator.observe_roots([RootOutcome(task, *both) for task, both in counts.items()])
        self._allocator.observe_branches([], [])


def _names(files: str | Sequence[str]) -> list[str]:
    return [files] if isinstance(files, str) else [str(name) for name in files]
