"""Architectures on which packed rows or the narrow last layer would be wrong or fail, and corners of what is asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (  # fmt: skip
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from policy.test_cache import SIZES, last_logits, whole_logits
from policy.test_last_layer import SELECT, read
from policy.test_packing import TREE, ordered
from stepcredit.core.errors import OptionError
from stepcredit.policy.cache import RaggedCache
from stepcredit.policy.model import PackedModel
from stepcredit.policy.packing import pack


def pack_plain(plain: Any) -> PackedModel:
    return PackedModel(plain, workers=1)


def test_a_layer_that_carries_tokens_past_attention_is_refused() -> None:
    """A short convolution would look from one sequence of the row into the next."""
    torch.manual_seed(0)
    config = Lfm2Config(**SIZES, layer_types=["conv", "full_attention"], initializer_range=0.3)
    with pytest.raises(OptionError, match="Lfm2ForCausalLM cannot run on packed rows"):
        pack_plain(Lfm2ForCausalLM(config))


@pytest.mark.parametrize("cap", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_caps_are_refused_where_small_weights_hide_them(cap: str) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = SIZES | {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    assert pack_plain(Gemma2ForCausalLM(Gemma2Config(**sizes, head_dim=8))).context == 128
    with pytest.raises(OptionError, match="Gemma2ForCausalLM cannot run on packed rows"):
        pack_plain(Gemma2ForCausalLM(Gemma2Config(**sizes | {cap: 50.0}, head_dim=8)))


def test_longrope_holds_what_it_rotates_alike() -> None:
    """Beyond the original limit the rotation of a sequence would depend on the others in its row."""
    rotation = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 16,
    }
    assert pack_plain(LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rotation))).context == 16


def test_a_layer_may_get_more_than_its_states_by_place() -> None:
    """Gemma 4 hands each layer something of its own for every token."""
    torch.manual_seed(0)
    config = Gemma4TextConfig(
        **SIZES, head_dim=8, global_head_dim=8, vocab_size_per_layer_input=50, hidden_size_per_layer_input=8
    )
    assert_narrow_equals_whole(pack_plain(Gemma4ForCausalLM(config)))


def test_a_layer_that_runs_twice_is_not_narrowed() -> None:
    torch.manual_seed(0)
    plain: Any = LlamaForCausalLM(LlamaConfig(**SIZES))
    plain.model.layers[1] = plain.model.layers[0]
    assert_narrow_equals_whole(pack_plain(plain))


def test_values_may_be_narrower_than_keys() -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = SIZES | {"num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "n_routed_experts": 4}
    config = DeepseekV3Config(
        **sizes, q_lora_rank=None, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
        moe_intermediate_size=16, num_experts_per_tok=2, first_k_dense_replace=1,
    )  # fmt: skip
    model = pack_plain(DeepseekV3ForCausalLM(config))
    cache = RaggedCache()
    last_logits(model, cache, [0, 1], [[1, 2, 3], [4]])
    got = last_logits(model, cache, [0, 1], [[4], [5]])
    expected = torch.stack([whole_logits(model, tokens) for tokens in ([1, 2, 3, 4], [4, 5])])
    assert torch.allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_asking_for_nothing_gives_nothing() -> None:
    torch.manual_seed(0)
    model = pack_plain(LlamaForCausalLM(LlamaConfig(**SIZES)))
    packed = pack(ordered(TREE))
    nothing = torch.arange(0)
    assert model.hidden(packed.tokens, packed.positions, packed.layout, nothing).shape == (0, 32)


def assert_narrow_equals_whole(model: PackedModel) -> None:
    packed = pack(ordered(TREE))
    (got, slopes), (expected, wanted) = (read(model, packed, narrow=narrow) for narrow in (True, False))
    assert len(got) == len(SELECT)
    assert torch.allclose(got, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(slopes, wanted, strict=True):
        if one is not None and other is not None:
            assert (one - other).norm() <= 1e-4 * other.norm() + 1e-6
        else:
            assert one is other is None
