"""AdamW with gradient clipping that never takes a broken step."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.999)
EPSILON = 1e-8
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Optimizer:
    """AdamW over a module's trainable parameters."""

    def __init__(self, module: nn.Module) -> None:
        self._named = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._adam = torch.optim.AdamW(self._named.values(), betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY)

    def zero_grad(self) -> None:
        """Forget gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self, loss: float, *, lr: float, max_grad_norm: float) -> float | None:
        """One step on the gathered gradients.

        Args:
            loss: value of the loss they come from.
            lr: learning rate.
            max_grad_norm: the gradient's norm is clipped to this.

        Returns:
            The gradient's norm before clipping; None if loss or gradient is not finite, and then nothing changed.
        """
        if not any(parameter.grad is not None for parameter in self._named.values()):
            return 0.0
        norm = float(nn.utils.clip_grad_norm_(self._named.values(), max_grad_norm))
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.zero_grad()
            return None
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        self.zero_grad()
        return norm

    def state(self) -> dict[str, Tensor]:
        """Moments and step counts by ``parameter name/moment``; empty before the first step."""
        return {
            f"{name}/{moment}": self._adam.state[parameter][moment]
            for name, parameter in self._named.items()
            if parameter in self._adam.state
            for moment in _MOMENTS
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave, from wherever it lies; parameters it does not name start afresh.

        Raises:
            KeyError: a moment is missing.
        """
        self._adam.state.clear()
        for name, parameter in self._named.items():
            if f"{name}/step" in state:
                held = {moment: state[f"{name}/{moment}"].clone() for moment in _MOMENTS}
                # AdamW keeps its step counts on the CPU wherever the weights are.
                self._adam.state[parameter] = {
                    moment: value if moment == "step" else value.to(parameter.device) for moment, value in held.items()
                }
