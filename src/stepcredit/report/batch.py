"""A batch as the report sees it: episodes, the turn table, credit by several methods, and the state graph's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import Credit, FloatArray
from stepcredit.core.episodes import Episode
from stepcredit.core.errors import InputError, NumericsError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign_spelled
from stepcredit.credit.graph import Graph, propagation_degree
from stepcredit.credit.graph_values import solve_values
from stepcredit.credit.groups import episode_returns

METHODS = ("gigpo", "grpo", "hgpo", "gaca", "graft", "tsbpo")
"""Methods a report shows where none are named."""
VALUE_GAMMA = 0.99
"""Discount of the state values that colour the nodes of a graph."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One update's episodes, or one rollout file, and what was computed from all of them.

    Attributes:
        name: what the page calls it.
        episodes: in the order of the table's episodes.
        credits: credit by label, in the order in which the page offers it; at least one.
        values: ``[V]`` exact values of the states (``solve_values``, γ = 0.99).
        degree: ``[V]`` information propagation degree.
        returns: ``[E]`` return of each episode's whole physical path.
        warnings: sentences about the data.
        metrics: the update's line of ``metrics.jsonl``; empty for a rollout file.
    """

    name: str
    episodes: Sequence[Episode]
    turns: Turns
    credits: Mapping[str, Credit]
    graph: Graph
    values: FloatArray
    degree: NDArray[np.int64]
    returns: FloatArray
    warnings: Sequence[str]
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def task_of(self, task: int) -> tuple[str, str]:
        """Family and goal of a task, empty where its episodes do not say."""
        first = self.episodes[int(np.argmax(self.turns.episode_task == task))]
        return str(first.extra.get("family", "")), str(first.extra.get("goal", ""))


def make_batch(
    name: str,
    episodes: Sequence[Episode],
    methods: Sequence[str],
    *,
    given: Mapping[str, Credit] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Batch:
    """Compute everything a batch shows.

    A method that the rollouts do not suffice for is left out, with a warning that says why.

    Args:
        methods: names of the catalogue, with options after a colon: ``graft:lam=0.8``.
        given: credit computed elsewhere, by label; it comes before the methods.

    Raises:
        OptionError: a method or option that does not exist.
        InputError: no method is left.
    """
    turns = Turns.from_episodes(episodes)
    credits, warnings = dict(given or {}), []
    for method in dict.fromkeys(methods):
        try:
            credits[method] = assign_spelled(turns, method, "method")
        except (InputError, NumericsError) as error:
            warnings.append(f"{method} is left out: {error}")
    if not credits:
        raise InputError(f"No credit for {name!r}: {' '.join(warnings) or 'name at least one method.'}")
    graph = Graph.from_turns(turns)
    values, _ = solve_values(graph, VALUE_GAMMA, "count")
    warnings += _about(turns, next(iter(credits.values())))
    return Batch(
        name=name,
        episodes=episodes,
        turns=turns,
        credits=credits,
        graph=graph,
        values=values,
        degree=propagation_degree(graph, turns),
        returns=episode_returns(turns),
        warnings=warnings,
        metrics=metrics or {},
    )


def _about(turns: Turns, credit: Credit) -> list[str]:
    """What a reader should know about the data before trusting a picture of it."""
    found = list(credit.diagnostics.get("warnings", ()))
    won = np.bincount(turns.episode_task, weights=turns.success, minlength=len(turns.task_names))
    size = np.bincount(turns.episode_task, minlength=len(turns.task_names))
    same = int(np.count_nonzero((size >= 2) & ((won == 0) | (won == size))))
    if same:
        failed = int(np.count_nonzero((size >= 2) & (won == 0)))
        found.append(
            f"{same} of {len(size)} task groups have one outcome only ({failed} all failed, {same - failed} all "
            "succeeded): their episodes give each other no contrast."
        )
    visits = np.bincount(turns.state)
    alone = int(np.count_nonzero(visits == 1))
    if 2 * alone > len(turns):
        found.append(
            f"{alone / len(turns):.0%} of the turns stand in a state that was visited once: step-level groups have "
            "little to compare."
        )
    return found
