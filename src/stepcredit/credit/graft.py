"""GRAFT: differences of exact state values on the trajectory graph."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import numpy as np

from stepcredit.core.credit import Credit, FloatArray, IntArray
from stepcredit.core.turns import Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups, quantiles
from stepcredit.credit.episode_level import episode_credit
from stepcredit.credit.graph import Graph, propagation_degree
from stepcredit.credit.graph_hops import HopMean, hop_sums
from stepcredit.credit.graph_values import ValueWeighting, solve_values
from stepcredit.credit.groups import EPSILON, ROUNDING, group_sizes, normalize_groups
from stepcredit.credit.matching import Matcher, match_states
from stepcredit.credit.method import Gamma, Range, Weight

DEAD_ZONE = 1e-9
"""Largest |A| of a node's only edge that counts as no advantage: the sign of rounding noise is not credit."""

Lam = Annotated[float, Range(0, 1), "share λ of each further hop in Graph GAE"]


def graft(
    turns: Turns,
    *,
    gamma: Gamma = 0.99,
    lam: Lam = 0.95,
    gae: Annotated[bool, "look ahead over further hops; false: the one-step difference δ"] = True,
    value_weighting: Annotated[ValueWeighting, "a state's value averages visits, or distinct actions"] = "count",
    hop_mean: Annotated[HopMean, "a hop averages every turn, or each (state, action, next state) once"] = "raw",
    normalize: Annotated[Literal["node", "none"], "normalise among the turns that leave one state, or not"] = "node",
    episode_weight: Weight = 0.0,
    matcher: Matcher = "exact",
    threshold: Annotated[float, Range(0, 1), "similarity from which two states are one node (text, embedding)"] = 0.9,
) -> Credit:
    """Value differences on the graph that a task's episodes weave together.

    With V from ``solve_values`` (y = 1 at the end of a successful episode, 0 at the end of another):

        δ_i = γV(s'_i) − V(s_i)
        A_i = δ_i + Σ_{k=1}^{T−t} (γλ)^k Ā_k(i),   Ā_k(i) the mean δ of the edges k hops on from s'_i (``hop_sums``)

    t is the turn's 0-based index and T its episode's number of turns. A is normalised among the turns that leave one
    state, (A − μ)/(σ + ε), divisor n − 1; a state left once gives A/(|A| + ε), its sign, and 0 for |A| ≤ 1e-9. Rewards
    do not enter: the outcome is ``success``. ``episode_weight`` adds w·A^E (``grpo``); the paper has no such term.
    ``matcher`` lets similar states share a node, final states included (``matching.match_states``).

    Under ``value_weighting="count"`` the δ of the turns that leave a state sum to zero, so Ā_k = 0 and A = δ except
    next to states where some episodes end and others go on; ``"action"`` or ``hop_mean="distinct"`` lift that.

    Where no episode succeeded every V is 0 and all credit exactly 0.

    Components: ``step`` (A after normalisation), ``delta`` (δ), ``value`` (V(s)), ``episode`` (where weighted).

    Source: GRAFT, eq. 6 (V by counts; its text says uniform over actions) and the Graph GAE that follows it. Chosen,
    where the paper is silent: pooled outcomes of one sink, sinks that other episodes leave again, n − 1, the dead zone.
    """
    graph = Graph.from_turns(turns, _nodes(turns, matcher, threshold))
    values, residual = solve_values(graph, gamma, value_weighting)
    delta = _differences(gamma * values[graph.target], values[graph.source])
    raw = delta
    if gae:
        remaining = np.diff(turns.start)[turns.episode] - turns.turn
        collapsed = value_weighting == "count" and hop_mean == "raw"
        raw = delta + hop_sums(
            graph, delta, discount=gamma * lam, remaining=remaining, hop_mean=hop_mean, collapsed=collapsed
        )
    step = _normalize_nodes(raw, graph.source) if normalize == "node" else raw
    parts = {"step": step, "delta": delta, "value": values[graph.source]}
    advantage = step
    if episode_weight:
        parts["episode"] = episode_credit(turns, "mean_std")
        advantage = step + episode_weight * parts["episode"]
    left = graph.departures > 0
    return build_credit(
        turns,
        advantage,
        parts,
        groups=describe_groups(graph.source, raw),
        propagation_degree=quantiles(propagation_degree(graph, turns)[left].astype(np.float64)),
        sinks_with_departures=int(np.count_nonzero(left & (graph.endings > 0))),
        solver_residual=residual,
    )


def _nodes(turns: Turns, matcher: Literal["exact", "text", "embedding"], threshold: float) -> tuple[IntArray, IntArray]:
    """``[N]`` node each turn leaves and ``[N]`` node it reaches; final states are matched like visited ones."""
    if matcher == "exact":
        return turns.state, turns.next_state
    last, count = turns.last, len(turns)
    visits = dataclasses.replace(
        turns,
        task=np.append(turns.task, turns.episode_task),
        episode=np.append(turns.episode, np.arange(len(last), dtype=np.int32)),
        turn=np.append(turns.turn, turns.turn[last] + 1),
        state=np.append(turns.state, turns.next_state[last]),
    )
    node = match_states(visits, matcher, threshold)
    target = node[1 : count + 1].copy()
    target[last] = node[count:]
    return node[:count], target


def _differences(ahead: FloatArray, here: FloatArray) -> FloatArray:
    """``[N]`` ahead − here, exactly 0 where they agree up to the rounding of the solve (values are never negative)."""
    difference = ahead - here
    difference[np.abs(difference) <= ROUNDING * np.maximum(ahead, here)] = 0.0
    return difference


def _normalize_nodes(advantage: FloatArray, source: IntArray) -> FloatArray:
    """``[N]`` normalised among the turns that leave one node; the sign where there is one."""
    sign = np.where(np.abs(advantage) <= DEAD_ZONE, 0.0, advantage / (np.abs(advantage) + EPSILON))
    alone = group_sizes(source)[source] == 1
    return np.where(alone, sign, normalize_groups(advantage, source, normalize="mean_std"))
