"""Turns as plain rows that travel through an engine beside their tokens, and the credit that travels back.

A row is a dict of plain values. Its keys are those of the rollout format (``docs/format.md``), an episode's and a
turn's in one flat dict, and

* ``turn``: 0-based index among the episode's own turns; ``turns``: how many there are;
* ``value``, ``hindsight``: what the methods ``gae`` and ``hcapo`` take for every turn, where something supplies it;
* ``episode_extra``, ``turn_extra``: what the format does not name.

Required are ``task``, ``episode``, ``turn``, ``turns``, ``observation``, ``action``, ``final_observation`` and
``success``. An engine may shuffle, repeat or drop rows: an episode counts once, whatever becomes of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson

from stepcredit.core.credit import Credit, FloatArray
from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import InputError
from stepcredit.core.parsing import parse_episode
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign, find_method
from stepcredit.rollouts.types import Rollout
from stepcredit.training.outcomes import played_out

Row = Mapping[str, Any]

_EPISODE_KEYS = ("task", "episode", "final_observation", "success", "score", "stop")
COLUMNS: Mapping[str, str] = MappingProxyType({"values": "value", "hindsight": "hindsight"})
"""Options of methods that are a column, and the key of a turn that holds its number; all of them finite."""

_TURN_KEYS = ("observation", "action", "reward", "penalty", "valid", "nll", "entropy", "state", *COLUMNS.values())
_REQUIRED = ("task", "episode", "turn", "turns", "observation", "action", "final_observation", "success")


@dataclass(frozen=True, slots=True)
class RowCredit:
    """Credit of the rows of a batch.

    Attributes:
        advantage: ``[R]``; NaN for rows without a turn, of episodes that ended in error, and of unscored turns.
        episodes: every episode of the batch, in order of first appearance, parents before their branches.
        credit: of the episodes that ended by themselves; None where there is none.
    """

    advantage: FloatArray
    episodes: tuple[Episode, ...]
    credit: Credit | None


def episode_rows(episode: Episode) -> list[dict[str, Any]]:
    """One row a turn."""
    parent = episode.parent
    shared = {
        "task": episode.task,
        "episode": episode.episode,
        "parent": None if parent is None else {"episode": parent.episode, "turn": parent.turn},
        "final_observation": episode.final_observation,
        "success": episode.success,
        "score": episode.score,
        "stop": episode.stop,
        "turns": len(episode.turns),
        "episode_extra": dict(episode.extra),
    }
    return [
        {
            **shared,
            "turn": index,
            "observation": turn.observation,
            "action": turn.action,
            "reward": turn.reward,
            "penalty": turn.penalty,
            "valid": turn.valid,
            "nll": turn.mean_nll,
            "entropy": turn.entropy,
            "state": turn.state,
            "turn_extra": dict(turn.extra),
        }
        for index, turn in enumerate(episode.turns)
    ]


def episodes_of_rows(rows: Sequence[Row | None]) -> list[Episode]:
    """The episodes that rows belong to, each once, parents before their branches.

    Args:
        rows: in any order; None stands for a row without a turn (padding). Equal rows count once.

    Raises:
        InputError: a row lacks a required key, an episode lacks a turn, or a value does not fit the format.
    """
    episodes = [_episode(name, own) for name, own in _by_episode(rows).items()]
    depth = {episode.episode: episode.parent for episode in episodes}
    return sorted(episodes, key=lambda episode: _generation(episode, depth))


def credit_rows(rows: Sequence[Row | None], method: str, options: Mapping[str, Any]) -> RowCredit:
    """Credit of every row by a method of the catalogue, over all episodes of the batch.

    Equals ``assign`` over the batch's episodes. Episodes that ended in error (``stop`` is ``error``) and branches of
    such are left out, since their outcome means nothing.

    Raises:
        OptionError, InputError, NumericsError: as ``assign`` and ``episodes_of_rows``.
    """
    episodes = episodes_of_rows(rows)
    advantage, credit = credit_episodes(episodes, method, options)
    places = [None if row is None else (row["episode"], row["turn"]) for row in rows]
    values = [np.nan if place is None else advantage[place[0]][place[1]] for place in places]
    return RowCredit(np.array(values, dtype=np.float64), tuple(episodes), credit)


def credit_episodes(
    episodes: Sequence[Episode], method: str, options: Mapping[str, Any]
) -> tuple[dict[str, FloatArray], Credit | None]:
    """Advantages by episode name, ``[turns]`` each, NaN where an episode is left out; and the credit they come from."""
    learnt = [one.episode for one in played_out([Rollout(episode, "", ()) for episode in episodes])]
    advantage = {episode.episode: np.full(len(episode.turns), np.nan) for episode in episodes}
    if not learnt:
        return advantage, None
    turns = Turns.from_episodes(learnt)
    credit = assign(turns, method, **{**options, **_columns(learnt, method)})
    for index, episode in enumerate(learnt):
        advantage[episode.episode] = credit.advantage[turns.start[index] : turns.start[index + 1]]
    return advantage, credit


def needed_columns(method: str) -> list[str]:
    """Options of a method that are a column of the batch."""
    return [name for name in find_method(method).options if name in COLUMNS]


def _columns(episodes: Sequence[Episode], method: str) -> dict[str, FloatArray]:
    """``[N]`` by option: the columns that a method takes, read off the turns.

    Raises:
        InputError: a turn has no number there.
    """
    return {
        option: np.array(
            [
                _number(turn, key, f"Turn {index} of episode {episode.episode!r}", method)
                for episode in episodes
                for index, turn in enumerate(episode.turns)
            ]
        )
        for option, key in ((option, COLUMNS[option]) for option in needed_columns(method))
    }


def _number(turn: Turn, key: str, place: str, method: str) -> float:
    value: Any = turn.extra.get(key)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise InputError(f"{place} has {value!r} as {key!r}; method {method!r} needs a finite number there.")
    return float(value)


def _by_episode(rows: Sequence[Row | None]) -> dict[str, dict[int, Row]]:
    """Episode → turn → row."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row is None:
            continue
        missing = [key for key in _REQUIRED if key not in row]
        if missing:
            raise InputError(
                f"A training row has no {missing[0]!r}; expected the keys {', '.join(_REQUIRED)} on every row."
            )
        found.setdefault(row["episode"], {}).setdefault(row["turn"], row)
    return found


def _episode(name: str, rows: Mapping[int, Row]) -> Episode:
    first = next(iter(rows.values()))
    absent = [turn for turn in range(first["turns"]) if turn not in rows]
    if absent or len(rows) != first["turns"]:
        got = f"no row for turn {absent[0]}" if absent else f"rows of {len(rows)} turns"
        raise InputError(f"Episode {name!r} has {got}; expected one for each of its {first['turns']} turns.")
    record = {
        **first.get("episode_extra", {}),
        **{key: first[key] for key in _EPISODE_KEYS if key in first},
        "parent": first.get("parent"),
        "turns": [_turn(rows[turn]) for turn in range(first["turns"])],
    }
    return parse_episode(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY), f"episode {name!r}")


def _turn(row: Row) -> dict[str, Any]:
    present = {key: row[key] for key in _TURN_KEYS if row.get(key) is not None}
    return {**row.get("turn_extra", {}), **present}


def _generation(episode: Episode, parents: Mapping[str, Any]) -> int:
    """0 for a root, 1 for its branches, and so on; parents that are missing or go in circles are found by ``Turns``."""
    generation, parent = 0, episode.parent
    while parent is not None and generation <= len(parents):
        generation, parent = generation + 1, parents.get(parent.episode)
    return generation
