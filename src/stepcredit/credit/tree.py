"""Credit on physical trees: what followed from the same occurrence, not merely from an equal-looking state.

``N`` turns, ``E`` episodes (one leaf each), ``Z`` occurrences, ``S`` segments. A turn is an edge from the occurrence it
leaves to the one it reaches; a *split* is an occurrence that two or more turns leave, which only branches make. Every
row of a batch is one edge, so prefix turns that several paths share stand, and are credited, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import BoolArray, Credit, FloatArray, IntArray
from stepcredit.core.turns import NO_EPISODE, Turns
from stepcredit.credit.balance import balance_weights, worst_gap
from stepcredit.credit.diagnostics import build_credit, describe_groups, quantiles
from stepcredit.credit.groups import episode_returns, group_means, joint_groups, normalize_groups
from stepcredit.credit.method import Gamma, Range, Weight


@dataclass(frozen=True, slots=True)
class Levels:
    """The turns of a forest, deepest first, siblings side by side, so that values are backed up without recursion.

    Attributes:
        row: ``[N]`` rows by falling depth, then by occurrence.
        first: ``[Z]`` position in ``row`` of each internal occurrence's first child turn, in that order.
        level: position in ``first`` at which each depth starts, and the end.
        children: ``[N]`` turns that leave the row's occurrence, the row itself included.
        ends: ``[N]`` bool: the turn ends its path.
    """

    row: NDArray[np.int64]
    first: NDArray[np.int64]
    level: NDArray[np.int64]
    children: NDArray[np.int64]
    ends: BoolArray

    @classmethod
    def from_turns(cls, turns: Turns) -> Levels:
        """Order the turns of a batch."""
        row = np.lexsort((turns.occurrence, -turns.depth))
        first = np.flatnonzero(np.diff(turns.occurrence[row], prepend=-1))
        level = np.flatnonzero(np.diff(turns.depth[row[first]], prepend=-1))
        ends = np.zeros(len(turns), dtype=np.bool_)
        ends[turns.last] = True
        children = np.bincount(turns.occurrence)[turns.occurrence]
        return cls(row, first, np.append(level, len(first)), children, ends)

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Rows of one depth, deepest first, and where among them each occurrence's child turns start."""
        bound = np.append(self.first, len(self.row))
        for begin, end in zip(self.level[:-1], self.level[1:], strict=True):
            yield self.row[bound[begin] : bound[end]], bound[begin:end] - bound[begin]


def back_up(turns: Turns, levels: Levels, leaf: FloatArray, weight: FloatArray, gamma: float = 1.0) -> FloatArray:
    """``[N]`` value X of every turn: X = leaf[episode] for an episode's last turn, else γ·V(next occurrence).

    V(h) = Σ_c w_c X(c) over the child turns of h, whose weights sum to 1. A convex sum lies between its terms and V is
    held there, so that children of equal value give exactly that value.

    Args:
        leaf: ``[E]`` value of each path's end.
        weight: ``[N]`` weight of each turn among its siblings.
    """
    value = np.empty(int(turns.occurrence.max(initial=-1)) + 1)
    taken = leaf[turns.episode]
    for row, first in levels:
        inner = row[~levels.ends[row]]
        taken[inner] = gamma * value[turns.next_occurrence[inner]]
        x = taken[row]
        total = np.add.reduceat(weight[row] * x, first)
        held = np.clip(total, np.minimum.reduceat(x, first), np.maximum.reduceat(x, first))
        value[turns.occurrence[row[first]]] = held
    return taken


def terminal_values(turns: Turns, levels: Levels, returns: FloatArray) -> FloatArray:
    """``[N]`` V_term of the occurrence each turn reaches: R of the path at a leaf, else the mean R of its leaves."""
    leaves = leaf_counts(turns, levels)
    at_occurrence = np.bincount(turns.occurrence, weights=leaves)
    return back_up(turns, levels, returns, leaves / at_occurrence[turns.occurrence])


def leaf_counts(turns: Turns, levels: Levels) -> FloatArray:
    """``[N]`` number of paths that go through each turn."""
    count = np.empty(int(turns.occurrence.max(initial=-1)) + 1)
    leaves = np.ones(len(turns))
    for row, first in levels:
        inner = row[~levels.ends[row]]
        leaves[inner] = count[turns.next_occurrence[inner]]
        count[turns.occurrence[row[first]]] = np.add.reduceat(leaves[row], first)
    return leaves


@dataclass(frozen=True, slots=True)
class Segments:
    """Runs of turns that get one trajectory credit: rows side by side in one episode.

    A run starts at each child turn of a split and lasts to the next split or leaf; a root's turns above its first split
    form one run too, which is compared with those of the other roots of its task.

    Attributes:
        head: ``[S]`` first row of each run.
        run: ``[N]`` run of every row.
        mass: ``[S]`` number of turns.
        above_splits: ``[S]`` bool: a root's run above its first split.
        siblings: ``[S]`` runs with equal numbers are compared: children of one split, or roots of one task.
    """

    head: NDArray[np.int64]
    run: IntArray
    mass: NDArray[np.int64]
    above_splits: BoolArray
    siblings: IntArray

    @classmethod
    def from_turns(cls, turns: Turns, levels: Levels) -> Segments:
        """Cut a batch into runs. A branch's first turn always leaves a split, so no run crosses two episodes."""
        starts = levels.children >= 2
        starts[turns.start[:-1]] = True
        head = np.flatnonzero(starts)
        mass = np.diff(head, append=len(turns))
        above_splits = levels.children[head] < 2
        occurrences = int(turns.occurrence.max(initial=-1)) + 1
        siblings = joint_groups(np.where(above_splits, occurrences + turns.task[head], turns.occurrence[head]))
        run = np.repeat(np.arange(len(head), dtype=np.int32), mass)
        return cls(head, run, mass, above_splits, siblings)


def segment_credit(turns: Turns, levels: Levels, segments: Segments, returns: FloatArray) -> FloatArray:
    """``[S]`` A_traj of every run: its score less the mean score of its siblings, each counting once.

    Below a split S(h, c) = V_term(z) − mean P over the run, z its end. A root's run above its splits gets
    S_b = R_b − mean P over all the root's own turns, less the mean over all roots of the task, split or not.
    """
    reached = terminal_values(turns, levels, returns)[segments.head]
    credit = normalize_groups(reached - group_means(turns.penalty, segments.run), segments.siblings, normalize="mean")
    roots = np.flatnonzero(turns.episode_parent == NO_EPISODE)
    cost = group_means(turns.penalty, turns.episode)
    of_root = np.zeros(len(returns))
    of_root[roots] = normalize_groups((returns - cost)[roots], turns.episode_task[roots], normalize="mean")
    return np.where(segments.above_splits, of_root[turns.episode[segments.head]], credit)


def step_values(turns: Turns, levels: Levels, returns: FloatArray, gamma: float) -> FloatArray:
    """``[N]`` Q_i = T − P_i: T = R where the turn ends its path, else γ·V_γ(next occurrence).

    V_γ(h) is the mean T of the child turns of h.
    """
    return back_up(turns, levels, returns, 1 / levels.children, gamma) - turns.penalty


def tsbpo(
    turns: Turns,
    *,
    gamma: Gamma = 0.95,
    step_coef: Weight = 1.0,
    balance_cap: Annotated[float | None, Range(1), "largest factor on a short segment beside its siblings (C)"] = None,
) -> Credit:
    """Segment credit between siblings of a split, and a step term between turns of one state: A = A_traj + c·A_step.

    At a split h each child turn c starts a segment that runs to z, the next split or leaf. Its score is
    S(h, c) = mean over its turns of (V_term(z) − P_i), V_term(z) the mean return R over the leaves under z, and
    A_traj = S(h, c) − mean over the K children of h, each child counting once. Only the nearest split speaks: nothing
    adds up over ancestors. Turns above a root's first split fall back on roots: S_b = mean over the root's own turns of
    (R_b − P_i), less the mean over the task's roots. A turn in a segment never falls back, even when its credit is 0.

    A_step = Q_i − mean of Q over the turns of one (task, state), repeated actions included; a state left once gives 0.
    Q_i = T − P_i, T = R where the turn ends its path, else γ times the mean T of the next occurrence's child turns.

    No deviation divides anything, so credit is in reward units. ``balance_cap`` multiplies A_traj by
    ``balance_weights``: siblings against each other, and the task's turns above splits root against root.

    On chains there are no splits: A = (R − mean P, centred over the task's episodes) + c·A_step. Equal returns without
    penalties give A_traj = 0 exactly.

    Components: ``trajectory`` (A_traj, balanced), ``step`` (A_step), ``weight`` (the balance factor).

    Source: TSBPO, tree credit and segment balance (off, or C = 6).
    """
    levels = Levels.from_turns(turns)
    segments = Segments.from_turns(turns, levels)
    returns = episode_returns(turns)
    weight = np.ones(len(segments.head))
    if balance_cap is not None:
        weight = balance_weights(segments.mass, segments.siblings, balance_cap)
    trajectory = (weight * segment_credit(turns, levels, segments, returns))[segments.run]
    q = step_values(turns, levels, returns, gamma)
    step = normalize_groups(q, turns.state, normalize="mean")
    parts = {"trajectory": trajectory, "step": step, "weight": weight[segments.run]}
    return build_credit(
        turns,
        trajectory + step_coef * step,
        parts,
        groups=describe_groups(turns.state, q),
        segments=_describe(segments, weight),
    )


def _describe(segments: Segments, weight: FloatArray) -> dict[str, Any]:
    """Diagnostics of the segments: see the method's page for each."""
    below = ~segments.above_splits
    mass = segments.mass.astype(np.float64)
    return {
        "count": int(np.count_nonzero(below)),
        "coverage": float(mass[below].sum() / max(mass.sum(), 1)),
        "mass": quantiles(mass[below]),
        "coefficient": quantiles(weight),
        "worst_gap": worst_gap(mass, segments.siblings),
        "worst_gap_balanced": worst_gap(weight * mass, segments.siblings),
    }
