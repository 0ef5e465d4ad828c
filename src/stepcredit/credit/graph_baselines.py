"""Other credit from the trajectory graph: distance to the goal, merged edges, the best outcome within reach."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from stepcredit.core.credit import Credit, FloatArray, IntArray
from stepcredit.core.turns import Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.episode_level import NormalizeOption, Statistics, episode_credit
from stepcredit.credit.graph import Graph, distinct_pairs, propagate_back
from stepcredit.credit.groups import group_extremes, group_means, joint_groups, normalize_groups
from stepcredit.credit.method import Gamma, Range

_GOAL_RETURN = 10.0
"""Step return of a turn that reaches the goal."""


def graphgpo(
    turns: Turns,
    *,
    decay: Annotated[float, Range(0, 1, low_open=True), "step return kept per step from the goal (w)"] = 0.1,
    relative: Annotated[bool, "measure the distance a turn gained instead of the distance it reached"] = False,
    normalize: NormalizeOption = "mean_std",
) -> Credit:
    """Step returns from the shortest way to the goal: A = A^E + A^S.

    d(u) is the fewest turns from u to the goal over the edges of all episodes of the task, where the last turn of every
    successful episode leads to one shared goal node that no state key can equal. A state that cannot reach it has
    d = (largest finite d of the task) + 1; without any success all states are alike. The step return is 10·w^{d(s')},
    or 10·w^{d(s') − d(s) + 1} with ``relative``. A^S normalises it, less the turn's own penalty, among the turns of one
    (task, state), σ with divisor n − 1, singletons 0. A^E is ``grpo`` over turns. Rewards enter A^E only.

    Components: ``episode`` (A^E), ``step`` (A^S), ``step_return``.

    Source: GraphGPO and its released code, whose recorded numbers the tests hold.
    """
    distance_from, distance_to = _goal_distances(turns)
    exponent = distance_to - distance_from + 1 if relative else distance_to
    returns = _GOAL_RETURN * decay**exponent
    values = returns - turns.penalty
    step = normalize_groups(values, turns.state, normalize=normalize)
    episode = episode_credit(turns, normalize)
    parts = {"episode": episode, "step": step, "step_return": returns}
    return build_credit(turns, episode + step, parts, groups=describe_groups(turns.state, values))


def _goal_distances(turns: Turns) -> tuple[FloatArray, FloatArray]:
    """``[N]`` d(s) and ``[N]`` d(s') of every turn."""
    goal = int(max(turns.state.max(initial=-1), turns.next_state.max(initial=-1))) + 1
    target = turns.next_state.copy()
    target[turns.last[turns.success]] = goal
    # Closeness −d grows towards the goal, so that the nearest way is a maximum.
    closeness = np.full(goal + 1, -np.inf)
    closeness[goal] = 0.0
    edges = distinct_pairs(turns.state, target, goal + 1)
    distance = -propagate_back(*edges, closeness, lambda near: near - 1, np.maximum)
    reachable = np.where(np.isinf(distance), 0.0, distance)
    farthest = np.zeros(len(turns.task_names))
    np.maximum.at(farthest, turns.task, np.maximum(reachable[turns.state], reachable[target]))

    def known(node: IntArray) -> FloatArray:
        return np.where(np.isinf(distance[node]), farthest[turns.task] + 1, distance[node])

    return known(turns.state), known(target)


def salt(turns: Turns, *, normalize: NormalizeOption = "mean_std", statistics: Statistics = "turn") -> Credit:
    """Episode credit averaged over equal edges: rows of one (task, s, a, s') share the mean of their ``grpo`` credit.

    What good and bad episodes both do is thereby judged by all of them; a turn of its own kind keeps its episode's
    credit. Rows of one edge whose credit is equal keep it exactly.

    Components: ``episode`` (grpo), ``step`` (what merging changed).

    Source: SALT, its merged trajectory graph; options as in ``grpo``.
    """
    episode = episode_credit(turns, normalize, statistics)
    edge = joint_groups(turns.state, turns.action, turns.next_state)
    low, high = group_extremes(episode, edge, int(edge.max(initial=-1)) + 1)
    advantage = np.clip(group_means(episode, edge)[edge], low[edge], high[edge])
    parts = {"episode": episode, "step": advantage - episode}
    return build_credit(turns, advantage, parts, groups=describe_groups(edge, episode))


def rewardflow(turns: Turns, *, gamma: Gamma = 0.9, normalize: NormalizeOption = "mean_std") -> Credit:
    """Rewards from the best outcome within reach: A = A^E + A^S.

    V(u) = max(y(u), γ·max V over the successors of u), y(u) the mean outcome (1 success, 0 failure) of the episodes
    that end in u, 0 where none ends. A turn's step reward is V(s') − V(s); an episode's last turn keeps its environment
    reward. A^S normalises step rewards among the turns of one (task, state), σ with divisor n − 1, singletons 0. A^E is
    ``grpo`` over turns. Penalties enter A^E only.

    Components: ``episode`` (A^E), ``step`` (A^S), ``step_reward``.

    Source: RewardFlow (arXiv 2603.18859), decayed propagation, and its released code. Chosen: outcomes of one sink pool
    (the code keeps whichever it meets first).
    """
    graph = Graph.from_turns(turns)
    value = propagate_back(graph.pair_source, graph.pair_target, graph.outcome, lambda v: gamma * v, np.maximum)
    reward = value[graph.target] - value[graph.source]
    reward[turns.last] = turns.reward[turns.last]
    step = normalize_groups(reward, turns.state, normalize=normalize)
    episode = episode_credit(turns, normalize)
    parts = {"episode": episode, "step": step, "step_reward": reward}
    return build_credit(turns, episode + step, parts, groups=describe_groups(turns.state, reward))
