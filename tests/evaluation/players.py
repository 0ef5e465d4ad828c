"""Agents and plans for evaluations on the chain, where every probability is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepcredit.environments.chain import ChainSuite
from stepcredit.evaluation.plan import Plan
from stepcredit.evaluation.protocols import Protocol
from stepcredit.rollouts.types import Request, Response


class DoorPolicy:
    """Opens the lamp's door with probability ``right`` at every place, else another one."""

    def __init__(self, right: float) -> None:
        self.right = right

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> DoorSession:
        return DoorSession(self.right, tuple(seed))


class DoorSession:
    def __init__(self, right: float, seed: tuple[int, ...]) -> None:
        self._right = right
        self._seed = seed

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        return [self._draw(request) for request in requests]

    def _draw(self, request: Request) -> Response:
        rng = np.random.default_rng([*self._seed, request.key, len(request.history)])
        lamp = request.observation.split(" lamp")[0].split()[-1]
        good = f"open {lamp} door"
        others = [command for command in request.admissible if command != good]
        chosen = good if rng.random() < self._right else others[rng.integers(len(others))]
        return Response(chosen, (math.log(0.5),), 0.5)

    def finish(self, key: int) -> None:
        pass


@dataclass
class Speaker:
    """Answers every request with a function of it; remembers what it was asked."""

    say: Callable[[Request], Response | str]
    asked: list[Request] = field(default_factory=list)

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Speaker:
        return self

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        self.asked += requests
        answers = [self.say(request) for request in requests]
        return [Response(one, (), 0.0) if isinstance(one, str) else one for one in answers]

    def finish(self, key: int) -> None:
        pass


def chain_protocol(**values: Any) -> Protocol:
    settings: dict[str, Any] = {
        "temperature": 1.0,
        "seeds": 2,
        "episodes_per_task": 2,
        "tasks": None,
        "horizon": 4,
        "history": 2,
        "prompt_tokens": None,
        "response_tokens": 16,
        "resamples": 200,
    }
    return Protocol("custom", "chain", **{**settings, **values})


def chain_plan(suite: ChainSuite, protocol: Protocol, split: str = "test") -> Plan:
    return Plan("chain", {}, split, [task.id for task in suite.tasks(split)], 0, protocol)
