"""The last layer answers selected places only: as it does everywhere, and without the work of the others."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from policy.conftest import make_double
from policy.test_cache import FAMILIES, make
from policy.test_packing import TREE, ordered, rows
from stepcredit.policy.adapters import share_frozen
from stepcredit.policy.last_layer import narrow_last_layer
from stepcredit.policy.model import PackedModel
from stepcredit.policy.packing import Packed, pack

SELECT = torch.tensor([6, 1, 1, 7])


def weighted(hidden: Tensor) -> Tensor:
    return (hidden * torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)).sum()


def read(model: PackedModel, packed: Packed, *, narrow: bool) -> tuple[Tensor, list[Tensor | None]]:
    """What the output layer reads at ``SELECT``, and the gradient of some number made of it."""
    select = SELECT if narrow else None
    hidden = model.hidden(packed.tokens, packed.positions, packed.layout, select)
    chosen = hidden if narrow else hidden[SELECT]
    return chosen.detach(), list(torch.autograd.grad(weighted(chosen), model.parameters, allow_unused=True))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_and_gradients_equal_those_of_the_whole_row(family: str, checkpointing: bool) -> None:
    config, kind = FAMILIES[family]
    torch.manual_seed(0)
    model = PackedModel(kind(deepcopy(config)), gradient_checkpointing=checkpointing, workers=1)
    make_double(model.module)
    packed = pack(ordered(TREE))
    (got, slopes), (expected, wanted) = (read(model, packed, narrow=narrow) for narrow in (True, False))
    assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(slopes, wanted, strict=True):
        if other is None:
            assert one is None
        else:
            assert one is not None
            assert (one - other).norm() <= 1e-12 * other.norm()


def test_only_selected_tokens_pass_through_the_last_feed_forward_part() -> None:
    model = make(*FAMILIES["llama"])
    seen: list[list[int]] = []
    for layer in model.module.model.layers:  # type: ignore[union-attr]
        layer.mlp.register_forward_hook(lambda module, arguments, output: seen.append(list(output.shape)))  # type: ignore
    packed = pack(ordered(TREE))
    read(model, packed, narrow=True)
    assert [shape[1] for shape in seen] == [len(packed.tokens)] * (len(seen) - 1) + [3]


def test_most_places_are_answered_by_the_whole_layer() -> None:
    """Asking for nearly all tokens is not worth a second call."""
    model = make(*FAMILIES["llama"])
    seen: list[int] = []
    last = model.module.model.layers[-1]  # type: ignore[union-attr, index]
    last.mlp.register_forward_hook(lambda module, arguments, output: seen.append(output.shape[1]))  # type: ignore
    packed = pack(ordered(TREE))
    size = len(packed.tokens)
    hidden = model.hidden(packed.tokens, packed.positions, packed.layout, torch.arange(size - 1))
    assert seen == [size]
    assert len(hidden) == size - 1


class _Crowded(nn.Module):
    """A feed-forward part that gives other numbers where it gets few tokens."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.plain = plain

    def forward(self, states: Tensor) -> Tensor:
        return self.plain(states) * (1 if states.shape[1] >= 12 else 2)  # type: ignore[no-any-return]


def test_a_layer_that_needs_all_tokens_keeps_them() -> None:
    """It is found out when the model is loaded."""
    torch.manual_seed(0)
    config, kind = FAMILIES["llama"]
    plain: Any = kind(deepcopy(config))
    plain.model.layers[-1].mlp = _Crowded(plain.model.layers[-1].mlp)
    model = PackedModel(plain, workers=1)
    whole = pack(rows(range(14)))
    one = model.hidden(whole.tokens, whole.positions, whole.layout, torch.tensor([8]))
    assert torch.equal(one[0], model.hidden(whole.tokens, whole.positions, whole.layout)[8])


def test_the_model_stays_what_it_was(tmp_path: Path) -> None:
    """Names of weights, files and class names do not change; a copy computes with its own weights."""
    config, kind = FAMILIES["llama"]
    plain: Any = kind(deepcopy(config))
    names, own = list(plain.state_dict()), type(plain.model.layers[-1])
    tokens = torch.arange(9)[None]
    before = plain(input_ids=tokens).logits
    assert narrow_last_layer(plain)
    assert narrow_last_layer(plain)  # once more changes nothing
    last = plain.model.layers[-1]
    assert list(plain.state_dict()) == names
    assert isinstance(last, own)
    assert type(last).__name__ == own.__name__
    assert type(last) is not own
    assert torch.equal(plain(input_ids=tokens).logits, before)
    copied = share_frozen(plain)
    with torch.no_grad():
        copied.model.layers[-1].mlp.down_proj.weight.zero_()
    assert torch.equal(plain(input_ids=tokens).logits, before)
    assert not torch.equal(copied(input_ids=tokens).logits, before)
    plain.save_pretrained(tmp_path)
    assert torch.equal(LlamaForCausalLM.from_pretrained(tmp_path).eval()(input_ids=tokens).logits, before)
