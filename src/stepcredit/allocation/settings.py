"""Settings of the allocator, and the plain values it takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

from stepcredit.core.episodes import Parent
from stepcredit.core.errors import OptionError, unknown_name

RootMode = Literal["fitted", "uniform"]
BranchMode = Literal["fitted", "random", "none"]


@dataclass(frozen=True, slots=True)
class AllocationSettings:
    """Settings of the paper for ALFWorld; WebShop chooses 16 of 128.

    Attributes:
        root: ``fitted``, or the control ``uniform`` (random tasks, equal quotas).
        branch: ``fitted``, or the controls ``random`` (random candidates with the minimum) and ``none``.
        tasks: tasks played a round.
        pool: candidate tasks of a round, at most half of them revisited while fresh ones last.
        exploration: ε in [0, 1], share of the selection weight that is uniform.
        temperature: T > 0 of the softmax over U.
        reference_rollouts: n ≥ 2 at which candidate tasks are compared.
        root_decay, branch_decay: λ in (0, 1], what a round leaves of older evidence.
        particles: draws per task behind F(k).
        opening: fewest suffixes of a branched state.
        max_suffixes: most suffixes of a branched state, where its group names no capacity of its own (chosen; the paper
            only says that there is a cap).
        memory: most (task, state) pairs remembered.
    """

    root: RootMode = "fitted"
    branch: BranchMode = "fitted"
    tasks: int = 15
    pool: int = 120
    exploration: float = 0.3
    temperature: float = 0.25
    reference_rollouts: int = 6
    root_decay: float = 0.95
    branch_decay: float = 0.9
    particles: int = 512
    opening: int = 4
    max_suffixes: int = 16
    memory: int = 100_000

    def __post_init__(self) -> None:
        if self.root not in get_args(RootMode):
            raise unknown_name("root allocation", self.root, get_args(RootMode))
        if self.branch not in get_args(BranchMode):
            raise unknown_name("branch allocation", self.branch, get_args(BranchMode))
        _check("tasks", self.tasks, self.tasks >= 1, "at least 1")
        _check("pool", self.pool, self.pool >= self.tasks, f"at least tasks = {self.tasks}")
        _check("exploration", self.exploration, 0 <= self.exploration <= 1, "0 to 1")
        _check("temperature", self.temperature, self.temperature > 0, "more than 0")
        _check("reference_rollouts", self.reference_rollouts, self.reference_rollouts >= 2, "at least 2")
        _check("root_decay", self.root_decay, 0 < self.root_decay <= 1, "more than 0, at most 1")
        _check("branch_decay", self.branch_decay, 0 < self.branch_decay <= 1, "more than 0, at most 1")
        _check("particles", self.particles, self.particles >= 1, "at least 1")
        _check("opening", self.opening, self.opening >= 1, "at least 1")
        _check(
            "max_suffixes", self.max_suffixes, self.max_suffixes >= self.opening, f"opening = {self.opening} or more"
        )
        _check("memory", self.memory, self.memory >= 1, "at least 1")


class TaskInfo(Protocol):
    """What the allocator needs of a task; ``environments.protocol.Task`` fits."""

    @property
    def id(self) -> str:
        """Group key."""
        ...

    @property
    def goal(self) -> str:
        """The sentence to fulfil."""
        ...


class Quota(NamedTuple):
    """Root rollouts to collect for one task."""

    task: str
    rollouts: int


class Suffixes(NamedTuple):
    """Branches to collect from one occurrence."""

    occurrence: Parent
    quota: int


class RootOutcome(NamedTuple):
    """What arrived of a task's quota."""

    task: str
    successes: int
    failures: int


class SuffixOutcome(NamedTuple):
    """What arrived of an occurrence's suffixes."""

    occurrence: Parent
    successes: int
    failures: int


def _check(field: str, got: object, holds: bool, expected: str) -> None:
    if not holds:
        raise OptionError(f"{field} = {got!r}; expected {expected}.")
