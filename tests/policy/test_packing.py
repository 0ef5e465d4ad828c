"""Prefix-tree packing: what a row holds, who sees whom in it, and that it changes neither loss nor gradient."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from stepcredit.core.credit import IntArray
from stepcredit.policy import attention, packing
from stepcredit.policy.attention import Segments
from stepcredit.policy.packing import Packed, micro_batches, pack, prefix_order


@dataclass(frozen=True)
class Row:
    tokens: IntArray


def rows(*tokens: Sequence[int]) -> list[Row]:
    return [Row(np.array(one, dtype=np.int32)) for one in tokens]


def ordered(sequences: Sequence[Row]) -> list[Row]:
    return [sequences[index] for index in prefix_order(sequences)]


def sees(packed: Packed) -> Tensor:
    """``[T, T]`` by walking every sequence: a token sees what stands before it in a sequence they share, and itself."""
    mask = torch.zeros(len(packed.tokens), len(packed.tokens), dtype=torch.bool)
    for path in packed.where:
        for depth, place in enumerate(path.tolist()):
            mask[place, path[: depth + 1].tolist()] = True
    return mask


TREE = rows([1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 9, 9], [1, 2, 3, 4, 6, 7], [1, 2, 3, 4, 5], [8, 2, 3])


def test_a_row_is_the_prefix_tree_in_depth_first_order() -> None:
    packed = pack(ordered(TREE))
    assert packed.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 9, 9, 8, 2, 3]
    assert packed.positions.tolist() == [0, 1, 2, 3, 4, 4, 5, 2, 3, 0, 1, 2]
    assert [path.tolist() for path in packed.where] == [
        [0, 1, 2],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 5, 6],
        [0, 1, 7, 8],
        [9, 10, 11],
    ]
    assert packed.layout.ends().tolist() == [9, 9, 7, 7, 5, 7, 7, 9, 9, 12, 12, 12]


def test_order_is_by_token_and_stable() -> None:
    assert prefix_order(rows([300, 1], [2], [300], [2], [256, 9])) == [1, 3, 4, 2, 0]


def test_a_short_common_start_is_not_worth_gathering() -> None:
    heads = rows([5, *range(100, 140)], [5, *range(200, 240)])
    assert len(pack(heads).tokens) == 82
    assert len(pack(rows([5, 1, 2], [5, 7, 8])).tokens) == 5


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=9)


@given(st.lists(tokens, min_size=1, max_size=12))
@settings(deadline=None)
def test_every_sequence_is_there_and_no_token_twice(drawn: list[list[int]]) -> None:
    sequences = ordered(rows(*drawn))
    packed = pack(sequences)
    for path, sequence in zip(packed.where, sequences, strict=True):
        assert packed.tokens[path].tolist() == sequence.tokens.tolist()
        assert packed.positions[path].tolist() == list(range(len(path)))
    prefixes = {tuple(one[: length + 1]) for one in drawn for length in range(len(one))}
    assert len(packed.tokens) == len(prefixes)
    place, ends = torch.arange(len(packed.tokens)), packed.layout.ends()
    assert torch.equal((place <= place[:, None]) & (place[:, None] < ends), sees(packed))


@given(st.lists(tokens, min_size=1, max_size=12), st.integers(1, 20))
@settings(deadline=None)
def test_micro_batches_hold_what_their_packed_rows_hold(drawn: list[list[int]], limit: int) -> None:
    sequences = ordered(rows(*drawn))
    cuts = micro_batches(sequences, limit)
    assert [one for cut in cuts for one in sequences[cut]] == sequences
    for cut, following in zip(cuts, [*cuts[1:], None], strict=True):
        assert cut.stop - cut.start == 1 or cost(sequences[cut]) <= limit
        if following is not None:
            assert cost(sequences[cut.start : following.start + 1]) > limit
    assert micro_batches([], limit) == []


def cost(sequences: Sequence[Row]) -> float:
    """Tokens of the packed row, and a sixteenth of every sequence that does not begin with a token of its own."""
    packed = pack(sequences)
    begun: set[int] = set()
    gathered = 0
    for path in packed.where:
        gathered += len(path) if int(path[0]) in begun else 0
        begun.add(int(path[0]))
    return len(packed.tokens) + gathered / 16


def attended(layout: Segments, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    output = layout.attend(0, *leaves, None)
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return output.detach(), torch.autograd.grad((output * weight).sum(), leaves)


@pytest.mark.parametrize("block", [2, 256])
@pytest.mark.parametrize("groups", [4, 2])
def test_attention_equals_one_dense_masked_attention(monkeypatch: pytest.MonkeyPatch, block: int, groups: int) -> None:
    monkeypatch.setattr(attention, "_BLOCK", block)
    packed = pack(ordered(TREE))
    size = len(packed.tokens)
    torch.manual_seed(0)
    query = torch.randn(1, 4, size, 8, dtype=torch.float64)
    key, value = torch.randn(2, 1, groups, size, 8, dtype=torch.float64)
    dense = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    expected = scaled_dot_product_attention(*dense, attn_mask=sees(packed), enable_gqa=True).transpose(1, 2)
    weight = torch.linspace(-1, 1, expected.numel(), dtype=expected.dtype).view_as(expected)
    gradients = torch.autograd.grad((expected * weight).sum(), dense)
    got, found = attended(packed.layout, query, key, value)
    assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(found, gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


def test_the_fused_kernel_of_gpus_gives_the_same() -> None:
    """FlexAttention without its compiler and without gradient: all of it that runs on a CPU."""
    packed = pack(ordered(TREE))
    size = len(packed.tokens)
    torch.manual_seed(0)
    query = torch.randn(1, 4, size, 16, dtype=torch.float64)
    key, value = torch.randn(2, 1, 2, size, 16, dtype=torch.float64)
    places = torch.tensor([1, 2, size - 1])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        got = packed.layout.attend_fused(flex_attention, query, key, value, None)
        some = packed.layout.attend_fused(flex_attention, query[:, :, places], key, value, None, places)
    assert torch.allclose(got, packed.layout.attend(0, query, key, value, None), rtol=1e-9, atol=1e-9)
    assert torch.allclose(some, got[:, places], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("block", [2, 256])
@pytest.mark.parametrize("places", [[0], [1, 2, 6, 7], [3], [0, 1, 2, 3, 4, 5, 6, 7, 8]])
def test_some_places_ask_as_they_do_among_all(monkeypatch: pytest.MonkeyPatch, block: int, places: list[int]) -> None:
    monkeypatch.setattr(attention, "_BLOCK", block)
    packed = pack(ordered(TREE))
    query, key, value = torch.randn(3, 1, 2, len(packed.tokens), 8, dtype=torch.float64)
    whole = packed.layout.attend(0, query, key, value, None)
    got = packed.layout.attend(0, query[:, :, places], key, value, None, torch.tensor(places))
    assert torch.allclose(got, whole[:, places], rtol=1e-12, atol=1e-12)


def test_nothing_shared_gathers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without a common start take the path they always took."""
    monkeypatch.setattr(attention._Gather, "apply", None)
    packed = pack(ordered(rows([1, 2, 3], [4, 5], [6])))
    query, key, value = torch.randn(3, 1, 2, 6, 4)
    assert packed.layout.attend(0, query, key, value, None).shape == (1, 6, 2, 4)
    assert packing.LEAST_SHARE < 1
