"""What an update or an imitation epoch is told: plain numbers, shared by every policy, no torch.

``OBJECTIVES`` holds the objectives of the source papers by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args, get_type_hints

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import OptionError, check_least, unknown_name
from stepcredit.rollouts.types import Rollout

Surrogate = Literal["clip", "turn-clip"]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
Penalty = Literal["k1", "abs", "k2", "k3", "tangent"]


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of one update; ``policy.losses`` states the formulas.

    Attributes:
        surrogate: ``clip`` with a ratio per token, or ``turn-clip`` with one length-normalised ratio per turn.
        aggregation: how token losses become one number; ``turn-clip`` always averages over turns and ignores it.
        clip_low: ε_l; the ratio is clipped below at 1 − ε_l.
        clip_high: ε_h; the ratio is clipped above at 1 + ε_h.
        dual_clip: c > 1; for a negative advantage the objective never falls below c·A. None switches it off.
        norm_length: the constant number of tokens that ``seq-mean-token-sum-norm`` divides every turn by.
        penalty: form of the penalty for leaving the reference policy.
        penalty_coef: its coefficient; 0 needs no reference policy.
        tangent_bound: M of the ``tangent`` penalty.
        entropy_coef: coefficient of the entropy bonus.
        value_coef: coefficient of the critic's loss; 0 needs no critic.
        value_clip: how far a value may move in one update before its loss stops pulling, reward units.
    """

    surrogate: Surrogate = "clip"
    aggregation: Aggregation = "token-mean"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = 3.0
    norm_length: int = 512
    penalty: Penalty = "k3"
    penalty_coef: float = 0.0
    tangent_bound: float = 10.0
    entropy_coef: float = 0.0
    value_coef: float = 0.0
    value_clip: float = float("inf")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for name in ("surrogate", "aggregation", "penalty"):
            if getattr(self, name) not in get_args(hints[name]):
                raise unknown_name(name, getattr(self, name), get_args(hints[name]))
        if self.dual_clip is not None and not self.dual_clip > 1:
            raise OptionError(f"dual_clip is {self.dual_clip}; expected a number above 1, or none to switch it off.")
        for name in ("clip_low", "clip_high", "penalty_coef", "entropy_coef", "tangent_bound", "value_coef"):
            check_least(name, getattr(self, name), 0)
        if not self.value_clip > 0:
            raise OptionError(f"value_clip is {self.value_clip}; expected a positive number of reward units.")
        check_least("norm_length", self.norm_length, 1)


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "gigpo": Objective(penalty="k3", penalty_coef=0.01),
        "gaca": Objective(penalty="k3", penalty_coef=0.01, entropy_coef=0.001),
        "graft": Objective(surrogate="turn-clip", dual_clip=None),
        "tsbpo": Objective(aggregation="seq-mean-token-sum", penalty="tangent", penalty_coef=0.05),
        "grpo": Objective(aggregation="seq-mean-token-mean", dual_clip=None, penalty="k3", penalty_coef=0.04),
        "dr-grpo": Objective(aggregation="seq-mean-token-sum-norm", dual_clip=None),
        "dapo": Objective(clip_high=0.28, dual_clip=None),
        "ppo": Objective(dual_clip=None, value_coef=0.5, value_clip=2.0),
        "gspo": Objective(surrogate="turn-clip", clip_low=3e-4, clip_high=4e-4, dual_clip=None),
    }
)
"""Objectives of the source papers by name."""


def find_objective(name: str) -> Objective:
    """The objective of a paper by its name.

    Raises:
        OptionError: no objective has that name.
    """
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """One policy update on one batch of rollouts.

    Attributes:
        objective: the loss.
        lr: AdamW learning rate.
        epochs: passes over the batch.
        minibatch: rollouts in one optimiser step.
        max_grad_norm: the gradient's Euclidean norm is clipped to this.
        imitation_coef: weight of the imitation loss on replayed demonstrations, where some are given.
        micro_batch_tokens: tokens in one forward pass of one worker; bounds memory, changes nothing but rounding.
    """

    objective: Objective = Objective(entropy_coef=0.005)
    lr: float = 5e-4
    epochs: int = 2
    minibatch: int = 32
    max_grad_norm: float = 1.0
    imitation_coef: float = 0.0
    micro_batch_tokens: int = 4096

    def __post_init__(self) -> None:
        for name in ("lr", "max_grad_norm", "imitation_coef"):
            check_least(name, getattr(self, name), 0)
        for name in ("epochs", "minibatch", "micro_batch_tokens"):
            check_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True)
class ImitateSettings:
    """One epoch of supervised learning on demonstrations.

    Attributes:
        lr: AdamW learning rate.
        minibatch: rollouts in one optimiser step.
        observation_weight: weight of the language-model loss on prompt tokens; 0 learns from responses alone.
        max_grad_norm: the gradient's Euclidean norm is clipped to this.
        micro_batch_tokens: tokens in one forward pass of one worker; bounds memory, changes nothing but rounding.
    """

    lr: float = 2e-3
    minibatch: int = 32
    observation_weight: float = 0.1
    max_grad_norm: float = 1.0
    micro_batch_tokens: int = 4096

    def __post_init__(self) -> None:
        for name in ("lr", "observation_weight", "max_grad_norm"):
            check_least(name, getattr(self, name), 0)
        for name in ("minibatch", "micro_batch_tokens"):
            check_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True)
class Replay:
    """Demonstrations mixed into an update, so that what was imitated is not forgotten.

    Attributes:
        rollouts: the demonstrations; every optimiser step takes its even share of them.
        weight: ``[N]`` per turn in rollout order; 0 masks a turn out of the loss.
    """

    rollouts: Sequence[Rollout]
    weight: FloatArray


@dataclass(frozen=True, slots=True)
class Returns:
    """What a critic learns in an update.

    Attributes:
        target: ``[N]`` return R per turn in rollout order, reward units: the advantage (GAE) plus the value it was
            computed from, without penalties.
        value: ``[N]`` V_old, the critic's own value before the update.
    """

    target: FloatArray
    value: FloatArray
