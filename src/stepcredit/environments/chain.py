"""Chain: a corridor of doors, small enough that every probability has a closed form.

At each place one of ``doors`` coloured doors leads on; the lamp shows its colour. A policy that opens the right door
with probability p at every place succeeds with a probability known exactly (``success_probability``), which is what
estimators and learners are checked against.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.environments.protocol import Environment, Info, Task

COLOURS = ("red", "blue", "green", "yellow", "white", "black")
SPLITS = ("train", "test")

Mistake = Literal["stay", "fall"]


def success_probability(*, places: int, turns: int, right: float, mistake: Mistake = "stay") -> float:
    """Probability to pass ``places`` more doors within ``turns``, each opened rightly with probability ``right``.

    ``stay``: P(X ≥ places), X binomial with ``turns`` trials; ``fall``: right^places, 0 where turns < places.

    Args:
        places: doors still to pass, ≥ 0.
        turns: turns left, ≥ 0.
        right: probability of the right door, in [0, 1].
        mistake: what a wrong door does.
    """
    if turns < places:
        return 0.0
    if mistake == "fall":
        return right**places
    wrong = 1.0 - right
    return math.fsum(math.comb(turns, k) * right**k * wrong ** (turns - k) for k in range(places, turns + 1))


class ChainEnvironment:
    """One corridor. A wrong door leaves the player where it is (``stay``) or ends the task (``fall``)."""

    def __init__(self, task: Task, lamps: Sequence[str], doors: Sequence[str], mistake: Mistake) -> None:
        self.task = task
        self._lamps = tuple(lamps)
        self._commands = tuple(sorted(f"open {colour} door" for colour in doors))
        self._mistake = mistake
        self._place = 0
        self._fallen = False

    def reset(self) -> tuple[str, Info]:
        """Back to the first place."""
        self._place, self._fallen = 0, False
        return self._look()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Open a door; any other command changes nothing. Reward 1 for passing the last door."""
        opened = action in self._commands and not self._ended
        if opened and action == self.right_command:
            self._place += 1
        elif opened:
            self._fallen = self._mistake == "fall"
        observation, info = self._look()
        return observation, float(opened and info["won"]), self._ended, False, info

    def close(self) -> None:
        """Nothing to release."""

    @property
    def right_command(self) -> str | None:
        """The command that leads on; None at the end."""
        return None if self._ended else f"open {self._lamps[self._place]} door"

    @property
    def _ended(self) -> bool:
        return self._fallen or self._place == len(self._lamps)

    def _look(self) -> tuple[str, Info]:
        won = self._place == len(self._lamps)
        if won:
            observation = "You are outside."
        elif self._fallen:
            observation = "You fall."
        else:
            observation = f"Place {self._place + 1} of {len(self._lamps)}. A {self._lamps[self._place]} lamp burns."
        return observation, Info(admissible=() if self._ended else self._commands, won=won)


class SnapshotChainEnvironment(ChainEnvironment):
    """A chain that can copy its state."""

    def snapshot(self) -> object:
        """The present place."""
        return self._place, self._fallen

    def restore(self, snapshot: object) -> None:
        """Return to a state of this task."""
        self._place, self._fallen = snapshot  # type: ignore[misc]  # what snapshot() gave


class ChainExpert:
    """Opens the right door."""

    def __init__(self, environment: ChainEnvironment) -> None:
        self._environment = environment

    def act(self) -> str | None:
        """The right door, or None at the end."""
        return self._environment.right_command


class ChainSuite:
    """Chains with seeded lamps. The goal is the same everywhere; only lamps tell which door is right.

    Args:
        length: places to pass.
        doors: doors at each place.
        mistake: ``stay``: a wrong door changes nothing; ``fall``: it ends the task.
        count: tasks per split.
        snapshots: whether environments can copy their state.
    """

    name = "chain"

    def __init__(
        self,
        *,
        length: Annotated[int, Field(ge=1), "places to pass"] = 3,
        doors: Annotated[int, Field(ge=2, le=len(COLOURS)), "doors at each place"] = 2,
        mistake: Annotated[Mistake, "what a wrong door does: nothing, or the end of the task"] = "stay",
        count: Annotated[int, Field(ge=1), "tasks per split"] = 64,
        snapshots: Annotated[bool, "whether environments can copy their state"] = True,
    ) -> None:
        self.horizon = 4 * length
        self.warnings: list[str] = []
        self._doors = COLOURS[:doors]
        self._length, self._mistake, self._count = length, mistake, count
        self._environment = SnapshotChainEnvironment if snapshots else ChainEnvironment

    def splits(self) -> tuple[str, ...]:
        """``train`` and ``test``."""
        return SPLITS

    def tasks(self, split: str) -> Sequence[Task]:
        """The split's tasks.

        Raises:
            OptionError: no such split.
        """
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        return [Task(f"{split}/{number}", "chain", "Get outside.") for number in range(self._count)]

    def make(self, task: Task) -> ChainEnvironment:
        """The task's corridor."""
        rng = random.Random(f"chain/{self._length}/{len(self._doors)}/{task.id}")
        lamps = [rng.choice(self._doors) for _ in range(self._length)]
        return self._environment(task, lamps, self._doors, self._mistake)

    def expert(self, environment: Environment) -> ChainExpert:
        """An expert for one of this suite's environments.

        Raises:
            OptionError: the environment is of another suite.
        """
        if not isinstance(environment, ChainEnvironment):
            raise OptionError(f"The chain's expert cannot play a {type(environment).__name__}.")
        return ChainExpert(environment)

    def entities(self) -> tuple[str, ...]:
        """None."""
        return ()
