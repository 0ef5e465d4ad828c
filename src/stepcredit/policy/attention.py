"""Attention over ragged rows: tokens of many sequences lie end to end in one row, without padding.

The model runs on ``[1, T]`` tokens, so all its dense work is exact; only attention needs to know which token belongs to
which sequence. A *layout* knows: it is handed through the model's forward to the attention function registered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

IMPLEMENTATION = "stepcredit"
"""Name of the attention function in transformers' registry."""


class Layout(Protocol):
    """Which tokens of a packed row see which others."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Output ``[1, T, heads, D]`` from query ``[1, heads, T, D]``, key and value ``[1, groups, T, D]``."""
        ...


class Segments:
    """Whole sequences end to end; each token sees its own sequence up to itself.

    Args:
        lengths: tokens of each sequence, in packed order.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """One causal attention a sequence; splitting (not slicing) keeps the backward pass linear in T."""
        del layer
        grouped = query.shape[1] != key.shape[1]
        parts = zip(*(torch.split(tensor, self._lengths, dim=2) for tensor in (query, key, value)), strict=True)
        outputs = [
            scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped) for q, k, v in parts
        ]
        return torch.cat(outputs, dim=2).transpose(1, 2)


def _packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    layer = module.layer_idx
    assert isinstance(layer, int)
    return layout.attend(layer, query, key, value, scaling), None


AttentionInterface.register(IMPLEMENTATION, _packed_attention)
