"""A scripted policy and environments that misbehave on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stepcredit.environments.chain import ChainEnvironment, ChainSuite
from stepcredit.environments.protocol import Task
from stepcredit.rollouts.types import Request, Response

Say = Callable[[Request], Response | str]


class ScriptedPolicy:
    """Answers with a function of the request, and remembers what it was asked."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.rounds: list[list[Request]] = []
        self.finished: list[int] = []
        self.seeds: list[tuple[tuple[int, ...], float]] = []

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> ScriptedPolicy:
        self.seeds.append((tuple(seed), temperature))
        return self

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        self.rounds.append(list(requests))
        answers = [self._say(request) for request in requests]
        return [Response(answer, (-0.5, -1.5), 0.25) if isinstance(answer, str) else answer for answer in answers]

    def finish(self, key: int) -> None:
        self.finished.append(key)


class RandomPolicy:
    """Uniform over the admissible commands; an episode's draws depend on the seed and its key alone."""

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> RandomSession:
        return RandomSession(tuple(seed))


class RandomSession:
    def __init__(self, seed: tuple[int, ...]) -> None:
        self._seed = seed

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        return [self._draw(request) for request in requests]

    def _draw(self, request: Request) -> Response:
        count = len(request.admissible)
        chosen = np.random.default_rng([*self._seed, request.key, len(request.history)]).integers(count)
        return Response(request.admissible[chosen], (-math.log(count),), math.log(count))

    def finish(self, key: int) -> None:
        pass


class MendedSuite(ChainSuite):
    """A chain suite whose environments pass through a function first."""

    def __init__(self, mend: Callable[[ChainEnvironment], Any], **options: Any) -> None:
        super().__init__(**options)
        self._mend = mend
        self.made: list[Any] = []

    def make(self, task: Task) -> Any:
        environment = self._mend(super().make(task))
        self.made.append(environment)
        return environment


class Wrapped:
    """Passes everything on to an environment, counting steps and closings; subclasses misbehave."""

    def __init__(self, environment: ChainEnvironment) -> None:
        self.inner = environment
        self.task = environment.task
        self.steps = 0
        self.closed = 0

    def reset(self) -> Any:
        return self.inner.reset()

    def step(self, action: str) -> Any:
        self.steps += 1
        return self.inner.step(action)

    def close(self) -> None:
        self.closed += 1
