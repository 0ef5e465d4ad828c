"""Low-rank adapters: what is trained, what they are compared with, how they are kept, and what they come to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from policy.conftest import COMPACT, play, random_advantage
from policy.test_checkpoint import train_some
from stepcredit.core.errors import CheckpointError, MissingExtraError
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy import adapters
from stepcredit.policy.attention import Segments
from stepcredit.policy.export import export_policy
from stepcredit.policy.model_options import ModelOptions
from stepcredit.policy.settings import Objective, UpdateSettings
from stepcredit.policy.transformer import TransformerPolicy

ADAPTED = ModelOptions(device="cpu", lora_rank=4)
PENALISED = UpdateSettings(objective=Objective(penalty_coef=0.5, penalty="k2"), epochs=2, minibatch=3, lr=5e-3)


def adapted(folder: Path, options: ModelOptions = ADAPTED, seed: int = 0) -> TransformerPolicy:
    pytest.importorskip("peft")
    return TransformerPolicy.from_folder(folder, COMPACT, model_options=options, seed=seed)


def logits(policy: TransformerPolicy) -> torch.Tensor:
    with torch.no_grad():
        return policy.model.logits(torch.arange(5, 25), torch.arange(20), Segments([20]))


def test_without_peft_one_sentence_says_what_to_install(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(adapters, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"LoRA needs peft, which is not installed: pip install 'stepcredit\["):
        TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=ADAPTED)


def test_fresh_adapters_add_nothing_and_only_they_are_trained(tiny_folder: Path, suite: ChainSuite) -> None:
    policy = adapted(tiny_folder)
    plain = TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=ModelOptions(device="cpu"))
    assert torch.equal(logits(policy), logits(plain))
    named = dict(policy.model.module.named_parameters())
    assert {name for name, value in named.items() if value.requires_grad} == {name for name in named if "lora_" in name}
    before = {name: value.detach().clone() for name, value in named.items()}
    train_some(policy, suite, 0)
    moved = {name for name, value in named.items() if not torch.equal(before[name], value)}
    assert moved == {name for name in named if "lora_" in name}


def test_first_weights_come_from_the_seed(tiny_folder: Path) -> None:
    one, same, other = (adapted(tiny_folder, seed=seed).model.parameters for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_reference_is_the_model_with_its_adapters_off(tiny_folder: Path, suite: ChainSuite, tmp_path: Path) -> None:
    """An update with it equals, bit by bit, one whose reference is the base model itself, and shares its weights."""
    shared, whole = adapted(tiny_folder), adapted(tiny_folder)
    shared.save(tmp_path / "start")
    shared.set_reference(tmp_path / "start")
    whole.set_reference(tiny_folder)
    rollouts = play(shared, suite)
    metrics = [one.update(rollouts, random_advantage(rollouts), PENALISED, [0]) for one in (shared, whole)]
    assert metrics[0] == metrics[1]
    assert torch.equal(logits(shared), logits(whole))
    reference = shared._load_reference()
    own, frozen = (dict(model.module.named_parameters()) for model in (shared.model, reference))
    for name, value in own.items():
        assert (frozen[name].data_ptr() == value.data_ptr()) == ("lora_" not in name), name


def test_the_reference_keeps_the_adapters_it_was_saved_with(
    tiny_folder: Path, suite: ChainSuite, tmp_path: Path
) -> None:
    """After a supervised start the reference is that start, not the base model."""
    policy = adapted(tiny_folder)
    train_some(policy, suite, 0)
    started = logits(policy)
    policy.save(tmp_path)
    policy.set_reference(tmp_path)
    train_some(policy, suite, 1)
    reference = policy._load_reference()
    with torch.no_grad():
        assert torch.equal(reference.logits(torch.arange(5, 25), torch.arange(20), Segments([20])), started)
    assert not torch.equal(logits(policy), started)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_resuming_is_bit_equal(tiny_folder: Path, suite: ChainSuite, tmp_path: Path, dtype: str) -> None:
    options = ModelOptions("cpu", dtype, lora_rank=4, gradient_checkpointing=True)  # type: ignore[arg-type]
    straight = adapted(tiny_folder, options)
    train_some(straight, suite, 0)
    straight.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".safetensors", ".jinja", ".md"}
    assert not (tmp_path / "model.safetensors").exists()
    expected = train_some(straight, suite, 1)
    resumed = adapted(tiny_folder, options, seed=9)
    resumed.load(tmp_path)
    assert train_some(resumed, suite, 1) == expected
    weights = zip(straight.model.module.parameters(), resumed.model.module.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    assert {value.dtype for value in straight.model.parameters} == {torch.float32}


def test_a_checkpoint_of_another_rank_or_of_all_weights_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    policy = adapted(tiny_folder)
    policy.save(tmp_path / "four")
    with pytest.raises(CheckpointError, match="belongs to another model"):
        adapted(tiny_folder, ModelOptions("cpu", lora_rank=2)).load(tmp_path / "four")
    plain = TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=ModelOptions("cpu"))
    with pytest.raises(CheckpointError, match="Cannot read"):
        plain.load(tmp_path / "four")


def test_exported_adapters_are_merged(tiny_folder: Path, suite: ChainSuite, tmp_path: Path) -> None:
    policy = adapted(tiny_folder)
    train_some(policy, suite, 0)
    policy.save(tmp_path / "checkpoint")
    export_policy(tmp_path / "checkpoint", tiny_folder, tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    assert not [name for name, _ in model.named_parameters() if "lora" in name]
    with torch.no_grad():
        own = model(torch.arange(5, 25)[None]).logits[0]
    assert torch.allclose(own, logits(policy), atol=1e-5)
    base = TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=ModelOptions("cpu"))
    assert not torch.allclose(own, logits(base), atol=1e-3)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "plain")
    assert tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    assert tokenizer.chat_template == policy.tokenizer.chat_template
