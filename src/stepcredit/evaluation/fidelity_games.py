"""Games small enough to be solved: their exact values, advantages and policy gradient.

``B`` games side by side, ``S`` states of which the last two are the ends ``WON`` and ``LOST``, ``A`` actions, ``O``
observations, ``T`` turns at most. The policy is a softmax over a table of logits by observation, so it cannot tell
states apart that look alike; values can, and they know the time left as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray

WON, LOST = -2, -1
"""Index of the two ends among the states. An episode that meets neither within T turns has failed."""

Shape = Literal["layered", "roaming"]
"""``layered``: every move leads one level on; ``roaming``: on, back or aside, so that states come again."""

_BISECTIONS = 40
_STEEPEST = 4.0
"""Largest |β|: policies keep some chance of every action."""
_TRAP = 0.1
"""Share of actions of a roaming game that lose it."""


@dataclass(frozen=True, slots=True)
class Games:
    """B games with one policy each; every game starts in state 0.

    Attributes:
        move: ``[B, S, A, S]`` probability of the next state.
        sees: ``[B, S]`` observation of a state, 0 … O − 1.
        logits: ``[B, O, A]`` of the policy, π(a|o) ∝ exp(logits[o, a]).
        horizon: T.
    """

    move: FloatArray
    sees: NDArray[np.int64]
    logits: FloatArray
    horizon: int

    def __len__(self) -> int:
        return len(self.move)

    @property
    def policy(self) -> FloatArray:
        """``[B, O, A]`` π(a|o)."""
        return _softmax(self.logits)

    def by_state(self, table: FloatArray) -> FloatArray:
        """``[B, S, A]`` of a table by observation, ``[B, O, A]``."""
        return np.take_along_axis(table, self.sees[:, :, None], axis=1)


@dataclass(frozen=True, slots=True)
class Solution:
    """What is true of games under their policies. Values are probabilities to win, γ = 1.

    Attributes:
        q: ``[B, T, S, A]`` probability to win after action a in state s at time t.
        value: ``[B, T, S]`` V_t(s) = Σ_a π(a|o(s))·Q_t(s, a).
        visit: ``[B, T, S]`` probability to act in state s at time t.
        gradient: ``[B, O, A]`` derivative of the probability to win by the logits.
    """

    q: FloatArray
    value: FloatArray
    visit: FloatArray
    gradient: FloatArray

    @property
    def success(self) -> FloatArray:
        """``[B]`` probability to win."""
        return self.value[:, 0, 0]

    @property
    def advantage(self) -> FloatArray:
        """``[B, T, S, A]`` A^π = Q − V."""
        return self.q - self.value[..., None]


def solve(games: Games) -> Solution:
    """Backward induction for values, forward for visits, and both for the gradient.

    Q_t(s, a) = Σ_s' P(s'|s, a)·V_{t+1}(s') with V(WON) = 1, V(LOST) = 0 and V_T = 0 elsewhere. The policy gradient
    theorem with a softmax by observation gives

        ∂J/∂logits[o, a] = Σ_t Σ_{s: o(s) = o} d_t(s)·π(a|o)·A_t(s, a),

    d_t the visits: the terms of the other actions cancel because Σ_a π·A = 0.
    """
    count, states, actions, _ = games.move.shape
    horizon = games.horizon
    policy = games.by_state(games.policy)
    q = np.zeros((count, horizon, states, actions))
    value = np.zeros((count, horizon, states))
    after = np.zeros((count, states))
    after[:, WON] = 1.0
    for time in reversed(range(horizon)):
        q[:, time, :WON] = np.einsum("bsan,bn->bsa", games.move[:, :WON], after)
        value[:, time] = (policy * q[:, time]).sum(axis=-1)
        after = value[:, time].copy()
        after[:, WON] = 1.0
    visit = np.zeros((count, horizon, states))
    visit[:, 0, 0] = 1.0
    flow = np.einsum("bsa,bsan->bsn", policy, games.move)
    for time in range(1, horizon):
        visit[:, time] = np.einsum("bs,bsn->bn", visit[:, time - 1], flow)
        visit[:, time, WON:] = 0.0
    by_state = policy * np.einsum("bts,btsa->bsa", visit, q - value[..., None])
    gradient = np.zeros_like(games.logits)
    np.add.at(gradient, (np.arange(count)[:, None], games.sees), by_state)
    return Solution(q, value, visit, gradient)


def chain_games(
    count: int, *, places: int, turns: int, right: float, mistake: Literal["stay", "fall"] = "stay", doors: int = 3
) -> Games:
    """Copies of the corridor of ``environments.chain``, whose values have the closed form ``success_probability``.

    Args:
        count: B.
        places: doors to pass.
        turns: T.
        right: probability of the right door, in (0, 1).
        mistake: what a wrong door does: nothing, or the end.
        doors: A, at least 2.
    """
    states = places + 2
    move = np.zeros((states, doors, states))
    logits = np.full((states, doors), np.log((1 - right) / (doors - 1)))
    for place in range(places):
        good = place % doors
        move[place, :, place if mistake == "stay" else LOST] = 1.0
        move[place, good] = 0.0
        move[place, good, place + 1 if place + 1 < places else WON] = 1.0
        logits[place, good] = np.log(right)
    return Games(
        move=np.tile(move, (count, 1, 1, 1)),
        sees=np.tile(np.arange(states), (count, 1)),
        logits=np.tile(logits, (count, 1, 1)),
        horizon=turns,
    )


def random_games(
    count: int,
    *,
    seed: int,
    shape: Shape = "roaming",
    levels: int = 8,
    width: int = 4,
    actions: int = 3,
    horizon: int = 16,
    slip: float = 0.0,
    alike: int = 1,
    success: float = 0.4,
) -> Games:
    """Games drawn at random, with policies of a given success.

    State 0 stands at the first of ``levels`` levels of ``width`` states. A move of a ``layered`` game leads to a random
    state of the next level; in a ``roaming`` game it goes one level on (half of the actions, one in every state for
    sure), stays on the level or goes one back (a quarter each), or is a trap that loses. Going on from the last level
    wins; in a layered game it wins or loses, half and half, at least one action of every state winning and one losing.

    Logits are standard normal draws plus β times the action's advantage under random play (of unit deviation in its
    state); β is bisected until the exact success is right. Where states look alike their members' advantages are
    averaged, and the nearest success within reach is taken.

    Args:
        count: B.
        seed: of all draws.
        shape: see above.
        levels, width, actions: size; S = levels·width + 2.
        horizon: T, at least ``levels``.
        slip: probability that a move leads to a random state of its target's level instead.
        alike: states that share an observation, dealt at random; 1: all are told apart.
        success: probability to win that β is chosen for.
    """
    rng = np.random.default_rng([seed, levels, width, actions])
    states = levels * width + 2
    inner = states - 2
    level = np.arange(inner) // width
    draw = rng.random((count, inner, actions))
    step = np.where(draw < 0.5, 1, np.where(draw < 0.75, 0, -1))
    trap = (rng.random(step.shape) < _TRAP) & (step != 1)
    sure = rng.integers(actions, size=(count, inner))[..., None] == np.arange(actions)
    won_at_end = sure | ((rng.random(step.shape) < 0.5) & ~np.roll(sure, 1, axis=-1))
    step = np.ones_like(step) if shape == "layered" else np.where(sure, 1, step)
    trap &= (shape == "roaming") & ~sure
    onto = np.maximum(level[:, None] + step, 0)
    pick = rng.integers(width, size=step.shape)
    target = np.where(onto < levels, onto * width + pick, states + WON)
    target[trap | ((onto == levels) & (shape == "layered") & ~won_at_end)] = states + LOST
    move = np.zeros((count, states, actions, states))
    game, state, action = np.indices(step.shape)
    move[game, state, action, target] = 1.0 - slip
    for place in range(width):
        move[game, state, action, np.where(target < inner, onto * width + place, target)] += slip / width
    sees = np.tile(np.arange(states), (count, 1))  # ends look like nothing else
    sees[:, :inner] = np.argsort(rng.random((count, inner)), axis=1) // alike
    noise = rng.normal(size=(count, states, actions))
    return _tilted(Games(move, sees, noise, horizon), success)


def _tilted(games: Games, success: float) -> Games:
    """Games whose logits are tilted towards good actions until they win as often as wanted."""
    even = Games(games.move, games.sees, np.zeros_like(games.logits), games.horizon)
    better = solve(even).advantage[:, 0]
    better /= better.std(axis=-1, keepdims=True) + 1e-9
    along, members = np.zeros_like(games.logits), np.zeros(games.logits.shape[:2])
    place = np.arange(len(games))[:, None], games.sees
    np.add.at(along, place, better)
    np.add.at(members, place, 1.0)
    along /= np.maximum(members, 1)[..., None]
    low, high = np.full(len(games), -_STEEPEST), np.full(len(games), _STEEPEST)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        tilted = Games(games.move, games.sees, games.logits + middle[:, None, None] * along, games.horizon)
        below = win_probability(tilted) < success
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return tilted


def win_probability(games: Games) -> FloatArray:
    """``[B]`` probability to win, without the rest of the solution."""
    flow = np.einsum("bsa,bsan->bsn", games.by_state(games.policy), games.move)
    flow[:, WON:] = np.eye(flow.shape[-1])[WON:]
    reached = np.zeros(flow.shape[:2])
    reached[:, 0] = 1.0
    for _ in range(games.horizon):
        reached = np.einsum("bs,bsn->bn", reached, flow)
    return reached[:, WON]


def _softmax(logits: FloatArray) -> FloatArray:
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    share: FloatArray = weight / weight.sum(axis=-1, keepdims=True)
    return share
