"""How a policy behaves at one realised state: how much its actions differ, and how much that matters (GACA, app. H).

A state that a policy leaves by one action teaches nothing, and neither does one whose actions all lead to the same
outcome. Both are measured at a state that was really passed through, restored from a snapshot or by replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import EnvironmentFaultError, InputError, OptionError
from stepcredit.environments.protocol import TaskSuite
from stepcredit.rollouts.branch import Branched, Opening, branch
from stepcredit.rollouts.types import Policy, Rollout


@dataclass(frozen=True, slots=True)
class StateBehaviour:
    """What a policy did at one state.

    Attributes:
        actions: the M actions that were drawn.
        diversity: ``action_diversity`` of them.
        values: ``[2, M]`` mean success of each action's continuations, by block.
        covariance: ``value_covariance`` of the two blocks.
    """

    actions: tuple[str, ...]
    diversity: float
    values: FloatArray
    covariance: float


def action_diversity(actions: Sequence[str]) -> float:
    """Share of unordered pairs of drawn actions that differ: D̂ = 2/(M(M−1)) · Σ_{i<j} 1[a_i ≠ a_j].

    Unbiased for 1 − Σ_a π(a|s)², the probability that two draws differ; 0 for a deterministic policy.

    Args:
        actions: M ≥ 2 independent draws at one state.

    Raises:
        InputError: fewer than two.
    """
    drawn = len(actions)
    if drawn < 2:
        raise InputError(f"Action diversity is about pairs; got {drawn} action(s), expected at least 2.")
    equal = sum(count * (count - 1) for count in Counter(actions).values())
    return 1.0 - equal / (drawn * (drawn - 1))


def value_covariance(first: FloatArray, second: FloatArray) -> float:
    """Covariance over drawn actions of two independent estimates of their values, divisor M − 1.

    Unbiased for Var_{a∼π} Q(s, a): noise of one block's continuations is independent of the other's and cancels, where
    the variance of a single block would count it. It may come out negative where the true variance is small.

    Args:
        first: ``[M]`` value of each drawn action, from one block of continuations.
        second: ``[M]`` the same, from another block.

    Raises:
        InputError: fewer than two actions, or blocks of different length.
    """
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise InputError(f"Got value blocks of shape {first.shape} and {second.shape}; expected [M] twice, M >= 2.")
    return float(np.sum((first - first.mean()) * (second - second.mean())) / (len(first) - 1))


def behaviour_at(
    policy: Policy,
    suite: TaskSuite,
    rollout: Rollout,
    turn: int,
    *,
    actions: int = 16,
    continuations: int = 8,
    horizon: int,
    seed: Sequence[int],
    temperature: float = 1.0,
    response_format: str = "action",
) -> StateBehaviour:
    """Draw actions at the state before a turn of a rollout, and play each on in two blocks of continuations.

    An action that ends the task has its outcome as value in both blocks. Continuations start from the state that the
    action led to, so in a stochastic environment the covariance is that of the values of the states reached.

    Args:
        policy: who acts.
        suite: makes the environments.
        rollout, turn: the state before that turn of a root or branch.
        actions: M ≥ 2 draws.
        continuations: of each action and block, ≥ 1.
        horizon: turns of the whole physical path.
        seed: fixes every draw.
        temperature: of actions and continuations.
        response_format: ``action`` or ``think-action``.

    Raises:
        OptionError: a number out of range.
        EnvironmentFaultError: the state could not be reached again, or an episode ended in an error.
    """
    if actions < 2 or continuations < 1:
        raise OptionError(
            f"Got {actions} actions and {continuations} continuations; expected at least 2 and at least 1."
        )

    def play(openings: Sequence[Opening], stage: int) -> Branched:
        played = branch(
            policy,
            suite,
            openings,
            horizon=horizon,
            seed=(*seed, stage),
            temperature=temperature,
            response_format=response_format,
        )
        broken = next((group for group in played.groups if not group.complete), None)
        if broken is not None:
            why = broken.fault or ("a replay differed" if broken.divergence else "an episode ended in an error")
            raise EnvironmentFaultError(f"Cannot play on from turn {broken.turn} of {broken.episode!r}: {why}.")
        return played

    drawn = play([Opening(rollout, turn, actions)], 0).rollouts
    going_on = [Opening(one, 1, 2 * continuations) for one in drawn if len(one.episode.turns) > 1]
    played = play(going_on, 1)
    success = {one.episode.episode: one.episode.success for one in played.rollouts}
    outcomes = {group.episode: [success[name] for name in group.branches] for group in played.groups}
    values = np.array(
        [
            np.reshape(outcomes.get(one.episode.episode, [one.episode.success] * 2 * continuations), (2, -1)).mean(1)
            for one in drawn
        ]
    ).T
    chosen = tuple(one.episode.turns[0].action for one in drawn)
    return StateBehaviour(chosen, action_diversity(chosen), values, value_covariance(values[0], values[1]))
