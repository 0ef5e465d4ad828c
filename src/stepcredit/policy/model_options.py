"""How a language model is loaded and which of its weights are trained: plain values, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from stepcredit.core.errors import OptionError, unknown_name

Device = Literal["auto", "cuda", "mps", "cpu"]
Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of a language model.

    Trained weights and their optimiser are float32 whatever ``dtype`` says: at the learning rates of reinforcement
    learning most steps are smaller than what bfloat16 can resolve, and would be lost.

    Attributes:
        device: where the model lives; ``auto`` is the first of cuda, mps and cpu that is there.
        dtype: of the arithmetic; ``auto`` is bfloat16 on a CUDA device that has it, float32 elsewhere. With adapters
            the frozen weights are stored in it too.
        context: tokens that a prompt and its response may have together; 0: as many as the model has positions.
        gradient_checkpointing: keep only what enters a layer, and compute the layer again in the backward pass.
        lora_rank: rank r of low-rank adapters on every linear layer but the output layer; 0 trains all weights.
        lora_alpha: adapters are scaled by lora_alpha / lora_rank.

    Raises:
        OptionError: an unknown device or dtype, or a number out of range.
    """

    device: Device = "auto"
    dtype: Dtype = "auto"
    context: int = 0
    gradient_checkpointing: bool = False
    lora_rank: int = 0
    lora_alpha: float = 32.0

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for name in ("device", "dtype"):
            if getattr(self, name) not in get_args(hints[name]):
                raise unknown_name(name, getattr(self, name), get_args(hints[name]))
        for name in ("context", "lora_rank"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} is {getattr(self, name)}; expected 0 or more.")
        if not 0 < self.lora_alpha < float("inf"):
            raise OptionError(f"lora_alpha is {self.lora_alpha}; expected a finite number above 0.")
