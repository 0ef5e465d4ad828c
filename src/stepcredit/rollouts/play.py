"""Play a batch of episodes in lock-step: one response and one step for each per round; finished ones leave.

A fault of an environment or a response ends its own episode (``stop="error"``, the reason in ``extra["error"]``) with
the turns it had so far; all others play on. What an exception of the policy itself says concerns the whole batch and
passes through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, get_args

from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import OptionError, check_least, unknown_name
from stepcredit.environments.protocol import Environment, Info, Snapshots, Task
from stepcredit.rollouts.answers import Step, check_number, check_step, check_text
from stepcredit.rollouts.calls import Fault, attempt_all
from stepcredit.rollouts.forks import Place
from stepcredit.rollouts.responses import ParsedResponse, check_response_format, parse_response
from stepcredit.rollouts.types import PastTurn, Policy, Request, Response, Rollout, Session

StateKey = Literal["environment", "observation"]
STATE_KEYS: tuple[StateKey, ...] = get_args(StateKey)
STEP_TIMEOUT = 60.0
"""Seconds an environment may take for one step unless told otherwise: long for any step, short beside a night."""
Progress = Callable[[int, int], None]
"""Called after every round with (finished episodes, all episodes)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How episodes are played and recorded; ``collect`` explains each of them.

    Raises:
        OptionError: a value out of range, or an unknown response format.
    """

    horizon: int
    temperature: float = 1.0
    response_format: str = "action"
    strict: bool = True
    reward_scale: float = 10.0
    invalid_penalty: float = 0.1
    state_key: StateKey = "environment"
    concurrency: int = 1
    step_timeout: float | None = STEP_TIMEOUT
    keep_admissible: bool = False

    def __post_init__(self) -> None:
        check_response_format(self.response_format)
        if self.state_key not in STATE_KEYS:
            raise unknown_name("state key", self.state_key, STATE_KEYS)
        least = {"horizon": 1, "concurrency": 1, "temperature": 0, "reward_scale": 0, "invalid_penalty": 0}
        for name, minimum in least.items():
            check_least(name, getattr(self, name), minimum)
        if self.step_timeout is not None and not self.step_timeout > 0:
            raise OptionError(f"step_timeout is {self.step_timeout} s; expected more than 0, or none for no limit.")


@dataclass(slots=True)
class Player:
    """One growing episode.

    Attributes:
        name: name of the episode.
        task: what is played.
        environment: in the state that ``observation`` and ``info`` describe.
        history: finished turns of the physical path, the replayed prefix first.
        depth: length of that prefix.
        places: the state before each own turn; None where none are kept.
        stop: why the episode ended; None while it runs.
        fault: what ended it in error.
    """

    name: str
    task: Task
    environment: Environment
    observation: str
    info: Info
    history: list[PastTurn] = field(default_factory=list)
    depth: int = 0
    parent: Parent | None = None
    turns: list[Turn] = field(default_factory=list)
    places: list[Place] | None = None
    stop: str | None = None
    fault: Fault | None = None

    @property
    def hung(self) -> bool:
        """Whether the environment may still be busy with a step that took too long."""
        return self.fault is not None and self.fault.hung

    def fail(self, fault: Fault) -> None:
        """End the episode in error."""
        self.stop, self.fault = "error", fault

    def rollout(self) -> Rollout:
        """What was played, as a rollout of at least one turn."""
        score = self.info.get("score")
        extra = {"family": self.task.family, "goal": self.task.goal}
        if self.fault is not None:
            extra["error"] = self.fault.reason
        episode = Episode(
            task=self.task.id,
            episode=self.name,
            turns=tuple(self.turns),
            final_observation=self.observation,
            success=bool(self.info["won"]),
            parent=self.parent,
            score=None if score is None else float(score),
            stop=self.stop,
            extra=extra,
        )
        responses = tuple(past.response for past in self.history[self.depth :])
        return Rollout(episode, self.task.goal, responses, prefix=tuple(self.history[: self.depth]))


def play(
    policy: Policy, players: Sequence[Player], rules: Rules, *, seed: Sequence[int], progress: Progress | None
) -> None:
    """Play all players to their end, in lock-step."""
    session = policy.session(seed, temperature=rules.temperature)
    running = list(enumerate(players))
    while running:
        _play_round(session, running, rules)
        for key, player in running:
            if player.stop is not None:
                session.finish(key)
        running = [(key, player) for key, player in running if player.stop is None]
        if progress is not None:
            progress(len(players) - len(running), len(players))


def release(players: Sequence[Player]) -> None:
    """Close the players' environments, except one that hangs."""
    for player in players:
        if not player.hung:
            close_quietly(player.environment)


class Closable(Protocol):
    """Anything that can be closed."""

    def close(self) -> None:
        """Release what it holds."""
        ...


def close_quietly(environment: Closable) -> None:
    """Close an environment; what that raises changes no outcome any more."""
    with suppress(Exception):
        environment.close()


def _play_round(session: Session, running: Sequence[tuple[int, Player]], rules: Rules) -> None:
    requests = [
        Request(
            key=key,
            goal=player.task.goal,
            history=tuple(player.history),
            observation=player.observation,
            admissible=player.info["admissible"],
            horizon=rules.horizon,
        )
        for key, player in running
    ]
    moves: list[tuple[Player, Response, ParsedResponse]] = []
    for (_, player), response in zip(running, session.respond(requests), strict=True):
        failure = response.failure or _unusable(response)
        if failure:
            player.fail(Fault(f"response: {failure}"))
            continue
        response_format = check_response_format(rules.response_format)
        parsed = parse_response(response.text, player.info["admissible"], response_format, rules.strict)
        moves.append((player, response, parsed))
    answers = attempt_all(
        [partial(_step, player, parsed.action, rules.reward_scale) for player, _, parsed in moves],
        concurrency=rules.concurrency,
        timeout=rules.step_timeout,
    )
    for (player, response, parsed), answer in zip(moves, answers, strict=True):
        if isinstance(answer, Fault):
            player.fail(Fault(f"environment, turn {len(player.history)}: {answer.reason}", answer.hung))
        else:
            _record(player, response, parsed, answer, rules)


def _step(player: Player, action: str, scale: float) -> tuple[Step, Place | None]:
    """One step of the player's environment, its reward scaled, and its place before it where places are kept."""
    environment = player.environment
    place = None
    if player.places is not None and isinstance(environment, Snapshots):
        place = Place(environment.snapshot(), player.observation, player.info)
    observation, reward, terminated, truncated, info = check_step(environment.step(action))
    return (observation, check_number("scaled reward", reward * scale), terminated, truncated, info), place


def _record(
    player: Player, response: Response, parsed: ParsedResponse, answer: tuple[Step, Place | None], rules: Rules
) -> None:
    (observation, reward, terminated, truncated, info), place = answer
    if player.places is not None and place is not None:
        player.places.append(place)
    extra: dict[str, Any] = {}
    if response.text != parsed.action:
        extra["response"] = response.text
    if parsed.reason:
        extra["invalid"] = parsed.reason
    if response.truncated:
        extra["truncated"] = True
    if rules.keep_admissible:
        extra["admissible"] = list(player.info["admissible"])
    logprobs = response.logprobs
    player.turns.append(
        Turn(
            observation=player.observation,
            action=parsed.action,
            reward=reward,
            penalty=0.0 if parsed.valid else rules.invalid_penalty,
            valid=parsed.valid,
            nll=0.0 - sum(logprobs) / len(logprobs) if logprobs else None,
            logprobs=logprobs or None,
            entropy=response.entropy,
            state=player.info.get("state") if rules.state_key == "environment" else None,
            extra=extra,
        )
    )
    player.history.append(PastTurn(player.observation, response, parsed.action))
    player.observation, player.info = observation, info
    if terminated:
        player.stop = "won" if info["won"] else "lost"
    elif truncated or len(player.history) >= rules.horizon:
        player.stop = "won" if info["won"] else "horizon"


def _unusable(response: Response) -> str:
    """What makes a response unusable, in one phrase; empty for nothing."""
    if not all(map(math.isfinite, response.logprobs)):
        return "a log-probability is not finite"
    if not math.isfinite(response.entropy):
        return "the entropy is not finite"
    try:
        check_text("text", response.text)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""
