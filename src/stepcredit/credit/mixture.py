"""Adaptive mixture of episode and step credit: the less sure the policy was of a turn, the more its step counts."""

from __future__ import annotations

import zlib
from typing import Annotated, Literal

import numpy as np

from stepcredit.core.credit import Credit, FloatArray
from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.core.turns import Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups, quantiles
from stepcredit.credit.episode_level import NormalizeOption, episode_credit
from stepcredit.credit.groups import Normalize, group_sizes, normalize_groups, path_totals, step_returns
from stepcredit.credit.method import Gamma, Range, required_column
from stepcredit.credit.state_groups import PenaltyInStep

OWN_STEP = "state_groups"
"""Value of ``step`` that stands for GACA's own step term."""


def gaca(
    turns: Turns,
    *,
    lambda0: Annotated[float, Range(0, 1), "base mixing weight λ0"] = 0.5,
    alpha: Annotated[float, Range(0), "sensitivity α of the weight to criticality; 0 fixes it at λ0"] = 0.5,
    gamma: Gamma = 0.95,
    normalize: NormalizeOption = "mean_std",
    step: Annotated[str, "step term: state_groups, or a method that has one, as in graft:lam=0.8"] = OWN_STEP,
    penalty_in_step: PenaltyInStep = False,
    shuffle_scores: Annotated[int | None, Range(0), "control: seed of a permutation of scores in each episode"] = None,
    score: Annotated[Literal["nll", "nll+return"], "criticality score; nll+return is an ablation"] = "nll",
    fusion_share: Annotated[float, Range(0, 1), "share of nll in nll+return"] = 1.0,
) -> Credit:
    """Adaptive mixture: A = (1 − λ_t)·A^E + λ_t·A^S with λ_t = min{λ0·(1 + α·c_t), 1}.

    The criticality c_t = H_t / mean of H over the episode's turns (for a branch: over its whole physical path), H_t the
    mean negative log-likelihood per response token under the behaviour policy; c_t = 1 where that mean is 0. With
    λ_ref = λ0·(1 + α) and κ = λ0·α the weight is min{λ_ref + κ·(c_t − 1), 1}. The weight is a number, never
    differentiated through. It is kept at 0 or above, which matters only for densities, whose H may be negative.

    A^E is ``grpo`` over turns. A^S (``step="state_groups"``) normalises ĝ within (task, state) with divisor n − 1; a
    state visited once is compared with ĝ over *all* turns of its task group instead, so that it keeps a signal.
    ``step`` may name any catalogue method with a ``step`` component, with its options after a colon
    (``graft:lam=0.8``); ``gamma`` and ``penalty_in_step`` concern the own step term only.

    Controls: a fixed weight (``alpha=0``, ``lambda0=x``: needs no ``nll``; 0 and 1 are pure episode and pure step
    credit); ``shuffle_scores=seed``, which permutes H among an episode's own turns; ``score="nll+return"``, where
    c = share·c(H) + (1 − share)·c(|ĝ_{t+1} − ĝ_t|), ĝ after the last turn being 0.

    Components: ``episode`` (A^E), ``step`` (A^S), ``weight`` (λ).

    Raises:
        InputError: a turn without ``nll`` where the weight depends on it.
        OptionError: ``step`` names no method, or one without a step term.

    Source: GACA, the mixture, its gate and the appendix on estimators.
    """
    returns = step_returns(turns, gamma)
    episode = episode_credit(turns, normalize)
    if step == OWN_STEP:
        values = returns - turns.penalty if penalty_in_step else returns
        own, groups = _step_with_fallback(turns, values, normalize), describe_groups(turns.state, values)
    else:
        inner = _inner_step(turns, step)
        own, groups = inner.components["step"], inner.diagnostics["groups"]
    weight = np.full(len(turns), lambda0)
    if alpha > 0:
        share = 1.0 if score == "nll" else fusion_share
        weight = np.clip(lambda0 * (1 + alpha * _criticality(turns, returns, share, shuffle_scores)), 0.0, 1.0)
    parts = {"episode": episode, "step": own, "weight": weight}
    spread = quantiles(weight) | {"at_one": float(np.mean(weight == 1.0)) if len(weight) else 0.0}
    return build_credit(turns, (1 - weight) * episode + weight * own, parts, groups=groups, weight=spread)


def _step_with_fallback(turns: Turns, values: FloatArray, normalize: Normalize) -> FloatArray:
    """Normalised within the state group; a state visited once, within the whole task group."""
    alone = group_sizes(turns.state)[turns.state] == 1
    own = normalize_groups(values, turns.state, normalize=normalize)
    return np.where(alone, normalize_groups(values, turns.task, normalize=normalize), own)


def _inner_step(turns: Turns, name: str) -> Credit:
    """Credit of the named method, which must have a step term."""
    from stepcredit.credit.catalogue import METHODS, assign_spelled  # the catalogue lists this file: imported late

    if name.partition(":")[0] not in METHODS:
        raise unknown_name("value for option 'step':", name, [OWN_STEP, *METHODS])
    credit = assign_spelled(turns, name, "step")
    if "step" not in credit.components:
        raise OptionError(f"Option 'step': method {name!r} has no step term; expected {OWN_STEP} or a step method.")
    return credit


def _criticality(turns: Turns, returns: FloatArray, share: float, shuffle: int | None) -> FloatArray:
    """``[N]`` c = share·c(H) + (1 − share)·c(|Δĝ|), each of mean 1 over a physical path."""
    criticality = np.zeros(len(turns))
    if share > 0:
        nll = required_column(turns, "nll", "gaca")
        criticality += share * _relative(turns, nll if shuffle is None else _shuffled(turns, nll, shuffle))
    if share < 1:
        after = np.append(returns[1:], 0.0)
        after[turns.last] = 0.0
        criticality += (1 - share) * _relative(turns, np.abs(after - returns))
    return criticality


def _relative(turns: Turns, values: FloatArray) -> FloatArray:
    """``[N]`` values over their mean along the episode's physical path; 1 where that mean is 0."""
    mean = path_totals(turns, values) / (turns.depth[turns.last] + 1)
    mean = mean[turns.episode]
    return np.divide(values, mean, out=np.ones(len(values)), where=mean != 0)


def _shuffled(turns: Turns, values: FloatArray, seed: int) -> FloatArray:
    """Values permuted among each episode's own turns; the permutation depends on the seed and the episode's name only,
    so that the order of a file and the rest of a batch never matter.
    """
    shuffled = values.copy()
    for index, name in enumerate(turns.episode_names):
        own = slice(turns.start[index], turns.start[index + 1])
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        shuffled[own] = generator.permutation(values[own])
    return shuffled
