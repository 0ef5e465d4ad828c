"""Attention over ragged rows: tokens of many sequences lie end to end in one row, without padding.

The model runs on ``[1, T]`` tokens, so all its dense work is exact; only attention needs to know which token belongs to
which sequence. A *layout* knows: it is handed through the model's forward to the attention function registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from stepcredit.core.credit import IntArray

IMPLEMENTATION = "stepcredit"
"""Name of the attention function in transformers' registry."""

Run = tuple[int, int]
"""Places start … stop − 1 of a packed row."""

Asking = range | IntArray
"""Ascending places of a sequence whose tokens ask: a stretch of it, or some."""

_BLOCK = 256
"""Queries of a forked sequence attended at once, so that no mask has more rows."""


class Layout(Protocol):
    """Which tokens of a packed row see which others."""

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float | None,
        places: Tensor | None = None,
    ) -> Tensor:
        """Output ``[1, M, heads, D]`` from query ``[1, heads, M, D]``, key and value ``[1, groups, T, D]``.

        ``places`` ``[M]``, ascending, says which tokens of the row ask; None for all ``T``.
        """
        ...


class CausalMasks:
    """Additive masks for the last tokens of a sequence: views of one matrix, so that none is built twice."""

    def __init__(self) -> None:
        self._matrix = torch.zeros(0, 0)

    def of(self, past: int, new: int, like: Tensor) -> Tensor | None:
        """``[new, past + new]``: token i of the last ones sees the past and the last ones up to itself.

        None for a single token, which sees everything.

        Args:
            past: tokens before the last ones.
            new: the last ones.
            like: whose type and device the mask has.
        """
        if new == 1:
            return None
        rows, columns = self._matrix.shape
        if rows < new or columns - rows < past or self._matrix.dtype != like.dtype:
            rows, most = max(rows, new), -(-max(columns - rows, past) // _BLOCK) * _BLOCK
            hidden = torch.full((rows, most + rows), -torch.inf, dtype=like.dtype, device=like.device)
            self._matrix = hidden.triu_(most + 1)
        first = self._matrix.shape[1] - self._matrix.shape[0] - past
        return self._matrix[:new, first : first + past + new]


class Segments:
    """Sequences end to end, each token seeing its own sequence up to itself.

    A sequence may begin with tokens that earlier ones brought: it then adds only its own, which see those as well. The
    sequences that begin with a token must follow one another (``packing.prefix_order``).

    Args:
        lengths: tokens that each sequence adds, in packed order; 0 where it adds nothing.
        prefixes: runs of the row that each sequence begins with; none of them by default.
    """

    def __init__(self, lengths: Sequence[int], prefixes: Sequence[Sequence[Run]] = ()) -> None:
        self._lengths = list(lengths)
        self._prefixes = list(prefixes) or [()] * len(self._lengths)
        self._masks = CausalMasks()
        self._block_masks: dict[bool, BlockMask] = {}

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float | None,
        places: Tensor | None = None,
    ) -> Tensor:
        """One attention a sequence; splitting (not slicing) keeps the backward pass linear in T.

        On a GPU, one FlexAttention kernel that skips the blocks nobody sees.
        """
        del layer
        if query.is_cuda:
            return self.attend_fused(_compiled_flex(), query, key, value, scale, places)
        grouped = query.shape[1] != key.shape[1]
        asking = self._asking(places)
        queries = torch.split(query, [len(own) for own in asking], dim=2)
        parts = zip(*(torch.split(tensor, self._lengths, dim=2) for tensor in (key, value)), strict=True)
        paths = self._forked_paths(asking)
        keys, values = iter(_gather(key, paths)), iter(_gather(value, paths))
        outputs = []
        for q, (k, v), own, prefix in zip(queries, parts, asking, self._prefixes, strict=True):
            if not len(own):
                continue
            if prefix:
                k, v = next(keys), next(values)
            if prefix or places is not None:
                outputs += self._attend_after(q, k, v, own, scale, grouped)
            else:
                outputs.append(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped))
        return torch.cat(outputs, dim=2).transpose(1, 2)

    def attend_fused(
        self,
        flex: Callable[..., Any],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float | None,
        places: Tensor | None = None,
    ) -> Tensor:
        """The same by ``flex``, one ``flex_attention`` over the whole row."""
        mask = self._block_masks.get(places is None)
        if mask is None:
            ends = self.ends().to(query.device)
            asking = torch.arange(len(ends)) if places is None else places
            at = asking.to(query.device)

            def sees(batch: Tensor, head: Tensor, seeing: Tensor, seen: Tensor) -> Tensor:
                del batch, head
                return (seen <= at[seeing]) & (at[seeing] < ends[seen])

            mask = create_block_mask(sees, None, None, len(at), len(ends), device=str(query.device))
            self._block_masks[places is None] = mask
        grouped = query.shape[1] != key.shape[1]
        output: Tensor = flex(query, key, value, block_mask=mask, scale=scale, enable_gqa=grouped)
        return output.transpose(1, 2)

    def ends(self) -> Tensor:
        """``[T]`` the place after the last token that sees each token: token i sees token j iff j ≤ i < ends[j]."""
        ends = torch.zeros(sum(self._lengths), dtype=torch.int64)
        stop = 0
        for length, prefix in zip(self._lengths, self._prefixes, strict=True):
            stop += length
            for first, last in (*prefix, (stop - length, stop)):
                ends[first:last] = stop
        return ends

    def _asking(self, places: Tensor | None) -> list[Asking]:
        """For each sequence, which of the tokens it adds ask, counted from where the sequence begins."""
        past = [sum(stop - start for start, stop in prefix) for prefix in self._prefixes]
        if places is None:
            return [range(start, start + length) for start, length in zip(past, self._lengths, strict=True)]
        stops, asked = np.cumsum(self._lengths), places.cpu().numpy()
        parts = np.split(asked, np.searchsorted(asked, stops[:-1]))
        return [part + (start - first) for part, start, first in zip(parts, past, stops - self._lengths, strict=True)]

    def _attend_after(
        self, query: Tensor, key: Tensor, value: Tensor, at: Asking, scale: float | None, grouped: bool
    ) -> list[Tensor]:
        """Causal attention of tokens at the places ``at`` of a sequence to all of it, in blocks of queries."""
        outputs = []
        for start in range(0, len(at), _BLOCK):
            part, asking = query[:, :, start : start + _BLOCK], at[start : start + _BLOCK]
            seen = int(asking[-1]) + 1
            if isinstance(asking, range):
                mask = self._masks.of(asking[0], len(asking), part)
            else:
                hidden = torch.arange(seen) > torch.from_numpy(asking)[:, None]
                mask = part.new_zeros(len(asking), seen).masked_fill_(hidden.to(part.device), -torch.inf)
            keys, values = key[:, :, :seen], value[:, :, :seen]
            outputs.append(
                scaled_dot_product_attention(part, keys, values, attn_mask=mask, scale=scale, enable_gqa=grouped)
            )
        return outputs

    def _forked_paths(self, asking: Sequence[Asking]) -> list[list[Run]]:
        """All runs of every sequence that begins elsewhere and asks something, its own run last."""
        paths: list[list[Run]] = []
        stop = 0
        for length, own, prefix in zip(self._lengths, asking, self._prefixes, strict=True):
            stop += length
            if len(own) and prefix:
                paths.append([*prefix, (stop - length, stop)])
        return paths


def _gather(row: Tensor, paths: Sequence[Sequence[Run]]) -> Sequence[Tensor]:
    """The runs of each path put together, ``[1, groups, length, D]``; nothing happens where there is no path."""
    if not paths:
        return ()
    gathered: Sequence[Tensor] = _Gather.apply(row, paths)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """Runs of a row put together, once for each path; the gradient is added up where it came from.

    Indexing does the same, but its gradient costs one call a token or one row a path.
    """

    @staticmethod
    def forward(ctx: Any, row: Tensor, paths: Sequence[Sequence[Run]]) -> tuple[Tensor, ...]:
        ctx.paths, ctx.shape = paths, row.shape
        return tuple(torch.cat([row[:, :, start:stop] for start, stop in path], dim=2) for path in paths)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].new_zeros(ctx.shape)
        for path, gradient in zip(ctx.paths, gradients, strict=True):
            parts = torch.split(gradient, [stop - start for start, stop in path], dim=2)
            for (start, stop), part in zip(path, parts, strict=True):
                total[:, :, start:stop] += part
        return total, None


@cache
def _compiled_flex() -> Callable[..., Any]:
    """FlexAttention as one kernel; uncompiled it would write out all scores."""
    compiled: Callable[..., Any] = torch.compile(flex_attention)
    return compiled


def _packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    # Capped scores and sinks: the weights of a small or untrained model do not show that they are missing.
    if softcap is not None or s_aux is not None:
        raise TypeError("Attention over packed rows neither caps scores nor has sinks.")
    layer = module.layer_idx
    assert isinstance(layer, int)
    return layout.attend(layer, query, key, value, scaling), None


AttentionInterface.register(IMPLEMENTATION, _packed_attention)
