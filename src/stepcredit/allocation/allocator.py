"""The allocator: chooses tasks and quotas, then states and suffixes, and learns from what they yield.

One training round is

    quotas = allocator.choose_roots(tasks, budget)
    …collect the root rollouts…
    suffixes = allocator.choose_branches(state_groups(turns, horizon=…), budget)
    …collect the suffixes…
    allocator.observe_roots(outcomes)
    allocator.observe_branches(outcomes, state_groups(forest, horizon=…))

Source: TSBPO §4 and appendix C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepcredit.allocation.branch import BranchAllocation
from stepcredit.allocation.memory import TaskMemory
from stepcredit.allocation.root import RootAllocation
from stepcredit.allocation.settings import (
    AllocationSettings,
    Quota,
    RootOutcome,
    Suffixes,
    SuffixOutcome,
    TaskInfo,
)
from stepcredit.allocation.states import StateGroup
from stepcredit.core.encoder import Encoder
from stepcredit.core.errors import CheckpointError, InputError, OptionError

_ROOT_STREAM, _BRANCH_STREAM = 0, 1


class AllocatorState(NamedTuple):
    """Everything an allocator knows between two rounds.

    Attributes:
        values: plain values that JSON can hold.
        arrays: the numbers, by name. They share memory with the allocator: write or copy them before its next round.
    """

    values: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class Allocator:
    """Root and Branch allocation of TSBPO.

    Args:
        settings: see ``AllocationSettings``.
        seed: ≥ 0; together with the number of the round it fixes every draw.
        encoder: sentence encoder behind semantic evidence; None switches semantic evidence off.
    """

    def __init__(self, settings: AllocationSettings, seed: int, encoder: Encoder | None = None) -> None:
        if seed < 0:
            raise OptionError(f"seed = {seed}; expected 0 or more.")
        self.settings = settings
        self.seed = seed
        self.round = 0  # rounds begun
        self._semantic = encoder is not None
        self._tasks = TaskMemory(settings.root_decay)
        self._roots = RootAllocation(settings, self._tasks, encoder)
        self._branches = BranchAllocation(settings, seed, self._tasks, encoder)

    def choose_roots(self, tasks: Sequence[TaskInfo], budget: int) -> list[Quota]:
        """Begin a round: choose its tasks and their quotas.

        Args:
            tasks: all tasks that may be played, in a fixed order; the round's pool is drawn from them.
            budget: root rollouts of the round.

        Returns:
            At most ``settings.tasks`` quotas of two or more that add up to the budget, in the order drawn. A budget
            too small for two rollouts each chooses fewer tasks; below two, or without tasks, none.

        Raises:
            InputError: two tasks have the same id.
        """
        if len({task.id for task in tasks}) < len(tasks):
            raise InputError("Two tasks have the same id; expected distinct ids, the keys of task groups.")
        self.round += 1
        self._branches.pending = {}
        return self._roots.choose(self.round, tasks, budget, self._rng(_ROOT_STREAM))

    def choose_branches(self, groups: Sequence[StateGroup], budget: int) -> list[Suffixes]:
        """Choose the states to branch and their suffixes.

        Args:
            groups: the state groups of the round's root episodes; those that are not ``branchable`` are passed over.
            budget: suffixes of the round.

        Returns:
            Suffixes of ``settings.opening`` or more per occurrence, in all at most the budget; in an order that depends
            on the seed, the round and the states, never on the order of ``groups``.

        Raises:
            InputError: with semantic evidence, a group's task was never given to ``choose_roots``.
        """
        return self._branches.choose(self.round, groups, budget, self._rng(_BRANCH_STREAM))

    def observe_roots(self, outcomes: Sequence[RootOutcome]) -> None:
        """Learn from the round's root outcomes; call once a round.

        A group whose outcomes do not add up to its quota is incomplete and teaches nothing; it may also be left out.

        Raises:
            InputError: a task without a quota in this round.
        """
        self._roots.observe(self.round, outcomes)

    def observe_branches(self, outcomes: Sequence[SuffixOutcome], visited: Sequence[StateGroup]) -> None:
        """Learn from the round's suffixes and remember the states it passed; call once a round.

        Args:
            outcomes: per chosen occurrence; incomplete groups teach nothing and may be left out.
            visited: the state groups of the round's whole forest, of completed episodes.

        Raises:
            InputError: an occurrence that was not chosen in this round, or a state of a task that was never given to
                ``choose_roots``.
        """
        self._branches.observe(self.round, outcomes, visited)

    def diagnostics(self) -> dict[str, Any]:
        """How honest the predictions were, and what the last round chose.

        ``root`` and ``branch`` hold the calibration summary (``count``, ``brier``, ``predicted``, ``observed``,
        ``bins``) of the probability of mixed outcomes or of conversion, and under ``probability`` the mean
        probabilities of everything on offer and of what was selected in the last round.
        """
        return {
            "round": self.round,
            "root": self._roots.diagnostics(),
            "branch": self._branches.diagnostics(),
            "memory": {"tasks": len(self._tasks), "states": self._branches.remembered},
        }

    def state_dict(self) -> AllocatorState:
        """Everything needed to go on with equal bits.

        Raises:
            CheckpointError: a round has begun whose choices have not been observed.
        """
        if self._roots.pending or self._branches.pending:
            raise CheckpointError(
                f"Round {self.round} of the allocator is not observed yet; save before choose_roots or after observe_*."
            )
        values: dict[str, Any] = {"round": self.round, "made_with": self._made_with()}
        arrays: dict[str, NDArray[Any]] = {}
        for name, part in self._parts().items():
            values[name], own = part.state()
            arrays.update({f"{name}.{key}": array for key, array in own.items()})
        return AllocatorState(values, arrays)

    def load_state_dict(self, state: AllocatorState) -> None:
        """Become the allocator that ``state_dict`` described.

        Raises:
            CheckpointError: it was made with other settings, another seed, or another choice of semantic evidence.
        """
        values, arrays = state
        for field, mine in self._made_with().items():
            if values["made_with"][field] != mine:
                raise CheckpointError(
                    f"The saved allocator has {field} = {values['made_with'][field]!r}, this one {mine!r}; "
                    f"resume with the settings of the run."
                )
        self.round = values["round"]
        for name, part in self._parts().items():
            own = {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
            part.load(values[name], own)

    def _parts(self) -> Mapping[str, TaskMemory | RootAllocation | BranchAllocation]:
        return {"tasks": self._tasks, "root": self._roots, "branch": self._branches}

    def _made_with(self) -> dict[str, Any]:
        return {**asdict(self.settings), "seed": self.seed, "semantic": self._semantic}

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.round, stream])
