"""The key/value cache of a session: one row per growing episode, rows of different lengths, nothing padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

_COLUMNS = 256
"""The cache grows by whole multiples of this many tokens a row."""


class RaggedCache:
    """Keys and values of every layer by owner (the key of an episode).

    Storage per layer is ``[rows, columns, groups, D]``, so what one token adds is contiguous. Rows that
    owners leave are used again.
    """

    def __init__(self) -> None:
        self._row: dict[int, int] = {}
        self._length: dict[int, int] = {}
        self._free: list[int] = []
        self._columns = 0
        self._stores: dict[int, tuple[Tensor, Tensor]] = {}
        self._mask = torch.zeros(0, 0)

    def __contains__(self, owner: int) -> bool:
        return owner in self._row

    def length(self, owner: int) -> int:
        """Tokens stored for an owner; 0 for an unknown one."""
        return self._length.get(owner, 0)

    def drop(self, owner: int) -> None:
        """Forget an owner; harmless for an unknown one."""
        if owner in self._row:
            self._free.append(self._row.pop(owner))
            del self._length[owner]

    def extend(self, owners: Sequence[int], new: Sequence[int]) -> CachedRows:
        """Make room for ``new[i]`` > 0 more tokens of ``owners[i]``, and the layout that stores and attends to them."""
        spans = []
        for owner, count in zip(owners, new, strict=True):
            if owner not in self._row:
                self._row[owner] = self._free.pop() if self._free else len(self._row)
                self._length[owner] = 0
            past = self._length[owner]
            self._length[owner] = past + count
            spans.append(Span(self._row[owner], past, count))
        longest = max(self._length.values())
        self._columns = max(self._columns, -(-longest // _COLUMNS) * _COLUMNS)
        return CachedRows(self, spans)

    def store(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, grown to the present number of rows and columns.

        Args:
            layer: index of the layer.
            like: new keys ``[1, groups, T, D]``, whose type, device, groups and D the storage takes.
        """
        rows, columns = len(self._row) + len(self._free), self._columns
        found = self._stores.get(layer)
        if found is None:
            empty = like.new_zeros(0, 0, like.shape[1], like.shape[3])
            found = (empty, empty)
        held_rows, held_columns = found[0].shape[:2]
        if held_rows < rows or held_columns < columns:
            if held_rows < rows:
                rows = max(rows, 2 * held_rows)
            found = (_grown(found[0], rows, columns), _grown(found[1], rows, columns))
            self._stores[layer] = found
        return found

    def causal_mask(self, past: int, new: int, like: Tensor) -> Tensor:
        """Additive mask ``[new, past + new]``: token i of the new ones sees the past and the new ones up to itself.

        A view into one matrix, so that no turn builds masks of its own.
        """
        rows, columns = self._mask.shape
        if rows < new or columns - rows < self._columns:
            rows, past_columns = max(rows, new), self._columns
            hidden = torch.full((rows, past_columns + rows), -torch.inf, dtype=like.dtype, device=like.device)
            self._mask = hidden.triu_(past_columns + 1)
        first = self._mask.shape[1] - self._mask.shape[0] - past
        return self._mask[:new, first : first + past + new]


def _grown(store: Tensor, rows: int, columns: int) -> Tensor:
    grown = store.new_zeros(rows, columns, *store.shape[2:])
    grown[: store.shape[0], : store.shape[1]] = store
    return grown


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one row: they follow ``past`` stored ones."""

    row: int
    past: int
    new: int


class CachedRows:
    """Layout of one forward pass: the new tokens of several rows end to end, each seeing its own row's past."""

    def __init__(self, cache: RaggedCache, spans: Sequence[Span]) -> None:
        self._cache = cache
        self._spans = spans
        self._places: Tensor | None = None

    def positions(self) -> Tensor:
        """``[T]`` position of each new token in its own sequence."""
        return torch.cat([torch.arange(span.past, span.past + span.new) for span in self._spans])

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Store the new keys and values, then attend row by row (padding rows to a batch is no faster on a CPU)."""
        keys, values = self._cache.store(layer, key)
        if self._places is None:
            columns = keys.shape[1]
            starts = [span.row * columns + span.past for span in self._spans]
            places = [torch.arange(start, start + span.new) for start, span in zip(starts, self._spans, strict=True)]
            self._places = torch.cat(places).to(key.device)
        for store, new in ((keys, key), (values, value)):
            store.view(-1, *store.shape[2:]).index_copy_(0, self._places, new[0].transpose(0, 1))
        grouped = query.shape[1] != key.shape[1]
        outputs = []
        for span, part in zip(self._spans, torch.split(query, [span.new for span in self._spans], dim=2), strict=True):
            seen = span.past + span.new
            outputs.append(
                scaled_dot_product_attention(
                    part,
                    keys[span.row, :seen].transpose(0, 1)[None],
                    values[span.row, :seen].transpose(0, 1)[None],
                    attn_mask=self._cache.causal_mask(span.past, span.new, part) if span.new > 1 else None,
                    scale=scale,
                    enable_gqa=grouped,
                )
            )
        return torch.cat(outputs, dim=2).transpose(1, 2)
