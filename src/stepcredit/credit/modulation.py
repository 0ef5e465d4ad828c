"""Modulations: what entropy, hindsight or coverage says, applied to the advantage of any other method.

The option ``base`` names that method, with options after a colon where its defaults are not wanted:
``base="gigpo"``, ``base="graft:lam=0.8,value_weighting=action"``. A base may itself be a modulation.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from stepcredit.core.credit import BoolArray, Credit, FloatArray, IntArray
from stepcredit.core.turns import NO_EPISODE, Turns
from stepcredit.credit.diagnostics import build_credit, quantiles
from stepcredit.credit.episode_level import NormalizeOption
from stepcredit.credit.groups import episode_returns, group_extremes, group_means, normalize_groups, path_totals
from stepcredit.credit.method import Gamma, Range, Weight, required_column
from stepcredit.credit.turn_gae import given_column

Base = Annotated[str, "method whose advantage is modulated, with options as in graft:lam=0.8,gae=false"]
Rate = Annotated[float, Range(0), "rate of the exponential in normalised entropy"]


def empg(
    turns: Turns,
    *,
    base: Base = "grpo",
    scale_rate: Rate = 1.0,
    clarity_rate: Rate = 1.0,
    clarity_weight: Weight = 0.05,
) -> Credit:
    """Sure turns count more, and turns that lead to sure ones earn a bonus:

        A_i = A_base·g_i + ζ·exp(−k'·Ĥ_{t+1}), less the mean of that over all turns,
        g_i = exp(−k·Ĥ_i) / mean over the batch of exp(−k·Ĥ)

    Ĥ is the turn's mean token entropy, scaled to [0, 1] by the batch's smallest and largest (0 where they agree). The
    last turn of an episode has no next one and no bonus. k = ``scale_rate``, k' = ``clarity_rate``, ζ =
    ``clarity_weight``. Statistics run over the batch: its tasks depend on each other.

    Components: ``base``, ``weight`` (g), ``bonus``.

    Raises:
        InputError: a turn without ``entropy``.

    Source: EMPG (arXiv 2509.09265) eq. 8-12.
    """
    plain = _base_credit(turns, base)
    batch = np.zeros(len(turns), dtype=np.int32)
    entropy = _unit_entropy(required_column(turns, "entropy", "empg"), batch)
    weight = _mean_one(np.exp(-scale_rate * entropy), batch)
    clarity = np.append(np.exp(-clarity_rate * entropy[1:]), 0.0)
    clarity[turns.last] = 0.0
    bonus = clarity_weight * clarity
    advantage = plain.advantage * weight + bonus
    centred = advantage - group_means(advantage, batch)[batch]
    return _modulated(turns, plain, centred, {"weight": weight, "bonus": bonus})


def aem(turns: Turns, *, base: Base = "grpo", rate: Rate = 1.0) -> Credit:
    """Sure turns count more within their task group: A_i = A_base·exp(−λ·Ĥ_i) / mean over the group of exp(−λ·Ĥ).

    Ĥ is the turn's mean token entropy, scaled to [0, 1] by its task group's smallest and largest (0 where they agree,
    which leaves the base unchanged). λ = ``rate``; 0 changes nothing.

    Components: ``base``, ``weight``.

    Raises:
        InputError: a turn without ``entropy``.

    Source: AEM (arXiv 2605.00425), response-level modulation.
    """
    plain = _base_credit(turns, base)
    entropy = _unit_entropy(required_column(turns, "entropy", "aem"), turns.task)
    weight = _mean_one(np.exp(-rate * entropy), turns.task)
    return _modulated(turns, plain, plain.advantage * weight, {"weight": weight})


def hcapo(
    turns: Turns,
    *,
    hindsight: Annotated[FloatArray | None, "mean log-probability of each response given the outcome, nats"] = None,
    base: Base = "grpo",
    gamma: Gamma = 0.95,
    weight: Weight = 1.0,
) -> Credit:
    """Adds how much hindsight makes an action more likely: A_i = A_base + ω·z_i.

    z is Q_i = ρ_i·γ^{T−t}·R normalised over the turns of the task group ((Q − μ)/(σ + ε), divisor n − 1), R the return
    of the physical path, T − t the turns left on it, the current one included. ρ_i = clip(h_i / mean h, 0.8, 1.2), the
    mean over the whole physical path (ρ = 1 where it is 0). In a successful episode a negative z counts as 0.

    Args:
        hindsight: ``[N]`` h_i, mean log-probability per token of the turn's response given the outcome, in nats.

    Components: ``base``, ``step`` (z, clipped), ``ratio`` (ρ).

    Raises:
        InputError: no hindsight, or not one finite number a turn.

    Source: HCAPO (arXiv 2603.08754).
    """
    given = given_column(turns, hindsight, "hindsight", "hcapo")
    plain = _base_credit(turns, base)
    last = turns.last[turns.episode]
    mean = (path_totals(turns, given) / (turns.depth[turns.last] + 1))[turns.episode]
    ratio = np.clip(np.divide(given, mean, out=np.ones(len(given)), where=mean != 0), 0.8, 1.2)
    left = turns.turn[last] - turns.turn + 1
    q = ratio * gamma**left * episode_returns(turns)[turns.episode]
    micro = normalize_groups(q, turns.task, normalize="mean_std")
    micro = np.where(turns.success[turns.episode], np.maximum(micro, 0.0), micro)
    return _modulated(turns, plain, plain.advantage + weight * micro, {"step": micro, "ratio": ratio})


def progpo(turns: Turns, *, base: Base = "grpo", normalize: NormalizeOption = "mean_std") -> Credit:
    """Coverage where nothing succeeded, the base's outcome credit everywhere else.

    In a task group without a successful episode x_i = 1 where the turn reaches a state its physical path has not been
    in before, else 0, and A is x normalised over the group's turns, divisor n − 1. If every turn breaks new ground, or
    none does, A is exactly 0. In any other group A = A_base.

    Components: ``base``, ``coverage`` (x in all-fail groups, 0 elsewhere).

    Source: ProGPO. Chosen: coverage counts first visits within the path, so that the order of episodes never matters.
    """
    plain = _base_credit(turns, base)
    tasks = len(turns.task_names)
    failed = np.bincount(turns.episode_task, weights=turns.success, minlength=tasks) == 0
    coverage = np.where(failed[turns.task] & first_visits(turns), 1.0, 0.0)
    explored = normalize_groups(coverage, turns.task, normalize=normalize)
    advantage = np.where(failed[turns.task], explored, plain.advantage)
    return _modulated(turns, plain, advantage, {"coverage": coverage}, failed_groups=int(failed.sum()))


def first_visits(turns: Turns) -> BoolArray:
    """``[N]`` whether a turn reaches a state its physical path has not been in before, the state it leaves included."""
    count = int(max(turns.state.max(initial=-1), turns.next_state.max(initial=-1))) + 1
    key, row = np.unique(turns.episode.astype(np.int64) * count + turns.state, return_index=True)
    new = np.ones(len(turns), dtype=np.bool_)
    # Rows of an episode before ``bound`` lie on the path: its own turn first, then ever older ancestors.
    pending = np.arange(len(turns))
    episode, bound = turns.episode.copy(), np.arange(1, len(turns) + 1)
    while len(pending):
        wanted = episode[pending].astype(np.int64) * count + turns.next_state[pending]
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        new[pending] &= ~((key[at] == wanted) & (row[at] < bound[pending]))
        bound[pending] = turns.branch_row[episode[pending]]
        episode[pending] = turns.episode_parent[episode[pending]]
        pending = pending[new[pending] & (episode[pending] != NO_EPISODE)]
    return new


def _base_credit(turns: Turns, base: str) -> Credit:
    """Credit of the method that ``base`` spells."""
    from stepcredit.credit.catalogue import assign_spelled  # the catalogue lists this file, so it is imported late

    return assign_spelled(turns, base, "base")


def _modulated(turns: Turns, base: Credit, advantage: FloatArray, parts: dict[str, FloatArray], **more: Any) -> Credit:
    """Credit with the base's groups, its advantage as a component, and the spread of a weight where there is one."""
    if "weight" in parts:
        more["weight"] = quantiles(parts["weight"])
    components = {"base": base.advantage, **parts}
    return build_credit(turns, advantage, components, groups=base.diagnostics["groups"], **more)


def _unit_entropy(entropy: FloatArray, group: IntArray) -> FloatArray:
    """``[N]`` entropy scaled to [0, 1] by its group's extremes; 0 where they agree."""
    low, high = group_extremes(entropy, group, int(group.max(initial=-1)) + 1)
    spread = (high - low)[group]
    return np.divide(entropy - low[group], spread, out=np.zeros(len(entropy)), where=spread > 0)


def _mean_one(factor: FloatArray, group: IntArray) -> FloatArray:
    """``[N]`` positive factors over their group's mean."""
    return factor / group_means(factor, group)[group]
