"""Episodes as plain rows with plain loops: what every slow reference starts from. Nothing here uses ``Turns``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence

from stepcredit.core.episodes import Episode

EPSILON = 1e-6


@dataclasses.dataclass(frozen=True)
class Row:
    """One turn. ``path`` holds every row of the physical path from the root's start up to this one, itself last."""

    task: str
    episode: str
    turn: int
    state: str
    next_state: str
    action: str
    reward: float
    penalty: float
    nll: float | None
    entropy: float | None
    step_rewards: tuple[float, ...]
    path: tuple[Row, ...] = ()

    @property
    def history(self) -> tuple[str, ...]:
        """State keys along the path, the current one last."""
        return tuple(row.state for row in self.path)

    def step_return(self, gamma: float) -> float:
        """ĝ_t, term by term from its definition."""
        return math.fsum(gamma**k * reward for k, reward in enumerate(self.step_rewards))


def rows_by_episode(episodes: Sequence[Episode]) -> dict[str, list[Row]]:
    """Each episode's own rows, in file order; parents are looked up wherever they stand."""
    by_name = {episode.episode: episode for episode in episodes}
    done: dict[str, list[Row]] = {}
    for episode in episodes:
        lineage = [episode]
        while lineage[-1].parent is not None and lineage[-1].episode not in done:
            lineage.append(by_name[lineage[-1].parent.episode])
        for member in reversed(lineage):
            if member.episode not in done:
                done[member.episode] = _own_rows(member, done)
    return {episode.episode: done[episode.episode] for episode in episodes}


def _own_rows(episode: Episode, done: dict[str, list[Row]]) -> list[Row]:
    path: tuple[Row, ...] = ()
    if episode.parent is not None:
        path = done[episode.parent.episode][episode.parent.turn].path[:-1]
    rows = []
    for index, turn in enumerate(episode.turns):
        last = index + 1 == len(episode.turns)
        row = Row(
            task=episode.task,
            episode=episode.episode,
            turn=index,
            state=turn.observation if turn.state is None else turn.state,
            next_state=episode.final_observation if last else episode.turns[index + 1].state_key,
            action=turn.action,
            reward=turn.reward,
            penalty=turn.penalty,
            nll=turn.mean_nll,
            entropy=turn.entropy,
            step_rewards=tuple(later.reward for later in episode.turns[index:]),
        )
        row = dataclasses.replace(row, path=(*path, row))
        path = row.path
        rows.append(row)
    return rows


def all_rows(episodes: Sequence[Episode]) -> list[Row]:
    """Every row in file order."""
    return [row for rows in rows_by_episode(episodes).values() for row in rows]


def path_return(last: Row) -> float:
    """R of the path that ends in this row."""
    return math.fsum(row.reward for row in last.path)


def returns(episodes: Sequence[Episode]) -> dict[str, float]:
    """R of each episode: rewards along its whole physical path."""
    return {name: path_return(rows[-1]) for name, rows in rows_by_episode(episodes).items()}


def normalise(values: Sequence[float], kind: str, ddof: int = 1) -> list[float]:
    """(x − μ) or (x − μ)/(σ + ε); exact zeros where all are equal up to the rounding of a sum."""
    if max(values) - min(values) <= 1e-13 * max(map(abs, values)):
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    if kind == "mean":
        return [value - mean for value in values]
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof))
    return [(value - mean) / (deviation + EPSILON) for value in values]


def by_key(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> list[list[int]]:
    """Indices of the rows that share a key, group by group."""
    groups: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(key(row), []).append(index)
    return list(groups.values())


def within(
    rows: Sequence[Row],
    values: Sequence[float],
    key: Callable[[Row], Hashable],
    kind: str,
    ddof: int = 1,
) -> list[float]:
    """``normalise`` within the groups of a key, back in row order."""
    result = [0.0] * len(rows)
    for group in by_key(rows, key):
        for index, value in zip(group, normalise([values[i] for i in group], kind, ddof), strict=True):
            result[index] = value
    return result


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return math.fsum(values) / len(values)
