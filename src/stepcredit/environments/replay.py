"""Feeding a list of commands to an environment, and finding where two plays of it part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from stepcredit.environments.protocol import Environment


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """What an environment answered to one command.

    Attributes:
        command: what was executed; None for the reset.
        feedback: the observation.
        admissible: commands that do something afterwards.
        reward: in the environment's unit, a whole number as ``int``.
        won: the verifier's outcome so far.
    """

    command: str | None
    feedback: str
    admissible: tuple[str, ...]
    reward: float
    won: bool

    def as_json(self) -> dict[str, Any]:
        """The step as a JSON object."""
        return {**asdict(self), "admissible": list(self.admissible)}


def replay(environment: Environment, commands: Iterable[str]) -> Iterator[ReplayStep]:
    """Reset an environment and execute commands one by one, past the end of the task too.

    Yields:
        The answer to the reset, then one answer per command.
    """
    observation, info = environment.reset()
    yield ReplayStep(None, observation, tuple(info["admissible"]), 0, info["won"])
    for command in commands:
        observation, reward, _, _, info = environment.step(command)
        whole = int(reward) if reward == int(reward) else reward
        yield ReplayStep(command, observation, tuple(info["admissible"]), whole, info["won"])


def first_divergence(recorded: Iterable[Mapping[str, Any]], replayed: Iterable[ReplayStep]) -> str | None:
    """Where a replay first differs from a record of an earlier one.

    Args:
        recorded: steps as ``ReplayStep.as_json`` gives them; fields that a step lacks are not compared.
        replayed: the steps of the new play.

    Returns:
        One sentence with the step (0 is the reset), the field and both values; None where all is equal.
    """
    for number, (old, new) in enumerate(zip_longest(recorded, replayed)):
        if old is None or new is None:
            return f"Step {number} is missing in the {'record' if old is None else 'replay'}."
        for name, value in new.as_json().items():
            if name in old and old[name] != value:
                return f"Step {number} ({new.command!r}) diverges in {name!r}: got {value!r}, expected {old[name]!r}."
    return None
