"""The ragged cache against full attention, over histories of unequal growth."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (  # fmt: skip
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from stepcredit.core.errors import OptionError
from stepcredit.policy import cache as cache_module
from stepcredit.policy.attention import Segments
from stepcredit.policy.cache import RaggedCache
from stepcredit.policy.model import PackedModel

SIZES = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": None, "eos_token_id": 0,
}  # fmt: skip


def make(config: object, kind: type) -> PackedModel:
    torch.manual_seed(0)
    return PackedModel(kind(deepcopy(config)).double())


FAMILIES = {
    "llama": (LlamaConfig(**SIZES), LlamaForCausalLM),
    "qwen2": (Qwen2Config(**SIZES), Qwen2ForCausalLM),
    "qwen3": (Qwen3Config(**SIZES, head_dim=8), Qwen3ForCausalLM),
}


def last_logits(model: PackedModel, cache: RaggedCache, owners: Sequence[int], new: Sequence[Sequence[int]]) -> Tensor:
    layout = cache.extend(owners, new)
    with torch.no_grad():
        return model.logits(layout.tokens, layout.positions(), layout, torch.from_numpy(layout.last))


def whole_logits(model: PackedModel, tokens: Sequence[int]) -> Tensor:
    with torch.no_grad():
        ids = torch.tensor(tokens)
        return model.logits(ids, torch.arange(len(ids)), Segments([len(ids)]))[-1]


@pytest.mark.parametrize("light", [0, 1 << 20])
@pytest.mark.parametrize("family", FAMILIES)
def test_growing_rows_equal_whole_sequences(family: str, light: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows grow by random amounts, leave and are replaced; every chunk's logits are those of the whole sequence.

    Whether rows that ask for one token each are attended one by one or as a batch.
    """
    monkeypatch.setattr(cache_module, "_COLUMNS", 8)
    monkeypatch.setattr(cache_module, "_LIGHT", light)
    model = make(*FAMILIES[family])
    rng = np.random.default_rng(0)
    cache = RaggedCache()
    history: dict[int, list[int]] = {}
    next_owner = 0
    for _ in range(25):
        while len(history) < 3:
            history[next_owner] = []
            next_owner += 1
        owners = [owner for owner in history if rng.random() < 0.8]
        if not owners:
            continue
        new = [rng.integers(0, 50, rng.integers(1, 6)).tolist() for _ in owners]
        last = last_logits(model, cache, owners, new)
        for owner, chunk, logits in zip(owners, new, last, strict=True):
            history[owner] += chunk
            assert cache.length(owner) == len(history[owner])
            assert torch.allclose(logits, whole_logits(model, history[owner]), rtol=1e-5, atol=1e-6)
        if rng.random() < 0.3:
            gone = owners[0]
            cache.drop(gone)
            assert gone not in cache
            assert cache.length(gone) == 0
            del history[gone]


@pytest.mark.parametrize("light", [0, 1 << 20])
@pytest.mark.parametrize("family", FAMILIES)
def test_equal_rows_are_computed_once(family: str, light: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of three that often say the same after the same, begin at different times and lose members."""
    monkeypatch.setattr(cache_module, "_LIGHT", light)
    monkeypatch.setattr(cache_module, "_LEAST_SHARED", 2)
    model = make(*FAMILIES[family])
    rng = np.random.default_rng(1)
    cache = RaggedCache()
    history: dict[int, list[int]] = {}
    computed = fed = 0
    for step in range(40):
        for owner in (step, step + 100, step + 200) if step % 8 == 0 else ():
            history[owner] = []
        owners = list(history)
        prompt = rng.integers(0, 50, 4).tolist()
        said = [[1, 2, 3], [1, 2, 4], [5]]
        new = [said[rng.choice(3, p=[0.8, 0.1, 0.1])] if history[owner] else prompt for owner in owners]
        layout = cache.extend(owners, new)
        computed += len(layout.tokens)
        fed += sum(map(len, new))
        with torch.no_grad():
            last = model.logits(layout.tokens, layout.positions(), layout, torch.from_numpy(layout.last))
        for owner, chunk, logits in zip(owners, new, last, strict=True):
            history[owner] += chunk
            assert torch.allclose(logits, whole_logits(model, history[owner]), rtol=1e-5, atol=1e-6)
        if step % 5 == 4:
            cache.drop(owners[0])
            del history[owners[0]]
    assert computed < 0.9 * fed


def test_a_groups_first_turn_is_one_prompt() -> None:
    model = make(*FAMILIES["llama"])
    cache = RaggedCache()
    prompt = list(range(30))
    layout = cache.extend(range(9), [prompt] * 8 + [[*prompt[:20], 7, 8]])
    assert layout.tokens.tolist() == [*prompt[:20], 7, 8, *prompt[20:]]  # the one that begins alike sorts first
    assert layout.positions().tolist() == [*range(22), *range(20, 30)]
    assert layout.last.tolist() == [31] * 8 + [21]
    with torch.no_grad():
        model.logits(layout.tokens, layout.positions(), layout)
    # Different histories with equal new tokens have nothing in common; equal histories still do.
    assert len(cache.extend([0, 8], [[1], [1]]).tokens) == 2
    assert len(cache.extend([1, 2, 3], [[1], [1], [2]]).tokens) == 2
    assert len(cache.extend([1, 2, 3], [[4], [4], [4]]).tokens) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_sequences_equal_the_models_own_forward(family: str) -> None:
    config, kind = FAMILIES[family]
    model = make(config, kind)
    torch.manual_seed(0)
    plain = kind(deepcopy(config)).double().eval()
    lengths = [5, 1, 9]
    tokens = torch.randint(0, 50, (sum(lengths),))
    positions = torch.cat([torch.arange(length) for length in lengths])
    packed = model.logits(tokens, positions, Segments(lengths))
    for part, logits in zip(tokens.split(lengths), packed.split(lengths), strict=True):
        assert torch.allclose(logits, plain(part[None]).logits[0], rtol=1e-5, atol=1e-6)
    selected = model.logits(tokens, positions, Segments(lengths), torch.tensor([4, 0]))
    assert torch.allclose(selected, packed[[4, 0]])


def test_models_that_cannot_run_packed_are_refused() -> None:
    """A sliding window is narrower than what packed attention sees, so the probe's logits differ."""
    with pytest.raises(OptionError, match="MistralForCausalLM cannot run on packed rows"):
        make(MistralConfig(**SIZES, sliding_window=4), MistralForCausalLM)
    wide = make(MistralConfig(**SIZES, sliding_window=None), MistralForCausalLM)
    assert wide.config.sliding_window is None


def test_another_architecture_runs_too_or_is_refused() -> None:
    config = GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    plain = GPT2LMHeadModel(config).eval()
    tokens = torch.randint(0, 50, (12,))
    with torch.no_grad():
        own = plain(tokens[None]).logits[0]
        model = PackedModel(plain)
        got = model.logits(tokens, torch.cat([torch.arange(7), torch.arange(5)]), Segments([7, 5]))
    assert torch.allclose(got[:7], own[:7], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(got[7:], own[7:], rtol=1e-4, atol=1e-5)
