"""Generalised advantage estimation over turns, from state values that the caller supplies."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from stepcredit.core.credit import Credit, FloatArray
from stepcredit.core.errors import InputError
from stepcredit.core.turns import Turns
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.groups import discounted_sums
from stepcredit.credit.method import Gamma, Range


def gae(
    turns: Turns,
    *,
    values: Annotated[FloatArray | None, "value of the state before each turn, reward units"] = None,
    gamma: Gamma = 0.95,
    lam: Annotated[float, Range(0, 1), "share λ of each further δ"] = 0.95,
) -> Credit:
    """A_t = Σ_{k≥t} (γλ)^{k−t} δ_k − P_t with δ_t = r_t + γ·V(s_{t+1}) − V(s_t), one turn one step.

    Sums run over the episode's own turns; V after its last turn is 0, as for an episode that ended, so one that was cut
    at a horizon is judged as a failure to go on. A penalty is charged to its own turn alone. λ = 1 gives ĝ_t − V(s_t),
    λ = 0 gives δ_t; V = 0 gives the step return with discount γλ.

    Args:
        values: ``[N]`` V(s_t) of the state before each turn, in reward units.

    Components: ``delta`` (δ), ``value`` (V).

    Raises:
        InputError: no values, or not one finite number a turn.

    Source: GAE (arXiv 1506.02438) eq. 16, with turns as steps.
    """
    value = given_column(turns, values, "values", "gae")
    after = np.append(value[1:], 0.0)
    after[turns.last] = 0.0
    delta = turns.reward + gamma * after - value
    advantage = discounted_sums(turns, delta, gamma * lam) - turns.penalty
    return build_credit(
        turns, advantage, {"delta": delta, "value": value}, groups=describe_groups(turns.state, advantage)
    )


def given_column(turns: Turns, values: FloatArray | None, name: str, method: str) -> FloatArray:
    """``[N]`` float64, a column that the caller of a method supplies.

    Raises:
        InputError: absent, of another length, or not finite everywhere.
    """
    if values is None:
        raise InputError(f"Method {method!r} needs {name!r}: pass an array with one number a turn.")
    column = np.asarray(values, dtype=np.float64)
    if column.shape != (len(turns),):
        raise InputError(f"Method {method!r}: {name!r} has shape {column.shape}, expected ({len(turns)},).")
    if not np.isfinite(column).all():
        row = int(np.argmin(np.isfinite(column)))
        raise InputError(f"Method {method!r}: {name!r} is {column[row]} in row {row}, expected a finite number.")
    return column
