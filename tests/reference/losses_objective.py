"""The policy objective as loops over turns and tokens, on plain floats; written from docs/methods §9."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepcredit.policy.settings import Objective


@dataclass(frozen=True)
class TokenTurn:
    """One turn: log-probabilities of its tokens under three policies, their entropies, and its advantage."""

    new: Sequence[float]
    old: Sequence[float]
    reference: Sequence[float]
    entropy: Sequence[float]
    advantage: float


def surrogate(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> float:
    clipped = min(max(ratio, 1 - low), 1 + high)
    gain = min(ratio * advantage, clipped * advantage)
    if dual is not None and advantage < 0:
        gain = max(gain, dual * advantage)
    return gain


def penalty(new: float, reference: float, form: str, bound: float) -> float:
    delta = reference - new
    if form == "k1":
        return -delta
    if form == "abs":
        return abs(delta)
    if form == "k2":
        return delta * delta / 2
    if form == "k3":
        return min(max(math.exp(min(delta, 20)) - min(delta, 20) - 1, -10), 10)
    knee = math.log(1 + bound)
    if delta <= knee:
        return math.exp(delta) - delta - 1
    return bound - knee + bound * (delta - knee)


def loss(turns: Sequence[TokenTurn], o: Objective) -> float:
    """The loss of one optimiser minibatch of non-empty turns."""
    kind = "seq-mean-token-mean" if o.surrogate == "turn-clip" else o.aggregation
    all_tokens = sum(len(turn.new) for turn in turns)
    total = 0.0
    for turn in turns:
        length = len(turn.new)
        weight = {
            "token-mean": 1 / all_tokens,
            "seq-mean-token-mean": 1 / (len(turns) * length),
            "seq-mean-token-sum": 1 / len(turns),
            "seq-mean-token-sum-norm": 1 / (len(turns) * o.norm_length),
        }[kind]
        whole = math.exp(sum(n - p for n, p in zip(turn.new, turn.old, strict=True)) / length)
        for place in range(length):
            own = math.exp(turn.new[place] - turn.old[place])
            ratio = whole if o.surrogate == "turn-clip" else own
            gain = surrogate(ratio, turn.advantage, o.clip_low, o.clip_high, o.dual_clip)
            gain += o.entropy_coef * turn.entropy[place]
            if o.penalty_coef:
                gain -= o.penalty_coef * penalty(turn.new[place], turn.reference[place], o.penalty, o.tangent_bound)
            total -= weight * gain
    return total
