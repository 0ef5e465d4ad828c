"""Checkpoints: exact resume, ordinary folders, and refusals."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from policy.conftest import COMPACT, ONE_STEP, MakePolicy, chain_texts, play, random_advantage
from policy.test_supervised import expert_rollouts
from stepcredit.core.errors import CheckpointError, InputError
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.optimizer import Optimizer
from stepcredit.policy.settings import ImitateSettings
from stepcredit.policy.tiny import build_tiny_model
from stepcredit.policy.transformer import TransformerPolicy


def train_some(policy: TransformerPolicy, suite: ChainSuite, seed: int) -> list[dict[str, float]]:
    experts = expert_rollouts(suite, 6)
    weight = np.ones(sum(len(rollout.responses) for rollout in experts))
    metrics = [policy.imitate(experts, weight, ImitateSettings(minibatch=4), [seed])]
    rollouts = play(policy, suite, seed=seed)
    metrics.append(policy.update(rollouts, random_advantage(rollouts), ONE_STEP, [seed]))
    return metrics


def weights_of(policy: TransformerPolicy) -> list[torch.Tensor]:
    return [value.detach().clone() for value in policy.model.module.parameters()]


def test_resuming_is_bit_equal(make_policy: MakePolicy, suite: ChainSuite, tmp_path: Path) -> None:
    straight = make_policy()
    train_some(straight, suite, 0)
    straight.save(tmp_path / "checkpoint")
    expected = train_some(straight, suite, 1)
    resumed = make_policy()
    train_some(resumed, suite, 5)  # whatever was there is replaced
    resumed.load(tmp_path / "checkpoint")
    assert train_some(resumed, suite, 1) == expected
    assert all(torch.equal(a, b) for a, b in zip(weights_of(straight), weights_of(resumed), strict=True))
    assert straight.optimizer.state().keys() == resumed.optimizer.state().keys()
    for name, value in straight.optimizer.state().items():
        assert torch.equal(value, resumed.optimizer.state()[name]), name


def test_a_fresh_optimiser_is_restored_too(make_policy: MakePolicy, suite: ChainSuite, tmp_path: Path) -> None:
    fresh, used = make_policy(), make_policy()
    fresh.save(tmp_path)
    train_some(used, suite, 0)
    used.load(tmp_path)
    assert used.optimizer.state() == {}
    assert train_some(used, suite, 1) == train_some(fresh, suite, 1)


def test_moments_come_to_where_the_weights_are() -> None:
    """Files are read on the CPU; AdamW wants its moments beside the weights, and its step counts on the CPU."""
    there = Optimizer(torch.nn.Linear(2, 1, device="meta"))
    read = {
        f"{name}/{moment}": torch.ones(shape)
        for name, shape in (("weight", (1, 2)), ("bias", (1,)))
        for moment in ("exp_avg", "exp_avg_sq")
    }
    there.restore({**read, "weight/step": torch.tensor(3.0), "bias/step": torch.tensor(3.0)})
    devices = {name: value.device.type for name, value in there.state().items()}
    assert devices == {name: "cpu" if name.endswith("step") else "meta" for name in devices}
    assert len(devices) == 6


def test_a_checkpoint_is_an_ordinary_model_folder(make_policy: MakePolicy, suite: ChainSuite, tmp_path: Path) -> None:
    policy = make_policy()
    train_some(policy, suite, 0)
    policy.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    ids = tokenizer("open red door", return_tensors="pt")["input_ids"]
    module = policy.model.module
    module.set_attn_implementation("sdpa")
    with torch.no_grad():
        assert torch.equal(model(ids).logits, module(ids).logits)
    loaded = TransformerPolicy.from_folder(tmp_path, COMPACT)
    assert all(torch.equal(a, b) for a, b in zip(weights_of(policy), weights_of(loaded), strict=True))
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".safetensors", ".jinja"}


def test_broken_checkpoints_are_refused(make_policy: MakePolicy, suite: ChainSuite, tmp_path: Path) -> None:
    policy = make_policy()
    train_some(policy, suite, 0)
    policy.save(tmp_path)
    before = weights_of(policy)
    with pytest.raises(CheckpointError, match=r"Cannot read '.*optimizer\.safetensors"):
        policy.load(tmp_path / "absent")
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"Cannot read '.*model\.safetensors"):
        policy.load(tmp_path)
    weights.write_bytes(whole)
    wide = tmp_path / "wide"
    build_tiny_model(wide, chain_texts(suite), ["red door", "blue door"], seed=3, width=48, heads=2)
    (wide / "optimizer.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="belongs to another model"):
        policy.load(wide)
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(policy), strict=True))


def test_folders_without_model_or_tokenizer_are_refused_in_one_sentence(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No model folder 'no/such/place'"):
        TransformerPolicy.from_folder("no/such/place", COMPACT)
    with pytest.raises(InputError, match="is neither a run nor a model folder: config"):
        TransformerPolicy.from_folder(tmp_path, COMPACT)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny_folder / name).read_bytes())
    with pytest.raises(InputError, match="No tokenizer") as caught:
        TransformerPolicy.from_folder(tmp_path, COMPACT)
    assert "\n" not in str(caught.value)
    (tmp_path / "model.safetensors").unlink()
    for path in tiny_folder.iterdir():
        if path.name.startswith(("tokenizer", "chat")):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="No causal language model") as caught:
        TransformerPolicy.from_folder(tmp_path, COMPACT)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        "We couldn't connect to 'https://hub' to load the files, and couldn't find them in the cached files.\nTry.",
        "runs/nine is not a local folder and is not a valid model identifier listed on 'https://hub/models'\nIf this",
    ],
)
def test_a_folder_that_is_not_there_is_not_only_the_hubs_fault(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a hub's name may be a folder's; the sentence tells of both."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(answer)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(InputError) as caught:
        TransformerPolicy.from_folder("runs/nine", COMPACT)
    reason = answer.split("\n")[0]
    expected = f"There is no folder 'runs/nine' here, and the hub gave no tokenizer of that name: {reason}"
    assert str(caught.value) == expected


def test_a_reason_of_several_lines_is_told_whole(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("None of these worked: \n(1) one,\n(2) two.\n")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(InputError, match=r"found in '.*': None of these worked: \(1\) one, \(2\) two\.$"):
        TransformerPolicy.from_folder(tiny_folder, COMPACT)


SCRIPT = """
import sys
from pathlib import Path
import torch
from policy.test_checkpoint import trained_weights
torch.set_num_threads(1)
print(trained_weights(Path(sys.argv[1])))
"""


def trained_weights(folder: Path) -> str:
    policy = TransformerPolicy.from_folder(folder, COMPACT)
    metrics = train_some(policy, ChainSuite(length=2, doors=3), 0)
    weights = b"".join(value.numpy().tobytes() for value in weights_of(policy))
    return f"{hashlib.sha256(weights).hexdigest()} {metrics}"


def test_the_same_bits_in_every_process(tiny_folder: Path) -> None:
    other = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tiny_folder)],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        check=True,
        text=True,
    )
    assert other.stdout.strip() == trained_weights(tiny_folder)
