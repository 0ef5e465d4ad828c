"""Physical branches: play on, several times, from states that earlier episodes really passed through (TSBPO, §3).

An environment that can copy its state is brought to the occurrence once and restored for every suffix; any other one
replays the action prefix from the task's start for each suffix. A replay compares every observation with the recorded
one: a difference makes the occurrence *not replayable*, which is reported and never becomes a wrong branch. Replayed
turns are not training rows, and suffixes keep the original deadline: ``horizon`` counts the whole physical path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from stepcredit.core.episodes import Parent
from stepcredit.core.errors import OptionError
from stepcredit.environments.protocol import Environment, Info, Snapshots, Task, TaskSuite
from stepcredit.rollouts.answers import check_step
from stepcredit.rollouts.calls import Fault, attempt_all
from stepcredit.rollouts.collect import Failure, Kept, start
from stepcredit.rollouts.forks import Place, SharedEnvironment
from stepcredit.rollouts.play import (
    STEP_TIMEOUT,
    Player,
    Progress,
    Rules,
    StateKey,
    close_quietly,
    play,
    release,
)
from stepcredit.rollouts.types import PastTurn, Policy, Rollout


@dataclass(frozen=True, slots=True)
class Opening:
    """Where to branch: ``count`` ≥ 1 suffixes from the state before turn ``turn`` of a rollout (root or branch)."""

    rollout: Rollout
    turn: int
    count: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of a replay: at 0-based time ``depth`` of the physical path, what was expected and got."""

    depth: int
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class BranchGroup:
    """What became of one opening.

    Attributes:
        episode, turn, count: as the opening said.
        branches: names of the suffixes that were recorded, those that ended in error included.
        complete: whether all ``count`` suffixes were played to their end without a fault.
        divergence: why the occurrence is not replayable, where a replay showed something else.
        fault: why it is not replayable, where a replay ended in a fault; empty otherwise.
    """

    episode: str
    turn: int
    count: int
    branches: tuple[str, ...]
    complete: bool
    divergence: Divergence | None = None
    fault: str = ""

    @property
    def replayable(self) -> bool:
        """Whether the occurrence could be reached again."""
        return self.divergence is None and not self.fault


@dataclass(frozen=True, slots=True)
class Branched:
    """Branches in the order of their openings, one group per opening, and the suffixes that never had a turn."""

    rollouts: tuple[Rollout, ...]
    groups: tuple[BranchGroup, ...]
    failures: tuple[Failure, ...]


def branch(
    policy: Policy,
    suite: TaskSuite,
    openings: Sequence[Opening],
    *,
    horizon: int,
    seed: Sequence[int],
    temperature: float = 1.0,
    response_format: str = "action",
    strict: bool = True,
    reward_scale: float = 10.0,
    invalid_penalty: float = 0.1,
    state_key: StateKey = "environment",
    concurrency: int = 1,
    step_timeout: float | None = STEP_TIMEOUT,
    keep_admissible: bool = False,
    kept: Mapping[str, Kept] | None = None,
    progress: Progress | None = None,
) -> Branched:
    """Play suffixes from realised states, all openings in one lock-step batch.

    The same arguments give the same branches, from snapshots and from replays alike. Suffixes are called
    ``PARENT@TURN.k``.

    Args:
        policy: who plays the suffixes.
        suite: makes the environments.
        openings: where to branch and how often; an occurrence is listed once.
        horizon: turns of the whole physical path, as the parents were played with.
        seed: integers that fix every draw.
        temperature, response_format, strict, reward_scale, invalid_penalty, state_key, concurrency, step_timeout,
            keep_admissible, progress: as for ``collect``.
        kept: what ``collect`` kept, by episode name; an opening found there is restored without a replay.

    Raises:
        OptionError: a turn outside its rollout or past the deadline, fewer than one suffix, an occurrence listed twice,
            or another value out of range.
    """
    rules = Rules(
        horizon=horizon,
        temperature=temperature,
        response_format=response_format,
        strict=strict,
        reward_scale=reward_scale,
        invalid_penalty=invalid_penalty,
        state_key=state_key,
        concurrency=concurrency,
        step_timeout=step_timeout,
        keep_admissible=keep_admissible,
    )
    _check(openings, horizon)
    kept = kept or {}
    # A replay is a reset and up to ``horizon`` steps, once for each suffix.
    calls = (horizon + 1) * max((opening.count for opening in openings), default=1)
    reached: list[_Reached] = attempt_all(
        [partial(_reach, suite, opening, kept.get(opening.rollout.episode.episode)) for opening in openings],
        concurrency=concurrency,
        timeout=None if step_timeout is None else step_timeout * calls,
    )
    players = list(map(_players, openings, reached))
    flat = [player for group in players for player in group]
    try:
        play(policy, flat, rules, seed=seed, progress=progress)
    finally:
        _release(reached, players)
    groups = tuple(map(_report, openings, reached, players))
    failures = tuple(
        Failure(player.task.id, player.name, player.fault.reason)
        for player in flat
        if player.fault is not None and not player.turns
    )
    return Branched(tuple(player.rollout() for player in flat if player.turns), groups, failures)


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """A realised state: an environment in it for every suffix, what it told there, and what the forks share."""

    environments: Sequence[Environment]
    observation: str
    info: Info
    shared: SharedEnvironment | None = None


_Reached = _Occurrence | Divergence | Fault


def _check(openings: Sequence[Opening], horizon: int) -> None:
    seen: set[tuple[str, int]] = set()
    for opening in openings:
        episode = opening.rollout.episode
        if not 0 <= opening.turn < len(episode.turns):
            raise OptionError(
                f"Cannot branch at turn {opening.turn} of {episode.episode!r}; expected 0 to {len(episode.turns) - 1}."
            )
        if opening.count < 1:
            raise OptionError(f"{opening.count} suffixes of {episode.episode!r} asked for; expected at least 1.")
        depth = len(opening.rollout.prefix) + opening.turn
        if depth >= horizon:
            raise OptionError(
                f"Turn {opening.turn} of {episode.episode!r} lies at depth {depth}; the deadline is {horizon} turns."
            )
        if (episode.episode, opening.turn) in seen:
            raise OptionError(
                f"Turn {opening.turn} of {episode.episode!r} is opened twice; list it once with the whole count."
            )
        seen.add((episode.episode, opening.turn))


def _reach(suite: TaskSuite, opening: Opening, kept: Kept | None) -> _Occurrence | Divergence:
    """The occurrence of an opening, or where a replay differed."""
    if kept is not None:
        place = kept.places[opening.turn]
        forks = [kept.environment.fork(place) for _ in range(opening.count)]
        return _Occurrence(forks, place.observation, place.info)
    environments: list[Environment] = []
    with ExitStack() as unless_reached:
        for _ in range(opening.count):
            environment, observation, info = start(suite, _task(opening.rollout))
            unless_reached.callback(close_quietly, environment)
            reached = _replay(environment, observation, info, opening)
            if isinstance(reached, Divergence):
                return reached
            observation, info = reached
            if isinstance(environment, Snapshots):
                place = Place(environment.snapshot(), observation, info)
                shared = SharedEnvironment(environment)
                unless_reached.pop_all()
                return _Occurrence([shared.fork(place) for _ in range(opening.count)], observation, info, shared)
            environments.append(environment)
        unless_reached.pop_all()
    return _Occurrence(environments, observation, info)


def _replay(environment: Environment, observation: str, info: Info, opening: Opening) -> tuple[str, Info] | Divergence:
    """Bring a fresh environment to an occurrence by its action prefix, comparing every observation."""
    turns = opening.rollout.episode.turns
    path = [(past.observation, past.action) for past in opening.rollout.prefix]
    path += [(turn.observation, turn.action) for turn in turns[: opening.turn]]
    expected = [seen for seen, _ in path] + [turns[opening.turn].observation]
    if observation != expected[0]:
        return Divergence(0, expected[0], observation)
    for depth, (_, action) in enumerate(path, 1):
        observation, _, terminated, truncated, info = check_step(environment.step(action))
        if terminated or truncated:
            return Divergence(depth, expected[depth], f"{observation} (the task ended)")
        if observation != expected[depth]:
            return Divergence(depth, expected[depth], observation)
    return observation, info


def _task(rollout: Rollout) -> Task:
    return Task(rollout.episode.task, str(rollout.episode.extra.get("family", "")), rollout.goal)


def _players(opening: Opening, reached: _Reached) -> list[Player]:
    if not isinstance(reached, _Occurrence):
        return []
    rollout, task = opening.rollout, _task(opening.rollout)
    own = zip(rollout.episode.turns[: opening.turn], rollout.responses, strict=False)
    prefix = [*rollout.prefix, *(PastTurn(turn.observation, response, turn.action) for turn, response in own)]
    return [
        Player(
            name=f"{rollout.episode.episode}@{opening.turn}.{number}",
            task=task,
            environment=environment,
            observation=reached.observation,
            info=reached.info,
            history=list(prefix),
            depth=len(prefix),
            parent=Parent(rollout.episode.episode, opening.turn),
        )
        for number, environment in enumerate(reached.environments)
    ]


def _release(reached: Sequence[_Reached], players: Sequence[Sequence[Player]]) -> None:
    for occurrence, group in zip(reached, players, strict=True):
        release(group)
        hung = any(player.hung for player in group)
        if isinstance(occurrence, _Occurrence) and occurrence.shared is not None and not hung:
            close_quietly(occurrence.shared)


def _report(opening: Opening, reached: _Reached, players: Sequence[Player]) -> BranchGroup:
    return BranchGroup(
        episode=opening.rollout.episode.episode,
        turn=opening.turn,
        count=opening.count,
        branches=tuple(player.name for player in players if player.turns),
        complete=len(players) == opening.count and all(player.fault is None for player in players),
        divergence=reached if isinstance(reached, Divergence) else None,
        fault=reached.reason if isinstance(reached, Fault) else "",
    )
