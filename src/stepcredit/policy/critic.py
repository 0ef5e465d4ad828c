"""The critic of turn-level PPO: the value of a state, read off the policy's own trunk at the end of a turn's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stepcredit.core.errors import CheckpointError
from stepcredit.policy.optimizer import Optimizer

_FILE = "critic.safetensors"
HEAD_RATE = 10.0
"""Learning rate of the head over that of the policy: the head starts at nothing, the trunk does not."""


class Critic:
    """V(s) = w·h(s) + b in reward units, h(s) the trunk's last hidden state after the prompt's last token.

    w and b start at 0 and have an AdamW of their own; the trunk learns from the value loss through the policy's.

    Args:
        width: length of h.
        like: a parameter of the policy, whose device it takes, and whose type unless that is a half one.
    """

    def __init__(self, width: int, like: Tensor) -> None:
        dtype = torch.float32 if like.dtype in (torch.float16, torch.bfloat16) else like.dtype
        self._head = nn.Linear(width, 1, device=like.device, dtype=dtype)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        self._optimizer = Optimizer(self._head)

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """Weight and bias of the head."""
        return list(self._head.parameters())

    def __call__(self, state: Tensor) -> Tensor:
        """``[n]`` values of states ``[n, width]``."""
        value: Tensor = self._head(state.to(self._head.weight.dtype))
        return value[:, 0]

    def step(self, loss: float, *, lr: float, max_grad_norm: float) -> float | None:
        """As ``Optimizer.step``, at ``HEAD_RATE`` times the policy's learning rate."""
        return self._optimizer.step(loss, lr=HEAD_RATE * lr, max_grad_norm=max_grad_norm)

    def save(self, folder: Path) -> None:
        """Write the head and its optimiser to ``FOLDER/critic.safetensors``."""
        head = {name: value.detach() for name, value in self._head.named_parameters()}
        save_file({**head, **self._optimizer.state()}, folder / _FILE)

    @classmethod
    def restored(cls, folder: Path, like: Tensor) -> Critic | None:
        """The critic that ``save`` wrote, bit by bit; None where the folder has none.

        Raises:
            CheckpointError: the file cannot be read.
        """
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            stored = load_file(path)
            critic = cls(stored["weight"].shape[1], like)
            with torch.no_grad():
                for name, parameter in critic._head.named_parameters():
                    parameter.copy_(stored[name])
            critic._optimizer.restore(stored)
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise CheckpointError(f"Cannot read the critic {str(path)!r}: {error}.") from None
        return critic
