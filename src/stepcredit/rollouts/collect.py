"""Collect task groups: every task played ``group_size`` times by one policy, as rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepcredit.core.errors import OptionError
from stepcredit.environments.protocol import Environment, Info, Task, TaskSuite
from stepcredit.rollouts.answers import check_start
from stepcredit.rollouts.calls import Fault, attempt_all
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
from stepcredit.rollouts.types import Policy, Rollout


@dataclass(frozen=True, slots=True)
class Failure:
    """An episode that never had a turn, and why. A fault after the first turn is on the episode itself."""

    task: str
    episode: str
    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A root's environment, left open, and the state before each of its turns."""

    environment: SharedEnvironment
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class Collected:
    """Rollouts of one collection.

    Attributes:
        rollouts: in the order of the tasks, repetitions of a task together.
        failures: episodes that never had a turn.
        kept: by episode name, what branching restores from; empty unless places were asked for.
    """

    rollouts: tuple[Rollout, ...]
    failures: tuple[Failure, ...]
    kept: Mapping[str, Kept] = field(default_factory=dict)

    def close(self) -> None:
        """Release the environments that were kept."""
        for kept in self.kept.values():
            close_quietly(kept.environment)


def collect(
    policy: Policy,
    suite: TaskSuite,
    tasks: Sequence[Task],
    *,
    group_size: int | Sequence[int],
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
    keep_places: bool = False,
    progress: Progress | None = None,
) -> Collected:
    """Play every task ``group_size`` times, all episodes in lock-step.

    The same arguments give the same rollouts, whatever ``concurrency`` is. Episodes are called ``TASK#k``; k counts on
    where a task is listed more than once. The episodes of a task must start alike: one whose first observation is not
    that of most (of the earliest, where as many differ) fails, because its credit would compare unlike things.

    Args:
        policy: who plays.
        suite: makes the environments.
        tasks: what to play.
        group_size: episodes per task, ≥ 1; or one number ≥ 0 for each task.
        horizon: turns an episode may take, ≥ 1.
        seed: integers that fix every draw.
        temperature: sampling temperature, ≥ 0; 0 is greedy.
        response_format: ``action`` or ``think-action``.
        strict: the validity rule, see ``parse_response``.
        reward_scale: reward units per unit of the environment's reward.
        invalid_penalty: cost of an invalid response, reward units ≥ 0.
        state_key: ``environment``: the environment's own key where it gives one; ``observation``: never.
        concurrency: environments that step at once. More than 1 helps where a step waits for something else.
        step_timeout: seconds an environment may take for one step; none: no limit, and with ``concurrency`` 1 all
            environments are called in the calling thread.
        keep_admissible: record the admissible commands of every turn in ``extra["admissible"]``.
        keep_places: keep a snapshot before every turn and the environments open, for ``branch`` to restore from;
            close the result afterwards. Environments without snapshots keep nothing.
        progress: called after every round with (finished episodes, all episodes).

    Raises:
        OptionError: a value out of range.
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
    named = _name_episodes(tasks, group_size)
    starts = attempt_all(
        [lambda task=task: start(suite, task) for task, _ in named],  # type: ignore[misc]
        concurrency=concurrency,
        timeout=step_timeout,
    )
    failures: list[Failure] = []
    players: list[Player] = []
    first_seen = _usual_starts(named, starts)
    for (task, name), started in zip(named, starts, strict=True):
        if isinstance(started, Fault):
            failures.append(Failure(task.id, name, f"environment, start: {started.reason}"))
            continue
        environment, observation, info = started
        if observation == first_seen[task.id]:
            players.append(Player(name, task, environment, observation, info, places=[] if keep_places else None))
        else:
            close_quietly(environment)
            failures.append(Failure(task.id, name, "environment, start: another first observation than its siblings'"))
    kept: dict[str, Kept] = {}
    try:
        play(policy, players, rules, seed=seed, progress=progress)
        kept = {
            player.name: Kept(SharedEnvironment(player.environment), player.places)
            for player in players
            if player.places and not player.hung
        }
    finally:
        release([player for player in players if player.name not in kept])
    rollouts = tuple(player.rollout() for player in players if player.turns)
    failures.extend(
        Failure(player.task.id, player.name, player.fault.reason)
        for player in players
        if player.fault is not None and not player.turns
    )
    return Collected(rollouts, tuple(failures), kept)


Start = tuple[Environment, str, Info]


def start(suite: TaskSuite, task: Task) -> Start:
    """A fresh environment at the task's start, its first observation and info, checked."""
    environment = suite.make(task)
    try:
        observation, info = check_start(environment.reset())
    except Exception:
        close_quietly(environment)
        raise
    return environment, observation, info


def _usual_starts(named: Sequence[tuple[Task, str]], starts: Sequence[Start | Fault]) -> dict[str, str]:
    """Task → the first observation of most of its episodes."""
    seen: dict[str, Counter[str]] = {}
    for (task, _), started in zip(named, starts, strict=True):
        if not isinstance(started, Fault):
            seen.setdefault(task.id, Counter())[started[1]] += 1
    return {task: counts.most_common(1)[0][0] for task, counts in seen.items()}


def _name_episodes(tasks: Sequence[Task], group_size: int | Sequence[int]) -> list[tuple[Task, str]]:
    sizes = [group_size] * len(tasks) if isinstance(group_size, int) else list(group_size)
    least = 1 if isinstance(group_size, int) else 0
    if len(sizes) != len(tasks):
        raise OptionError(f"group_size has {len(sizes)} numbers for {len(tasks)} tasks; expected one each.")
    if any(size < least for size in sizes):
        raise OptionError(f"group_size is {min(sizes)}; expected at least {least} episode(s) per task.")
    counted: Counter[str] = Counter()
    named = []
    for task, size in zip(tasks, sizes, strict=True):
        for _ in range(size):
            named.append((task, f"{task.id}#{counted[task.id]}"))
            counted[task.id] += 1
    return named
