"""The physical tree of a task group as a picture: one row an episode, branches below the turn they left from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepcredit.core.turns import NO_EPISODE, Turns
from stepcredit.credit.groups import episode_returns, group_means
from stepcredit.credit.tree import NO_GROUP, Segments, segment_credit, terminal_values
from stepcredit.report.figures import significant


def episode_rows(turns: Turns, episodes: Sequence[int]) -> dict[int, int]:
    """Row of every episode: each root is followed by its branches, the one that left latest first.

    A branch's connector then crosses no turn: every row between it and its parent begins further right.

    Args:
        episodes: the episodes drawn, parents included.
    """
    children: dict[int, list[int]] = {}
    for episode in episodes:
        children.setdefault(int(turns.episode_parent[episode]), []).append(episode)
    rows: dict[int, int] = {}
    pending = children.get(NO_EPISODE, [])[::-1]
    while pending:
        episode = pending.pop()
        rows[episode] = len(rows)
        # The last one pushed is drawn next; of branches that left together, the first of the file.
        pending += sorted(children.get(episode, ()), key=lambda one: (int(turns.depth[turns.start[one]]), -one))
    return rows


class Forest:
    """Segments, their scores and credit over a whole batch; ``describe`` picks out one task group.

    For the roots' turns above their first split: score S_b and credit of the root fallback (see ``tsbpo``).
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._segments = segments = Segments.from_turns(turns)
        returns = episode_returns(turns)
        self._reached, self._split = terminal_values(turns, segments, returns)
        self._credit = segment_credit(turns, segments, returns)
        own = self._reached - group_means(turns.penalty, segments.of_turn)
        root = (returns - group_means(turns.penalty, turns.episode))[turns.episode[segments.head]]
        self._score = np.where(segments.above_splits, root, own)

    def describe(self, episodes: Sequence[int]) -> dict[str, Any]:
        """Columns of segments and of splits; an episode is named by its place in ``episodes``."""
        turns, segments = self._turns, self._segments
        rows = episode_rows(turns, episodes)
        place = {episode: number for number, episode in enumerate(episodes)}
        chosen = [s for s, head in enumerate(segments.head) if int(turns.episode[head]) in place]
        head, last = segments.head[chosen], segments.last[chosen]
        inner = [s for s in chosen if segments.below[s] != NO_GROUP]
        return {
            "rows": [rows[episode] for episode in episodes],
            "depth": int(turns.depth[last].max(initial=0)) + 1,
            "segments": {
                "episode": [place[int(e)] for e in turns.episode[head]],
                "from": turns.depth[head].tolist(),
                "to": (turns.depth[last] + 1).tolist(),
                "turn": turns.turn[head].tolist(),
                "score": significant(self._score[chosen]),
                "credit": significant(self._credit[chosen]),
                "reached": significant(self._reached[chosen]),
                "root": segments.above_splits[chosen].tolist(),
            },
            "splits": {
                "row": [rows[int(turns.episode[segments.last[s]])] for s in inner],
                "at": [int(turns.depth[segments.last[s]]) + 1 for s in inner],
                "value": significant(self._split[segments.below[inner]]),
                "children": np.bincount(segments.siblings)[segments.below[inner]].tolist(),
            },
        }
