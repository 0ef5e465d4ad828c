"""Request, Response, Rollout, Policy: what passes between the collector and whoever chooses the words.

The collector asks for one response a turn; how a request becomes a prompt is the policy's own business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepcredit.core.episodes import Episode


@dataclass(frozen=True, slots=True)
class Response:
    """What a policy said in one turn.

    Attributes:
        text: the response as text; ``rollouts.responses`` parses the command out of it.
        logprobs: log-probability of each generated token under the behaviour policy (temperature and constraint
            included), end-of-sequence token included; nats.
        entropy: mean entropy of the token distributions it was drawn from, nats.
        record: what the same policy needs to recompute the log-probability in an update (token ids, constraint
            sets, feature indices); opaque to everybody else.
        truncated: the token limit ended it.
        failure: why there is no usable response (the prompt does not fit the context), in one phrase; empty
            otherwise. The collector ends that episode and goes on with the others.
    """

    text: str
    logprobs: tuple[float, ...]
    entropy: float
    record: Any = None
    truncated: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """One finished turn of the history: what was seen, what was said, and the command that was executed."""

    observation: str
    response: Response
    action: str


@dataclass(frozen=True, slots=True)
class Request:
    """One turn to be answered.

    Attributes:
        key: names the growing episode within a session, so that a policy can keep its cache from turn to turn.
        goal: the task's sentence.
        history: all finished turns of the physical path, oldest first (a branch sees its replayed prefix here).
        observation: what the environment shows now.
        admissible: commands that do something now, sorted; empty where any text is accepted.
        horizon: turns the episode may take in all.
    """

    key: int
    goal: str
    history: Sequence[PastTurn]
    observation: str
    admissible: Sequence[str]
    horizon: int


class Session(Protocol):
    """A batch of growing episodes answered together, turn after turn."""

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response per request, in order."""
        ...

    def finish(self, key: int) -> None:
        """The episode ended; what was cached for it may go."""
        ...


class Policy(Protocol):
    """Whoever chooses the words."""

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Session:
        """Start answering a batch of episodes.

        Args:
            seed: integers that fix every random draw of the session.
            temperature: ≥ 0; 0 is greedy.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rollout:
    """An episode together with the responses its own turns came from.

    Attributes:
        episode: as it is written to the rollout file.
        goal: the task's sentence.
        responses: one per own turn.
        prefix: the replayed turns of a branch's ancestors, oldest first; empty for a root.
    """

    episode: Episode
    goal: str
    responses: tuple[Response, ...]
    prefix: tuple[PastTurn, ...] = field(default=())
