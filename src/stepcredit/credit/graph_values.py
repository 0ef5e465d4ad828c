"""State values on the trajectory graph, solved exactly."""

from __future__ import annotations

from typing import Literal

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.credit.graph import Graph, need_scipy
from stepcredit.credit.groups import group_sizes, joint_groups

ValueWeighting = Literal["count", "action"]


def solve_values(graph: Graph, gamma: float, weighting: ValueWeighting) -> tuple[FloatArray, float]:
    """``[V]`` V(u) = (Σ y over the endings in u + γ Σ V(v) over the departures u → v) / (endings + departures).

    That is ``weighting="count"``: every visit counts once. ``"action"``: V(u) is the uniform mean over the distinct
    actions taken in u of γ·mean V over that action's targets; all endings in u together are one more action, worth
    mean y. A pure sink is worth its mean y, a state from which only failures can be reached exactly 0.

    The system (I − γP)V = b is strictly diagonally dominant for γ < 1; for γ = 1 it is regular, because every state
    leads to an ending. One sparse LU of the whole batch solves it; its blocks, the tasks, do not fill into one another.

    Returns:
        The values and the largest absolute residual of the system.
    """
    need_scipy()
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import splu

    share, ending_share = _visit_shares(graph, weighting)
    count = len(graph)
    constant = ending_share * graph.outcome
    system = eye_array(count, format="csc") - csc_array(
        (gamma * share, (graph.source, graph.target)), shape=(count, count)
    )
    options = {"SymmetricMode": True}
    values = splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve(constant)
    return values, float(np.abs(system @ values - constant).max(initial=0.0))


def _visit_shares(graph: Graph, weighting: ValueWeighting) -> tuple[FloatArray, FloatArray]:
    """``[N]`` share of its source's value a raw edge stands for, and ``[V]`` the share of the node's endings."""
    if weighting == "count":
        visits = np.maximum(graph.departures + graph.endings, 1)
        return 1 / visits[graph.source], graph.endings / visits
    choice = joint_groups(graph.source, graph.action)
    repeats = group_sizes(choice)[choice]
    actions = np.rint(np.bincount(graph.source, weights=1 / repeats, minlength=len(graph)))
    ends = graph.endings > 0
    branches = np.maximum(actions + ends, 1)
    return 1 / (branches[graph.source] * repeats), ends / branches
