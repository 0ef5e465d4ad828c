"""Expert demonstrations: what the supervised start learns from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import OptionError
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.rollouts.types import Response, Rollout

NOISE = 0.5
"""Share of random commands in a demonstration: they show how to recover, and are masked so that they are not learnt."""
SAME_VERB = 0.5
"""Share of random commands that keep the expert's verb."""


def choose_demonstrated(tasks: Sequence[Task], wanted: Mapping[str, int]) -> list[Task]:
    """The first ``wanted[family]`` tasks of each family, in their order.

    Raises:
        OptionError: a family that is not there, or fewer tasks than wanted.
    """
    chosen: list[Task] = []
    for family, count in wanted.items():
        found = [task for task in tasks if task.family == family][:count]
        if len(found) < count:
            known = ", ".join(sorted({task.family for task in tasks}))
            raise OptionError(
                f"{count} demonstrations of {family!r} wanted, but there are {len(found)} such training tasks; "
                f"the families are {known}."
            )
        chosen.extend(found)
    return chosen


def demonstrate(
    suite: TaskSuite, tasks: Sequence[Task], *, noise: float, horizon: int, seed: Sequence[int]
) -> tuple[list[Rollout], FloatArray]:
    """Let the expert play each task once, now and then interrupted by a random command that it must recover from.

    Args:
        suite: the environment.
        tasks: what to play.
        noise: probability that a turn executes a random admissible command instead of the expert's.
        horizon: turns at most; a demonstration that does not succeed within them is left out.
        seed: fixes the random commands.

    Returns:
        Successful rollouts (responses without token record) and one weight per turn in rollout order: 1 for the
        expert's commands, 0 for random ones, which are seen but not learnt.
    """
    rollouts: list[Rollout] = []
    weights: list[float] = []
    for number, task in enumerate(tasks):
        rng = np.random.default_rng([*seed, number])
        rollout, own = _play(suite, task, noise=noise, horizon=horizon, rng=rng)
        if rollout.episode.success:
            rollouts.append(rollout)
            weights.extend(own)
    return rollouts, np.array(weights, dtype=np.float64)


def _interrupt(wanted: str, admissible: Sequence[str], noise: float, rng: np.random.Generator) -> str:
    """The expert's command, or with probability ``noise`` a random one.

    Half of the random commands share the expert's verb: going to a wrong place is how one learns that what is wanted
    may not be there, which an expert that knows every place never shows. The others take a random verb first: taking
    the wrong thing, and what to do then, would hardly be shown if commands were drawn evenly.
    """
    if not admissible or rng.random() >= noise:
        return wanted
    by_verb: dict[str, list[str]] = {}
    for command in admissible:
        by_verb.setdefault(command.split(" ", 1)[0], []).append(command)
    verbs = list(by_verb)
    verb = wanted.split(" ", 1)[0]
    if verb not in by_verb or rng.random() >= SAME_VERB:
        verb = verbs[int(rng.integers(len(verbs)))]
    return by_verb[verb][int(rng.integers(len(by_verb[verb])))]


def _play(
    suite: TaskSuite, task: Task, *, noise: float, horizon: int, rng: np.random.Generator
) -> tuple[Rollout, list[float]]:
    environment = suite.make(task)
    expert = suite.expert(environment)
    observation, info = environment.reset()
    turns: list[Turn] = []
    weights: list[float] = []
    while len(turns) < horizon and not info["won"]:
        wanted = expert.act()
        if wanted is None:
            break
        command = _interrupt(wanted, info["admissible"], noise, rng)
        seen, admissible = observation, tuple(info["admissible"])
        observation, reward, terminated, truncated, info = environment.step(command)
        turns.append(Turn(seen, command, reward=reward, extra={"admissible": admissible}))
        weights.append(1.0 if command == wanted else 0.0)
        if terminated or truncated:
            break
    environment.close()
    episode = Episode(
        task=task.id,
        episode=f"{task.id}#demonstration",
        turns=tuple(turns),
        final_observation=observation,
        success=info["won"],
        stop="won" if info["won"] else "lost",
    )
    responses = tuple(Response(turn.action, (), 0.0) for turn in turns)
    return Rollout(episode, task.goal, responses), weights
