"""Rollouts of solved games as ``Turns``, with what the games know about every turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Parent
from stepcredit.core.turns import Turns, TurnsBuilder
from stepcredit.evaluation.fidelity_games import LOST, WON, Games, Solution

Indices = NDArray[np.int64]

SUFFIXES = 4
"""Suffixes of a branched occurrence, where a group has episodes enough."""


@dataclass(frozen=True, slots=True)
class Played:
    """Task groups played in B games; a task group is one task of ``turns``.

    Attributes:
        turns: the table, with ``nll`` and ``entropy`` of the known policy; reward 1 for winning, no penalties.
        game, state, time, action: ``[N]`` where each turn was taken, as indices into the games' arrays.
        advantage: ``[N]`` exact A^π of the turn.
        value: ``[N]`` exact V^π before the turn, what a perfect critic would say.
        hindsight: ``[N]`` log-probability of the action given how its episode ended, by Bayes' rule, nats.
    """

    turns: Turns
    game: Indices
    state: Indices
    time: Indices
    action: Indices
    advantage: FloatArray
    value: FloatArray
    hindsight: FloatArray


@dataclass(frozen=True, slots=True)
class _Paths:
    """``n`` walks: state and action of each of up to T steps, how many there were, where they began and ended."""

    game: Indices
    start_time: Indices
    state: Indices
    action: Indices
    length: Indices
    end: Indices


def play_groups(
    games: Games, solution: Solution, *, groups: int, group_size: int, seed: int, forest: bool = False
) -> Played:
    """Play ``groups`` task groups in every game.

    Args:
        games, solution: what is played, and its truth.
        groups: task groups a game.
        group_size: episodes a group, at least 2.
        seed: fixes every draw.
        forest: half of a group's episodes are suffixes: four (fewer in groups below eight) from an occurrence of its
            own root each, drawn evenly among the root's turns. They keep the root's deadline.
    """
    rng = np.random.default_rng([seed, groups, group_size, forest])
    roots = (group_size + 1) // 2 if forest else group_size
    group = np.repeat(np.arange(len(games) * groups), roots)
    start = np.zeros_like(group)
    paths = _walk(games, group // groups, start, start, rng)
    builder = TurnsBuilder()
    shown = _Shown(games, builder)
    for index, name in enumerate(group.tolist()):
        shown.add(paths, index, str(name), f"{index}", None)
    walked = [paths]
    if forest:
        suffixes = group_size - roots
        opened = max(suffixes // SUFFIXES, 1)
        parent = (np.arange(len(games) * groups)[:, None] * roots + np.arange(opened)).ravel()
        turn = (rng.random(len(parent)) * paths.length[parent]).astype(np.int64)
        each = np.repeat(np.arange(len(parent)), suffixes // opened)
        left = paths.state[parent, turn]
        branches = _walk(games, paths.game[parent][each], left[each], turn[each], rng)
        for index, place in enumerate(each.tolist()):
            whole = Parent(f"{parent[place]}", int(turn[place]))
            shown.add(branches, index, str(group[parent[place]]), f"{len(group) + index}", whole)
        walked.append(branches)
    return _annotate(builder.build(), walked, solution, games)


def _walk(games: Games, game: Indices, start: Indices, start_time: Indices, rng: np.random.Generator) -> _Paths:
    """Play one episode from each (state, time), in lock-step."""
    ends = games.move.shape[1] + WON
    choose = games.by_state(games.policy).cumsum(axis=-1)
    reach = games.move.cumsum(axis=-1)
    state = np.zeros((len(game), games.horizon), dtype=np.int64)
    action = np.zeros_like(state)
    length = np.zeros_like(game)
    at = start.copy()
    for step in range(games.horizon):
        row = np.flatnonzero((at < ends) & (start_time + step < games.horizon))
        if not len(row):
            break
        here, own = at[row], game[row]
        done = _draw(choose[own, here], rng)
        state[row, step], action[row, step] = here, done
        at[row] = _draw(reach[own, here, done], rng)
        length[row] += 1
    return _Paths(game, start_time, state, action, length, at)


def _draw(cumulative: FloatArray, rng: np.random.Generator) -> Indices:
    """One index a row, given cumulative probabilities."""
    drawn = rng.random(len(cumulative))[:, None] * cumulative[:, -1:]
    index: Indices = np.minimum((drawn >= cumulative).sum(axis=1), cumulative.shape[1] - 1)
    return index


class _Shown:
    """Writes walks into a builder as an agent would have recorded them."""

    def __init__(self, games: Games, builder: TurnsBuilder) -> None:
        policy = games.policy
        self._builder = builder
        self._sees = games.sees
        self._states = games.move.shape[1]
        self._nll = -np.log(policy)
        self._entropy = (policy * self._nll).sum(axis=-1)
        self._actions = [f"a{number}" for number in range(policy.shape[-1])]
        self._names = [f"o{number}" for number in range(policy.shape[1])]

    def add(self, paths: _Paths, index: int, task: str, episode: str, parent: Parent | None) -> None:
        """One episode."""
        length, game = int(paths.length[index]), int(paths.game[index])
        action = paths.action[index, :length]
        seen = self._sees[game, paths.state[index, :length]]
        end = int(paths.end[index])
        won = end == self._states + WON
        names: list[Any] = [self._names[one] for one in seen.tolist()]
        nothing = [0.0] * length
        self._builder.add_columns(
            task=task,
            episode=episode,
            parent=parent,
            states=names,
            actions=[self._actions[one] for one in action.tolist()],
            reward=[*nothing[1:], float(won)],
            penalty=nothing,
            nll=self._nll[game, seen, action].tolist(),
            entropy=self._entropy[game, seen].tolist(),
            valid=[True] * length,
            final_state="won" if won else "lost" if end == self._states + LOST else self._names[self._sees[game, end]],
            success=won,
            score=float(won),
        )


def _annotate(turns: Turns, walked: list[_Paths], solution: Solution, games: Games) -> Played:
    """The truth of every turn."""
    game = np.concatenate([np.repeat(paths.game, paths.length) for paths in walked])
    inside = [np.arange(paths.state.shape[1]) < paths.length[:, None] for paths in walked]
    state = np.concatenate([paths.state[own] for paths, own in zip(walked, inside, strict=True)])
    action = np.concatenate([paths.action[own] for paths, own in zip(walked, inside, strict=True)])
    time = turns.depth.astype(np.int64)
    q, value = solution.q[game, time, state, action], solution.value[game, time, state]
    won = turns.success[turns.episode]
    prior = games.policy[game, games.sees[game, state], action]
    ratio = np.where(won, q, 1 - q) / np.where(won, value, 1 - value)
    return Played(turns, game, state, time, action, q - value, value, np.log(prior * ratio))
