"""A causal language model of the transformers family, run on packed rows."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from stepcredit.core.errors import OptionError
from stepcredit.policy.adapters import share_frozen
from stepcredit.policy.attention import IMPLEMENTATION, Layout, Segments
from stepcredit.policy.last_layer import Selected, narrow_last_layer
from stepcredit.policy.workers import Workers

OWN_ATTENTION = "sdpa"
"""Attention of a model that does not run on packed rows yet."""
_EQUAL, _ROUNDING = 1e-3, 0.1
"""Distance that logits may have from a model's own, as a share of their length: with whole and with half precision."""
_FEW = 0.75
"""The last layer is narrowed to the selected places where they are fewer than this share: it costs a second call."""
_UNSEEN = ("final_logit_softcapping", "attn_temperature_tuning")
"""Settings that change logits, but not those of a short probe of small weights: a cap, a scale by place in the row."""
_ENDLESS = 1 << 30
"""Tokens that a model without a limit on positions is said to hold."""


class PackedModel:
    """Runs a model on sequences that lie end to end in one row, and its output layer only where it is wanted.

    Attributes:
        module: the model.
        config: its configuration.
        head: its output layer.
        device: where it lives.
        parameters: those that are trained.
        dtype: of the arithmetic. bfloat16 is PyTorch's autocast, except for the output layer, which computes in the
            type of its weights.
        context: tokens that a sequence may have: no more than the model has positions or a sliding window sees, nor
            than LongRoPE was first made for.
        workers: what computes parts of a batch.

    Args:
        model: a causal language model of transformers; switched to evaluation mode (no dropout) for good, so that
            generation and update see the same distribution.
        dtype: see above.
        gradient_checkpointing: keep only what enters a layer, and compute the layer again in the backward pass.
        workers: parts of a batch computed at once; None for as many as torch has threads on a CPU, and one elsewhere.

    Raises:
        OptionError: packed rows do not give the logits that the model itself gives (narrow sliding windows, recurrent
            layers, scaled or capped logits, attention with caps or sinks), or the model cannot compute its layers
            again.
    """

    def __init__(
        self,
        model: Any,
        *,
        dtype: torch.dtype = torch.float32,
        gradient_checkpointing: bool = False,
        workers: int | None = None,
    ) -> None:
        self.module: nn.Module = model.eval()
        self.config: Any = model.config
        self._body = model.base_model
        self.head: Any = model.get_output_embeddings()
        self.device: torch.device = model.device
        self.parameters = [value for value in model.parameters() if value.requires_grad]
        self.dtype = dtype
        self.context = _context(model)
        self.workers = Workers(workers or (torch.get_num_threads() if self.device.type == "cpu" else 1))
        own = _probe_logits(model)
        model.set_attn_implementation(IMPLEMENTATION)
        self.gradient_checkpointing = gradient_checkpointing
        if gradient_checkpointing:
            _recompute_layers(model)
        self._narrows = False
        self._check(own)

    def logits(self, tokens: Tensor, positions: Tensor, layout: Layout, select: Tensor | None = None) -> Tensor:
        """Next-token logits ``[M, V]``.

        Args:
            tokens: ``[T]`` ids of all sequences end to end.
            positions: ``[T]`` position of each token in its own sequence.
            layout: which token sees which.
            select: ``[M]`` places whose successor is asked for; None for all ``T``.
        """
        logits: Tensor = self.head(self.hidden(tokens, positions, layout, select))
        return logits

    def hidden(self, tokens: Tensor, positions: Tensor, layout: Layout, select: Tensor | None = None) -> Tensor:
        """What the output layer reads, ``[M, width]``; arguments as in ``logits``."""
        half = self.dtype == torch.bfloat16
        layout = _Alike(layout, self.dtype) if half else layout
        select = torch.arange(len(tokens)) if select is None else select
        wanted, own = torch.unique(select, return_inverse=True)
        narrow = self._narrows and 0 < len(wanted) < _FEW * len(tokens)
        with torch.autocast(self.device.type, self.dtype) if half else nullcontext():
            states: Tensor = self._body(
                input_ids=tokens[None].to(self.device),
                position_ids=positions[None].to(self.device),
                use_cache=False,
                layout=Selected(layout, wanted) if narrow else layout,
            ).last_hidden_state[0]
        return states[(own if narrow else select).to(self.device)].to(self.head.weight.dtype)

    def frozen_copy(self) -> PackedModel:
        """The same model with adapters of its own, which shares every frozen weight."""
        copied = share_frozen(self.module)
        copied.set_attn_implementation(OWN_ATTENTION)
        return PackedModel(copied, dtype=self.dtype, workers=self.workers.count)

    def describe(self) -> dict[str, Any]:
        """What runs and how, as plain values."""
        cuda = self.device.type == "cuda"
        return {
            "architecture": type(self.module).__name__,
            "parameters": sum(value.numel() for value in self.module.parameters()),
            "trained_parameters": sum(value.numel() for value in self.parameters),
            "weights": _dtype_name(self.head.weight.dtype),
            "arithmetic": _dtype_name(self.dtype),
            "device": torch.cuda.get_device_name(self.device) if cuda else self.device.type,
            "attention": "packed rows, " + ("FlexAttention" if cuda else "scaled dot product"),
            "context": self.context,
            "gradient_checkpointing": self.gradient_checkpointing,
            "workers": self.workers.count,
        }

    def _check(self, own: Tensor) -> None:
        """Compare with the model's own logits, in the type of the weights.

        Raises:
            OptionError: they differ.
        """
        config = self.config.get_text_config()
        if any(getattr(config, name, None) for name in _UNSEEN) or not self._equals(own):
            raise OptionError(
                f"{type(self.module).__name__} cannot run on packed rows; "
                f"choose a model with plain causal attention in every layer, such as Llama, Qwen 2 or Qwen 3."
            )
        self._narrows = narrow_last_layer(self.module)
        self._narrows = self._narrows and self._equals(own, torch.tensor([3, 7, 8, 13]))

    def _equals(self, own: Tensor, select: Tensor | None = None) -> bool:
        """Whether the logits at some places of a row are the model's own: a sequence, and its end once more.

        What layers carry from token to token beside attention would reach the second end from the first.
        """
        tokens = _probe_tokens(self.module)
        size = len(tokens)
        depth = torch.tensor([*range(size), *range(size - 4, size)])
        tokens, own = tokens[depth], own[depth]
        layout = Segments([size, 4], [(), [(0, size - 4)]])
        asked, self.dtype = self.dtype, self.head.weight.dtype
        try:
            with torch.no_grad():
                packed = self.logits(tokens, depth, layout, select)
        except (TypeError, AttributeError, AssertionError, RuntimeError, ValueError, LookupError):
            return False  # an architecture that does not hand the layout through
        finally:
            self.dtype = asked
        own = own if select is None else own[select]
        return _distance(packed.float(), own.float()) <= (_ROUNDING if own.dtype.itemsize < 4 else _EQUAL)


@dataclass(frozen=True, slots=True)
class _Alike:
    """A layout that gets query, key and value in one type: autocast leaves rotated ones in float32."""

    layout: Layout
    dtype: torch.dtype

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float | None,
        places: Tensor | None = None,
    ) -> Tensor:
        query, key, value = (tensor.to(self.dtype) for tensor in (query, key, value))
        return self.layout.attend(layer, query, key, value, scale, places)


def _distance(one: Tensor, other: Tensor) -> float:
    """|one − other| / |other|; infinite where it is no number."""
    return float(torch.nan_to_num((one - other).norm() / other.norm(), nan=torch.inf))


def _probe_tokens(model: Any) -> Tensor:
    vocabulary: int = model.config.get_text_config().vocab_size
    return torch.arange(12, device=model.device) % vocabulary


def _probe_logits(model: Any) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=_probe_tokens(model)[None], use_cache=False).logits[0]
    return logits


def _context(model: Any) -> int:
    """Positions of a model, or its sliding window or chunk: within one, every token sees all before it.

    LongRoPE rotates a whole row in another way once one sequence passes the original limit, so that limit holds.
    """
    config = model.config.get_text_config()
    limits = [
        getattr(config, name, None) for name in ("max_position_embeddings", "sliding_window", "attention_chunk_size")
    ]
    rotation = getattr(config, "rope_parameters", None) or {}
    if rotation.get("rope_type") == "longrope":
        limits.append(rotation.get("original_max_position_embeddings"))
    return min((limit for limit in limits if limit), default=_ENDLESS)


def _recompute_layers(model: Any) -> None:
    """Let layers keep nothing but their input. They do so in training mode only, which they get without their parts.

    Raises:
        OptionError: the architecture does not offer it.
    """
    if not model.supports_gradient_checkpointing:
        raise OptionError(f"{type(model).__name__} has no gradient checkpointing; set gradient_checkpointing = false.")
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    model.disable_input_require_grads()
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = True


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
