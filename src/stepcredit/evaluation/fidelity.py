"""Fidelity: how close credit comes to the exact advantage A^π, turn by turn and as a policy gradient.

``N`` turns, ``B`` blocks: independent replications, each of several task groups. Every measure is one number a block,
so that an interval over blocks is an interval over everything that is random. Credit only matters up to a positive
scale (the learning rate takes it), so errors are measured after the best one,

    c = Σ Â·A / Σ Â²   over the turns of a block,   0 where Â says nothing or the opposite,

and divided by the mean of A²: 0 is exact, 1 is what saying nothing at all would cost.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import BoolArray, FloatArray
from stepcredit.credit.groups import group_means, joint_groups
from stepcredit.evaluation.fidelity_games import Games, Solution
from stepcredit.evaluation.fidelity_rollouts import Played

Numbers = NDArray[np.integer]

NOTICEABLE = 0.01
"""Least |A|, in probability to win, of the turns whose sign is judged."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What credit is held against.

    Attributes:
        advantage: ``[N]`` A^π.
        second: ``[N]`` the same where A^π is exact; where it was estimated, a second estimate independent of the
            first, so that products of both carry no noise of their own.
        group: ``[N]`` task group of each turn.
        block: ``[N]`` block of each turn, 0 … B − 1.
    """

    advantage: FloatArray
    second: FloatArray
    group: Numbers
    block: Numbers

    @classmethod
    def of(cls, played: Played) -> Truth:
        """Exact truth; a game is a block."""
        return cls(played.advantage, played.advantage, played.turns.task, played.game)

    @property
    def mean_square(self) -> FloatArray:
        """``[B]`` mean of A²."""
        return group_means(self.advantage * self.second, self.block)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Measures of one method, ``[B]`` each.

    Attributes:
        scale: best scale c.
        error: mean (c·Â − A)² over the mean of A².
        bias: what is wrong with the expected credit, which more groups would not average out: mean of
            (c'·E[Â | s, t, a] − A)² over the mean of A², at the scale c' that makes it least.
        variance: mean of c'²·Var[Â | s, t, a] over the mean of A², at the same scale.
        sign: share of noticeable turns whose sign Â has; one half for Â = 0.
        rank: Spearman's correlation of Â and A within a task group, mean over groups; 0 where Â says nothing.
        cosine: of the gradient estimated from one task group with the exact one, mean over groups; 0 for no gradient.
        direction: cosine of the mean gradient over the block's groups with the exact one: what is left when noise
            averages out.
    """

    scale: FloatArray
    error: FloatArray
    bias: FloatArray
    variance: FloatArray
    sign: FloatArray
    rank: FloatArray
    cosine: FloatArray
    direction: FloatArray


MEASURES = tuple(one.name for one in fields(Fidelity))


def measure(estimate: FloatArray, played: Played, games: Games, solution: Solution) -> Fidelity:
    """All measures of credit for rollouts of solved games.

    Args:
        estimate: ``[N]`` credit Â of every turn, finite.
        played: the rollouts, with the exact advantage.
        games, solution: what was played.
    """
    truth = Truth.of(played)
    scale = best_scale(estimate, truth)
    at = (played.game, played.time, played.state, played.action)
    cell = np.ravel_multi_index(at, (len(games), games.horizon, *games.move.shape[1:3]))
    bias, variance = bias_and_variance(estimate, truth, cell)
    gradients = group_gradients(estimate, played, games)
    of_group = np.zeros(len(gradients), dtype=np.int64)
    of_group[truth.group] = truth.block
    exact = solution.gradient.reshape(len(games), -1)
    mean = np.stack([group_means(column, of_group, len(games)) for column in gradients.T], axis=-1)
    return Fidelity(
        scale=scale,
        error=relative_error(scale[truth.block] * estimate, truth),
        bias=bias,
        variance=variance,
        sign=sign_agreement(estimate, truth),
        rank=rank_correlation(estimate, truth),
        cosine=group_means(cosines(gradients, exact[of_group]), of_group, len(games)),
        direction=cosines(mean, exact),
    )


def best_scale(estimate: FloatArray, truth: Truth) -> FloatArray:
    """``[B]`` c = max(Σ Â·A / Σ Â², 0), 0 where Â = 0 throughout."""
    both = np.bincount(truth.block, weights=estimate * (truth.advantage + truth.second) / 2)
    own = np.bincount(truth.block, weights=estimate * estimate)
    return np.maximum(np.divide(both, own, out=np.zeros_like(both), where=own > 0), 0.0)


def relative_error(estimate: FloatArray, truth: Truth) -> FloatArray:
    """``[B]`` mean (Â − A)² over the mean of A², Â taken as it is."""
    wrong = (estimate - truth.advantage) * (estimate - truth.second)
    return _share(group_means(wrong, truth.block), truth.mean_square)


def bias_and_variance(estimate: FloatArray, truth: Truth, cell: Numbers) -> tuple[FloatArray, FloatArray]:
    """``[B]`` each: how wrong the expected credit is, and how noisy credit is, at the scale that fits on average.

    With m = E[Â | cell], v = Var[Â | cell] and sums over turns, c' = max(Σ m·A / Σ m², 0) and

        bias = Σ (c'm − A)² / Σ A²,   variance = c'²·Σ v / Σ A².

    Both together make the error at its own best scale: 1 − (1 − bias)²/(1 − bias + variance). With S_g and n_g the sum
    and number of a cell's estimates in task group g, groups being independent,

        m² is estimated without bias by (S² − Σ_g S_g²)/(n² − Σ_g n_g²),   S = Σ_g S_g,  n = Σ_g n_g,

    so that noise never passes for bias (which may come out below 0 instead). Cells met in one group alone are left out.
    Where the expected credit has nothing of A, bias is 1 and variance, which no scale could make count, 0.

    Args:
        estimate: ``[N]`` credit.
        truth: exact.
        cell: ``[N]`` number of each turn's (game, time, state, action); turns of one cell have one A.
    """
    cell = joint_groups(cell)
    pair = joint_groups(cell, truth.group)
    of_pair = np.zeros(int(pair.max(initial=-1)) + 1, dtype=np.int64)
    of_pair[pair] = cell
    size, total = np.bincount(pair).astype(np.float64), np.bincount(pair, weights=estimate)
    n, s = np.bincount(cell).astype(np.float64), np.bincount(cell, weights=estimate)
    pairs = n**2 - np.bincount(of_pair, weights=size**2)
    met = pairs > 0.5
    square = np.divide(s**2 - np.bincount(of_pair, weights=total**2), pairs, out=np.zeros_like(s), where=met)
    own = group_means(truth.advantage, cell)
    noise = np.bincount(cell, weights=estimate**2) / n - square
    block = np.zeros(len(n), dtype=np.int64)
    block[cell] = truth.block
    count = int(truth.block.max(initial=-1)) + 1
    parts = (square, own * s / n, own**2, noise)
    mm, ma, aa, vv = (_sums(met * n * part, block, count) for part in parts)
    scale = np.maximum(np.divide(ma, mm, out=np.zeros(count), where=mm > 0), 0.0)
    return _share(aa - 2 * scale * ma + scale**2 * mm, aa), _share(scale**2 * vv, aa)


def slopes(estimate: FloatArray, played: Played, rows: BoolArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``[R]`` each: slopes of credit on the turn's exact advantage and on the value of the state it stands in.

    Least squares of Â on A, V and a constant over the chosen turns, games weighted as each of R resamples says. Credit
    in probability to win should have slopes 1 and 0: a slope on V is credit for where a turn stands, not for what it
    does.

    Args:
        estimate: ``[N]`` credit in probability to win.
        played: the rollouts.
        rows: ``[N]`` which turns.
        weight: ``[R, B]`` weight of every game.
    """
    game = played.game[rows]
    columns = np.stack([played.advantage[rows], played.value[rows], np.ones(len(game)), estimate[rows]])
    products = columns[:, None] * columns[None]
    sums = np.array([[_sums(entry, game, weight.shape[1]) for entry in line] for line in products])
    normal = np.einsum("rb,ijb->rij", weight, sums)
    slope = np.linalg.solve(normal[:, :3, :3], normal[:, :3, 3:])[..., 0]
    return slope[:, 0], slope[:, 1]


def sign_agreement(estimate: FloatArray, truth: Truth, least: float = NOTICEABLE) -> FloatArray:
    """``[B]`` share of turns with |A| ≥ ``least`` whose sign Â has, Â = 0 counting one half; NaN without such turns.

    With estimated truth, turns count where both estimates are noticeable and agree.
    """
    both = np.sign(truth.advantage) * np.sign(truth.second) > 0
    clear = both & (np.minimum(np.abs(truth.advantage), np.abs(truth.second)) >= least)
    right = (np.sign(estimate) * np.sign(truth.advantage) + 1) / 2
    count = int(truth.block.max(initial=-1)) + 1
    return _share(_sums(right * clear, truth.block, count), _sums(clear.astype(np.float64), truth.block, count))


def rank_correlation(estimate: FloatArray, truth: Truth) -> FloatArray:
    """``[B]`` Spearman's correlation within each task group, ties at their mean rank; mean over groups.

    0 in a group where either side is the same for all turns. Noise of an estimated truth lowers it.
    """
    left, right = (_ranks(side, truth.group) for side in (estimate, (truth.advantage + truth.second) / 2))
    left, right = (side - group_means(side, truth.group)[truth.group] for side in (left, right))
    sums = [np.bincount(truth.group, weights=one) for one in (left * right, left**2, right**2)]
    spread = np.sqrt(sums[1] * sums[2])
    correlation = np.divide(sums[0], spread, out=np.zeros_like(spread), where=spread > 0)
    of_group = np.zeros(len(correlation), dtype=np.int64)
    of_group[truth.group] = truth.block
    return group_means(correlation, of_group)


def group_gradients(estimate: FloatArray, played: Played, games: Games) -> FloatArray:
    """``[G, O·A]`` gradient that each task group's turns give: Σ_i Â_i·∂log π(a_i|o_i)/∂logits.

    For a softmax the derivative is [a = a_i] − π(a|o_i) at o = o_i, and 0 at other observations.
    """
    policy = games.policy
    _, observations, actions = policy.shape
    sees = games.sees[played.game, played.state]
    row = (played.turns.task.astype(np.int64) * observations + sees) * actions
    size = len(played.turns.task_names) * observations * actions
    flat = _sums(estimate, row + played.action, size)
    for action in range(actions):
        flat -= _sums(estimate * policy[played.game, sees, action], row + action, size)
    return flat.reshape(-1, observations * actions)


def cosines(left: FloatArray, right: FloatArray) -> FloatArray:
    """``[G]`` cosine of rows; 0 where one of them is 0."""
    norm = np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
    cosine: FloatArray = np.divide((left * right).sum(axis=-1), norm, out=np.zeros_like(norm), where=norm > 0)
    return cosine


@dataclass(frozen=True, slots=True)
class MixtureRisk:
    """Risk of (1 − λ)·A^E + λ·A^S as a function of λ, from the errors of both parts on the same turns.

    R(λ) = (1 − λ)²·M_E + λ²·M_S + 2λ(1 − λ)·χ with M_E = mean (A^E − A)², M_S = mean (A^S − A)² and
    χ = mean (A^E − A)(A^S − A). Conditioned on a score c, take the turns with that score.

    Source: GACA, conditional risk of the mixture.
    """

    episode: float
    step: float
    cross: float

    @classmethod
    def of(cls, episode: FloatArray, step: FloatArray, truth: FloatArray) -> MixtureRisk:
        """From ``[n]`` credit of both kinds and the advantage, in one unit."""
        left, right = episode - truth, step - truth
        return cls(float(np.mean(left**2)), float(np.mean(right**2)), float(np.mean(left * right)))

    def at(self, weight: float) -> float:
        """R(λ)."""
        rest = 1 - weight
        return rest**2 * self.episode + weight**2 * self.step + 2 * weight * rest * self.cross

    @property
    def minimiser(self) -> float:
        """f* = (M_E − χ)/(M_E + M_S − 2χ) held in [0, 1]; 0 where both parts err alike everywhere."""
        curvature = self.episode + self.step - 2 * self.cross
        return float(np.clip((self.episode - self.cross) / curvature, 0, 1)) if curvature > 0 else 0.0


def _ranks(values: FloatArray, group: Numbers) -> FloatArray:
    """``[N]`` rank within the group, ties at their mean; counted through all groups, which differences do not see."""
    tie = joint_groups(group, np.unique(values, return_inverse=True)[1])
    size = np.bincount(tie)
    rank: FloatArray = (np.cumsum(size) - (size - 1) / 2)[tie]
    return rank


def _sums(values: FloatArray, group: Numbers, count: int) -> FloatArray:
    """``[count]`` sums of the rows of each group."""
    return np.bincount(group, weights=values, minlength=count).astype(np.float64)


def _share(part: FloatArray, whole: FloatArray) -> FloatArray:
    """part / whole; NaN where there is nothing to explain."""
    share: FloatArray = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return share
