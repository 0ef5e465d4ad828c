"""A batch's physical trees by plain look-ups: docs/methods/tsbpo.md."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from reference.rows import Row, all_rows, mean, returns, rows_by_episode
from stepcredit.core.episodes import Episode

Place = tuple[str, int]
"""(episode, turn)."""


def place(row: Row) -> Place:
    return row.episode, row.turn


class Forest:
    """Who leaves the same occurrence, and which paths run through a turn."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.rows = all_rows(episodes)
        self.returns = returns(episodes)
        self.paths = {name: [place(row) for row in own[-1].path] for name, own in rows_by_episode(episodes).items()}
        self.roots = {episode.episode for episode in episodes if episode.parent is None}
        parents = {episode.episode: episode.parent.episode for episode in episodes if episode.parent is not None}
        self._children: dict[Hashable, list[Row]] = {}
        self._occurrence: dict[Place, Hashable] = {}
        for row in self.rows:
            root = row.episode
            while root in parents:
                root = parents[root]
            # The turns executed on the way, and the root they started from, are what makes an occurrence physical.
            occurrence = (root, tuple(place(member) for member in row.path[:-1]))
            self._occurrence[place(row)] = occurrence
            self._children.setdefault(occurrence, []).append(row)

    def siblings(self, row: Row) -> list[Row]:
        """The turns that leave the row's occurrence, itself included."""
        return self._children[self._occurrence[place(row)]]

    def followers(self, row: Row) -> list[Row]:
        """The turns that leave the occurrence the row reaches; none at a leaf."""
        root, executed = self._occurrence[place(row)]  # type: ignore[misc]
        return self._children.get((root, (*executed, place(row))), [])

    def leaf_returns(self, row: Row) -> list[float]:
        """R of every path that runs through the turn."""
        return [self.returns[name] for name, path in self.paths.items() if place(row) in path]

    def terminal(self, row: Row) -> float:
        """V_term of the occurrence the turn reaches."""
        return mean(self.leaf_returns(row))

    def segment_start(self, row: Row) -> Row | None:
        """The last turn on the path up to here that left a split; None above the first split."""
        starts = [member for member in row.path if len(self.siblings(member)) >= 2]
        return starts[-1] if starts else None
