"""The key/value cache of a session: one row per growing episode, rows of different lengths, nothing padded.

Episodes that say the same after the same are computed once: the row of one is filled, the others' are copied from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from stepcredit.core.credit import IntArray
from stepcredit.policy.attention import CausalMasks
from stepcredit.policy.packing import common_start, paths

_COLUMNS = 256
"""The cache grows by whole multiples of this many tokens a row."""
_LIGHT = 128
"""Keys of a token with at most so many numbers: the padding of a batch then costs a CPU less than a call for every row
(32 rows of 200 to 350 tokens: 64 numbers .30 against .70 ms, 192 numbers 2.5 against 1.8)."""
_LEAST_SHARED = 16
"""Two rows that begin with fewer new tokens alike, and then differ, compute them apart: copying costs calls too."""


class RaggedCache:
    """Keys and values of every layer by owner (the key of an episode).

    Storage per layer is ``[rows, columns, groups, D]``, so what one token adds is contiguous. Rows that
    owners leave are used again.
    """

    def __init__(self) -> None:
        self._row: dict[int, int] = {}
        self._length: dict[int, int] = {}
        self._content: dict[int, int] = {}
        self._contents = 0
        self._free: list[int] = []
        self._columns = 0
        self._stores: dict[int, tuple[Tensor, Tensor]] = {}
        self.masks = CausalMasks()

    def __contains__(self, owner: int) -> bool:
        return owner in self._row

    def length(self, owner: int) -> int:
        """Tokens stored for an owner; 0 for an unknown one."""
        return self._length.get(owner, 0)

    def drop(self, owner: int) -> None:
        """Forget an owner; harmless for an unknown one."""
        if owner in self._row:
            self._free.append(self._row.pop(owner))
            del self._length[owner], self._content[owner]

    def extend(self, owners: Sequence[int], new: Sequence[Sequence[int]]) -> CachedRows:
        """Make room for more tokens, and the layout that stores and attends to them.

        Args:
            owners: whose rows grow.
            new: at least one token for each.
        """
        for owner in owners:
            if owner not in self._row:
                self._row[owner] = self._free.pop() if self._free else len(self._row)
                self._length[owner] = self._content[owner] = 0
        held = [self._content[owner] for owner in owners]
        # Rows that hold the same and get the same stand together; equal content is known by a number.
        order = sorted(range(len(owners)), key=lambda place: (held[place], new[place]))
        shared: list[int] = []
        spans: list[Span] = []
        for place, before in zip(order, [None, *order], strict=False):
            start = 0
            if before is not None and held[place] == held[before]:
                start = _shared_start(new[before], new[place])
            owner, tokens = owners[place], new[place]
            if before is None or start < len(tokens) or len(tokens) < len(new[before]):
                self._contents += 1
            self._content[owner] = self._contents
            past = self._length[owner]
            self._length[owner] = past + len(tokens)
            shared.append(start)
            spans.append(Span(self._row[owner], past, len(tokens), len(tokens) - start))
        longest = max(self._length.values())
        self._columns = max(self._columns, -(-longest // _COLUMNS) * _COLUMNS)
        where = paths([len(new[place]) for place in order], shared)
        last = np.empty(len(order), dtype=np.int32)
        last[order] = [path[-1] for path in where]
        fresh = [token for place, start in zip(order, shared, strict=True) for token in new[place][start:]]
        return CachedRows(self, spans, torch.tensor(fresh), last, np.concatenate(where) if any(shared) else None)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, grown to the present number of rows and columns.

        Args:
            layer: index of the layer.
            key: new ones ``[1, groups, T, D]``, whose type, device, groups and D the storage takes.
            value: likewise; D may be another one.
        """
        rows, columns = len(self._row) + len(self._free), self._columns
        found = self._stores.get(layer)
        if found is None:
            found = _empty(key), _empty(value)
        held_rows, held_columns = found[0].shape[:2]
        if held_rows < rows or held_columns < columns:
            if held_rows < rows:
                rows = max(rows, 2 * held_rows)
            found = (_grown(found[0], rows, columns), _grown(found[1], rows, columns))
            self._stores[layer] = found
        return found


def _empty(like: Tensor) -> Tensor:
    return like.new_zeros(0, 0, like.shape[1], like.shape[3])


def _grown(store: Tensor, rows: int, columns: int) -> Tensor:
    grown = store.new_zeros(rows, columns, *store.shape[2:])
    grown[: store.shape[0], : store.shape[1]] = store
    return grown


def _shared_start(one: Sequence[int], other: Sequence[int]) -> int:
    """How many of its first tokens ``other`` takes over from ``one``."""
    if one == other:
        return len(one)
    if min(len(one), len(other)) < _LEAST_SHARED:
        return 0
    count = common_start(np.array(one), np.array(other))
    return count if count >= _LEAST_SHARED else 0


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one row: they follow ``past`` stored ones, and the last ``fresh`` of them are computed here."""

    row: int
    past: int
    new: int
    fresh: int


class CachedRows:
    """Layout of one forward pass: the fresh tokens of several rows end to end, each seeing its own row's past.

    Attributes:
        tokens: ``[T]`` fresh tokens.
        last: ``[rows]`` for each owner, in the order they were given, the place of its last token among the fresh.
    """

    def __init__(
        self, cache: RaggedCache, spans: Sequence[Span], tokens: Tensor, last: IntArray, source: IntArray | None
    ) -> None:
        self.tokens = tokens
        self.last = last
        self._cache = cache
        self._spans = spans
        self._source = None if source is None else torch.from_numpy(source)
        self._slots: Tensor | None = None
        self._padded: tuple[slice, Tensor, Tensor] | None = None

    def positions(self) -> Tensor:
        """``[T]`` position of each fresh token in its own sequence."""
        ends = [(span.past + span.new, span.fresh) for span in self._spans]
        return torch.cat([torch.arange(end - fresh, end) for end, fresh in ends])

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float | None,
        places: Tensor | None = None,
    ) -> Tensor:
        """Store the new keys and values, then attend: row by row, or at once where every row asks for one token.

        ``places``, if any, are ``last`` without repetition.
        """
        keys, values = self._cache.store(layer, key, value)
        if self._slots is None:
            columns = keys.shape[1]
            starts = [span.row * columns + span.past for span in self._spans]
            spans = [torch.arange(start, start + span.new) for start, span in zip(starts, self._spans, strict=True)]
            self._slots = torch.cat(spans).to(key.device)
            if self._source is not None:
                self._source = self._source.to(key.device)
        for store, new in ((keys, key), (values, value)):
            tokens = new[0].transpose(0, 1)
            taken = tokens if self._source is None else tokens.index_select(0, self._source)
            store.view(-1, *store.shape[2:]).index_copy_(0, self._slots, taken)
        asking = [span.fresh if places is None else min(span.fresh, 1) for span in self._spans]
        if max(asking) == 1 and (query.is_cuda or keys[0, 0].numel() <= _LIGHT):
            return self._attend_at_once(query, keys, values, scale, asking)
        grouped = query.shape[1] != key.shape[1]
        outputs = []
        parts = torch.split(query, asking, dim=2)
        for span, part, count in zip(self._spans, parts, asking, strict=True):
            if not count:
                continue
            seen = span.past + span.new
            outputs.append(
                scaled_dot_product_attention(
                    part,
                    keys[span.row, :seen].transpose(0, 1)[None],
                    values[span.row, :seen].transpose(0, 1)[None],
                    attn_mask=self._cache.masks.of(seen - count, count, part),
                    scale=scale,
                    enable_gqa=grouped,
                )
            )
        return torch.cat(outputs, dim=2).transpose(1, 2)

    def _attend_at_once(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None, asking: Sequence[int]
    ) -> Tensor:
        """One token of each row that asks, to all of its row: the stored rows are a batch, padded to the longest."""
        if self._padded is None:
            ends = {span.row: span.past + span.new for span, count in zip(self._spans, asking, strict=True) if count}
            first, last = min(ends), max(ends) + 1
            # A row in between that does not ask sees its first column, so that no row sees nothing.
            seen = torch.tensor([ends.get(row, 1) for row in range(first, last)])[:, None, None, None]
            hidden = torch.arange(max(ends.values())) >= seen
            mask = query.new_zeros(hidden.shape).masked_fill_(hidden.to(query.device), -torch.inf)
            self._padded = slice(first, last), torch.tensor([row - first for row in ends]).to(query.device), mask
        rows, own, mask = self._padded
        longest = mask.shape[-1]
        asked = query.new_zeros(mask.shape[0], query.shape[1], 1, query.shape[3])
        asked[own] = query[0].transpose(0, 1)[:, :, None]
        output = scaled_dot_product_attention(
            asked,
            keys[rows, :longest].transpose(1, 2),
            values[rows, :longest].transpose(1, 2),
            attn_mask=mask,
            scale=scale,
            enable_gqa=query.shape[1] != keys.shape[2],
        )
        return output[own, :, 0][None]
