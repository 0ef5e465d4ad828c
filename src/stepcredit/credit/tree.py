"""Credit on physical trees: what followed from the same occurrence, not merely from an equal-looking state.

``N`` turns, ``E`` episodes (one leaf each), ``S`` segments, ``H`` sibling groups. A turn is an edge from the occurrence
it leaves to the one it reaches; a *split* is an occurrence that two or more turns leave, which only branches make.
Every row of a batch is one edge, so prefix turns that several paths share stand, and are credited, once.
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

BalanceCap = Annotated[float | None, Range(1, 1e6), "largest factor on a short segment beside its siblings (C)"]

NO_GROUP = -1
"""``below`` of a segment that ends at a leaf."""


@dataclass(frozen=True, slots=True)
class Segments:
    """A forest cut into runs of turns without a split inside. Rows of a segment stand side by side in one episode.

    A segment starts at each child turn of a split and lasts to the next split or leaf; a root's turns above its first
    split make one too. Values change along a segment by discounting only, so whatever is backed up is backed up from
    segment to segment: the work does not grow with the turns in between, and nothing recurses.

    Attributes:
        head, last: ``[S]`` first and last row.
        of_turn: ``[N]`` segment of every row.
        mass: ``[S]`` number of turns.
        above_splits: ``[S]`` bool: no split at or above it.
        siblings: ``[S]`` segments with equal numbers are compared: children of one split, or roots of one task.
        below: ``[S]`` sibling group that the segment leads to, ``NO_GROUP`` at a leaf.
        order: ``[S]`` segments by falling depth of their first turn, siblings side by side.
        level: bounds of equal depths in ``order``.
    """

    head: NDArray[np.int64]
    last: NDArray[np.int64]
    of_turn: IntArray
    mass: NDArray[np.int64]
    above_splits: BoolArray
    siblings: IntArray
    below: IntArray
    order: NDArray[np.int64]
    level: NDArray[np.int64]

    @classmethod
    def from_turns(cls, turns: Turns) -> Segments:
        """Cut a batch. A branch's first turn always leaves a split, so no segment crosses two episodes."""
        children = np.bincount(turns.occurrence)
        starts = children[turns.occurrence] >= 2
        starts[turns.start[:-1]] = True
        head = np.flatnonzero(starts)
        mass = np.diff(head, append=len(turns))
        last = head + mass - 1
        above_splits = children[turns.occurrence[head]] < 2
        siblings = joint_groups(np.where(above_splits, len(children) + turns.task[head], turns.occurrence[head]))
        # What follows a segment inside its episode starts at the split that the segment leads to.
        below = np.append(siblings[1:], NO_GROUP).astype(np.int32)
        below[last == turns.last[turns.episode[head]]] = NO_GROUP
        order = np.lexsort((siblings, -turns.depth[head]))
        level = np.flatnonzero(np.diff(turns.depth[head[order]], prepend=-1))
        return cls(
            head=head,
            last=last,
            of_turn=np.repeat(np.arange(len(head), dtype=np.int32), mass),
            mass=mass,
            above_splits=above_splits,
            siblings=siblings,
            below=below,
            order=order,
            level=np.append(level, len(order)),
        )

    @property
    def groups(self) -> int:
        """Number of sibling groups H."""
        return int(self.siblings.max(initial=-1)) + 1

    def levels(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Segments that start at one depth, deepest first, and where among them each sibling group starts."""
        for begin, end in zip(self.level[:-1], self.level[1:], strict=True):
            segment = self.order[begin:end]
            yield segment, np.flatnonzero(np.diff(self.siblings[segment], prepend=-1))


def back_up(
    turns: Turns, segments: Segments, leaf: FloatArray, weight: FloatArray, gamma: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Values from the leaves up: X of every turn, and V of every sibling group's split.

    X = leaf[episode] for an episode's last turn, else γ·V(next occurrence); V(h) = Σ_c w_c X(c) over the child turns of
    h, V = X where one turn leaves. A convex sum lies between its terms and V is held there, so that children of equal
    value give exactly that value.

    Args:
        leaf: ``[E]`` value of each path's end.
        weight: ``[S]`` weight of each segment among its siblings, which sum to 1.

    Returns:
        X ``[N]`` and V ``[H]`` (of no meaning for groups of roots).
    """
    value = np.zeros(segments.groups)
    end = leaf[turns.episode[segments.head]]
    fall = gamma ** (segments.mass - 1)
    for segment, first in segments.levels():
        inner = segment[segments.below[segment] != NO_GROUP]
        end[inner] = gamma * value[segments.below[inner]]
        x = fall[segment] * end[segment]
        total = np.add.reduceat(weight[segment] * x, first)
        held = np.clip(total, np.minimum.reduceat(x, first), np.maximum.reduceat(x, first))
        value[segments.siblings[segment[first]]] = held
    if gamma == 1:
        return end[segments.of_turn], value
    left = segments.last[segments.of_turn] - np.arange(len(turns))
    return gamma**left * end[segments.of_turn], value


def terminal_values(turns: Turns, segments: Segments, returns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """V_term, the mean return R over the leaves below: ``[S]`` where each segment ends, ``[H]`` at each split."""
    leaves = _leaf_counts(segments)
    in_group = np.bincount(segments.siblings, weights=leaves)
    reached, split = back_up(turns, segments, returns, leaves / in_group[segments.siblings])
    return reached[segments.head], split


def _leaf_counts(segments: Segments) -> FloatArray:
    """``[S]`` number of paths that run through each segment."""
    leaves, count = np.ones(len(segments.head)), np.zeros(segments.groups)
    for segment, first in segments.levels():
        inner = segment[segments.below[segment] != NO_GROUP]
        leaves[inner] = count[segments.below[inner]]
        count[segments.siblings[segment[first]]] = np.add.reduceat(leaves[segment], first)
    return leaves


def segment_credit(turns: Turns, segments: Segments, returns: FloatArray) -> FloatArray:
    """``[S]`` A_traj of every segment: its score less the mean score of its siblings, each counting once.

    Below a split S(h, c) = V_term(z) − mean P over the segment, z its end. A root's turns above its splits get
    S_b = R_b − mean P over all the root's own turns, less the mean over all roots of the task, split or not.
    """
    reached, _ = terminal_values(turns, segments, returns)
    score = reached - group_means(turns.penalty, segments.of_turn)
    credit = normalize_groups(score, segments.siblings, normalize="mean")
    roots = np.flatnonzero(turns.episode_parent == NO_EPISODE)
    cost = group_means(turns.penalty, turns.episode)
    of_root = np.zeros(len(returns))
    of_root[roots] = normalize_groups((returns - cost)[roots], turns.episode_task[roots], normalize="mean")
    return np.where(segments.above_splits, of_root[turns.episode[segments.head]], credit)


def step_values(turns: Turns, segments: Segments, returns: FloatArray, gamma: float) -> FloatArray:
    """``[N]`` Q_i = T − P_i: T = R where the turn ends its path, else γ·V_γ(next occurrence).

    V_γ(h) is the mean T of the child turns of h.
    """
    equal = 1 / np.bincount(segments.siblings)[segments.siblings]
    return back_up(turns, segments, returns, equal, gamma)[0] - turns.penalty


def tsbpo(
    turns: Turns,
    *,
    gamma: Gamma = 0.95,
    step_coef: Weight = 1.0,
    balance_cap: BalanceCap = None,
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
    segments = Segments.from_turns(turns)
    returns = episode_returns(turns)
    weight = np.ones(len(segments.head))
    if balance_cap is not None:
        weight = balance_weights(segments.mass, segments.siblings, balance_cap)
    trajectory = (weight * segment_credit(turns, segments, returns))[segments.of_turn]
    q = step_values(turns, segments, returns, gamma)
    step = normalize_groups(q, turns.state, normalize="mean")
    parts = {"trajectory": trajectory, "step": step, "weight": weight[segments.of_turn]}
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
