"""The ragged cache against full attention, over histories of unequal growth."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
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


@pytest.mark.parametrize("family", FAMILIES)
def test_growing_rows_equal_whole_sequences(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows grow by random amounts, leave and are replaced; every chunk's logits are those of the whole sequence."""
    monkeypatch.setattr(cache_module, "_COLUMNS", 8)
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
        layout = cache.extend(owners, list(map(len, new)))
        with torch.no_grad():
            got = model.logits(torch.tensor([token for chunk in new for token in chunk]), layout.positions(), layout)
        for owner, chunk in zip(owners, new, strict=True):
            history[owner] += chunk
            tokens = torch.tensor(history[owner])
            with torch.no_grad():
                whole = model.logits(tokens, torch.arange(len(tokens)), Segments([len(tokens)]))
            assert cache.length(owner) == len(tokens)
            assert torch.allclose(got[: len(chunk)], whole[-len(chunk) :], rtol=1e-5, atol=1e-6)
            got = got[len(chunk) :]
        if rng.random() < 0.3:
            gone = owners[0]
            cache.drop(gone)
            assert gone not in cache
            assert cache.length(gone) == 0
            del history[gone]


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
