"""One task group as the page reads it: episodes column by column, the state graph and its layout, the tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray
from stepcredit.core.turns import NO_EPISODE, Turns
from stepcredit.credit.groups import group_means, joint_groups
from stepcredit.report.batch import Batch
from stepcredit.report.figures import significant
from stepcredit.report.forest import Forest
from stepcredit.report.layout import layered_layout
from stepcredit.report.text import StringTable

MOST_EPISODES = 96
"""Episodes of one task group that a page holds, parents before branches."""
MOST_NODES = 1_500
"""States of one task group that a page draws: those visited most."""
NOT_DRAWN = -1
"""Node of a state that is not drawn."""


def describe_group(batch: Batch, forest: Forest | None, task: int) -> dict[str, Any]:
    """The payload of one task group; its graph is that of all its episodes, also of those not shown."""
    turns = batch.turns
    members = np.flatnonzero(turns.episode_task == task)
    shown = _first_by_generation(turns, members)
    rows = np.flatnonzero(turns.task == task)
    texts = StringTable()
    states = np.unique(np.concatenate([turns.state[rows], turns.next_state[rows]]))
    nodes, place = _drawn(batch, states)
    family, goal = batch.task_of(task)
    group = {
        "task": texts[turns.task_names[task]],
        "family": texts[family],
        "goal": texts[goal],
        "members": len(members),
        "states": len(states),
        "graph": _graph(batch, rows, nodes, place, texts),
        "episodes": [_episode(batch, episode, shown, place, texts) for episode in shown],
        "tree": None if forest is None else forest.describe(shown),
    }
    return {**group, "texts": texts.texts()}


def _first_by_generation(turns: Turns, members: NDArray[np.int64]) -> list[int]:
    """At most ``MOST_EPISODES``: roots first, then branches of roots, …, so that no branch lacks its parent."""
    generation = []
    for member in members.tolist():
        at, count = member, 0
        while (at := int(turns.episode_parent[at])) != NO_EPISODE:
            count += 1
        generation.append(count)
    order = np.argsort(generation, kind="stable")[:MOST_EPISODES]
    return sorted(members[order].tolist())


def _drawn(batch: Batch, states: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Those of the states that are drawn, ascending, and ``[V]`` place of every state of the batch among them."""
    seen = (batch.graph.departures + batch.graph.endings)[states]
    nodes = np.sort(states[np.argsort(-seen, kind="stable")[:MOST_NODES]])
    place = np.full(len(batch.graph), NOT_DRAWN)
    place[nodes] = np.arange(len(nodes))
    return nodes, place


def _graph(
    batch: Batch, rows: NDArray[np.int64], nodes: NDArray[np.int32], place: NDArray[np.int64], texts: StringTable
) -> dict[str, Any]:
    """Nodes, drawn edges (distinct state pairs) and choices (distinct state pairs with their action)."""
    turns, graph = batch.turns, batch.graph
    rows = rows[(place[turns.state[rows]] != NOT_DRAWN) & (place[turns.next_state[rows]] != NOT_DRAWN)]
    source, target = place[turns.state[rows]].astype(np.int32), place[turns.next_state[rows]].astype(np.int32)
    pair = joint_groups(source, target)
    choice = joint_groups(pair, turns.action[rows])
    one, chosen = _first_rows(pair), _first_rows(choice)
    count = np.bincount(pair)
    starts = turns.state[turns.start[:-1]][turns.episode_parent == NO_EPISODE]
    starts = place[np.intersect1d(starts, nodes)].astype(np.int32)
    spot = layered_layout(len(nodes), source[one], target[one], np.sqrt(count), starts)
    credits = [credit.advantage[rows] for credit in batch.credits.values()]
    return {
        "nodes": {
            "text": [texts[turns.state_names[node]] for node in nodes],
            "x": significant(spot[:, 0]),
            "y": significant(spot[:, 1]),
            "value": significant(batch.values[nodes]),
            "visits": graph.departures[nodes].tolist(),
            "endings": graph.endings[nodes].tolist(),
            "wins": np.rint(graph.endings[nodes] * graph.outcome[nodes]).astype(int).tolist(),
            "degree": batch.degree[nodes].tolist(),
        },
        "edges": {
            "source": source[one].tolist(),
            "target": target[one].tolist(),
            "count": count.tolist(),
            "credit": [significant(_scored_means(values, pair)) for values in credits],
        },
        "choices": {
            "edge": pair[chosen].tolist(),
            "action": [texts[turns.action_names[action]] for action in turns.action[rows[chosen]]],
            "count": np.bincount(choice).tolist(),
            "credit": [significant(_scored_means(values, choice)) for values in credits],
        },
    }


def _first_rows(group: NDArray[np.int32]) -> NDArray[np.int64]:
    """First row of every group of a dense numbering."""
    first: NDArray[np.int64] = np.unique(group, return_index=True)[1]
    return first


def _scored_means(values: FloatArray, group: NDArray[np.int32]) -> FloatArray:
    """``[G]`` mean over the scored rows of each group; NaN where none is scored."""
    scored = ~np.isnan(values)
    mean = group_means(values[scored], group[scored], int(group.max(initial=-1)) + 1)
    mean[np.bincount(group[scored], minlength=len(mean)) == 0] = np.nan
    return mean


def _episode(
    batch: Batch, index: int, shown: list[int], place: NDArray[np.int64], texts: StringTable
) -> dict[str, Any]:
    episode, turns = batch.episodes[index], batch.turns
    own = slice(int(turns.start[index]), int(turns.start[index + 1]))
    parent = int(turns.episode_parent[index])
    return {
        "name": texts[episode.episode],
        "parent": None if parent == NO_EPISODE else shown.index(parent),
        "parentTurn": episode.parent.turn if episode.parent else None,
        "success": episode.success,
        "score": episode.score,
        "stop": texts[episode.stop or ""],
        "error": texts[str(episode.extra.get("error", ""))],
        "return": significant(batch.returns[index : index + 1])[0],
        "final": texts[episode.final_observation],
        "state": place[turns.state[own]].tolist(),
        "end": int(place[turns.next_state[own]][-1]),
        "observation": [texts[turn.observation] for turn in episode.turns],
        "action": [texts[turn.action] for turn in episode.turns],
        "response": [texts[str(turn.extra.get("response", ""))] for turn in episode.turns],
        "invalid": [None if turn.valid else texts[str(turn.extra.get("invalid", ""))] for turn in episode.turns],
        "reward": significant([turn.reward for turn in episode.turns]),
        "penalty": significant([turn.penalty for turn in episode.turns]),
        "nll": significant(turns.nll[own]),
        "entropy": significant(turns.entropy[own]),
        "credit": [
            {
                "advantage": significant(credit.advantage[own]),
                "parts": {name: significant(values[own]) for name, values in credit.components.items()},
            }
            for credit in batch.credits.values()
        ],
    }
