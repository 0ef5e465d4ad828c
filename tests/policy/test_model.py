"""Loading models: options and what they change, limits of the context, chat templates, and what is never run."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from policy.conftest import COMPACT, ONE_STEP, WINDOW, MakePolicy, play, random_advantage, turn_count
from policy.test_supervised import expert_rollouts
from stepcredit.core.errors import InputError, OptionError
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.attention import Segments
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.loading import choose_device, choose_dtype, load_model
from stepcredit.policy.model import PackedModel
from stepcredit.policy.model_options import ModelOptions
from stepcredit.policy.settings import ImitateSettings
from stepcredit.policy.tokens import Codec
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import PastTurn, Request, Response

CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message.role != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_the_model_says_what_it_is(tiny_folder: Path) -> None:
    model, _ = load_model(tiny_folder, ModelOptions(device="cpu", context=100), workers=1)
    facts = model.describe()
    assert facts["parameters"] == facts["trained_parameters"] == sum(value.numel() for value in model.parameters)
    assert facts | {"parameters": 0, "trained_parameters": 0} == {
        "architecture": "LlamaForCausalLM",
        "parameters": 0,
        "trained_parameters": 0,
        "weights": "float32",
        "arithmetic": "float32",
        "device": "cpu",
        "attention": "packed rows, scaled dot product",
        "context": 100,
        "gradient_checkpointing": False,
        "workers": 1,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "Unknown device 'gpu'. Did you mean 'cpu'?"),
        ({"dtype": "bfloat"}, "Unknown dtype 'bfloat'. Did you mean 'bfloat16'?"),
        ({"context": -1}, "context is -1; expected 0 or more."),
        ({"lora_rank": -2}, "lora_rank is -2; expected 0 or more."),
        ({"lora_alpha": 0.0}, "lora_alpha is 0.0; expected a finite number above 0."),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        ModelOptions(**options)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_auto_is_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(OptionError, match="no device 'cuda'; set device to 'auto' or 'cpu'"):
        choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert choose_device("auto") == torch.device("cuda")
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32
    assert choose_dtype("bfloat16", torch.device("cpu")) == torch.bfloat16


def test_bfloat16_rounds_the_arithmetic_and_not_the_weights(tiny_folder: Path, suite: ChainSuite) -> None:
    policy = TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=ModelOptions("cpu", "bfloat16"))
    exact = TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=ModelOptions("cpu"))
    tokens, positions, layout = torch.arange(5, 25), torch.arange(20), Segments([20])
    with torch.no_grad():
        rounded, whole = (one.model.logits(tokens, positions, layout) for one in (policy, exact))
    assert rounded.dtype == torch.float32
    assert 1e-5 < float((rounded - whole).norm() / whole.norm()) < 0.05
    rollouts = play(policy, suite)
    before = [value.clone() for value in policy.model.parameters]
    metrics = policy.update(rollouts, random_advantage(rollouts), ONE_STEP, [0])
    assert metrics["ratio_deviation"] < 0.05
    assert {value.dtype for value in policy.model.parameters} == {torch.float32}
    assert not all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters, strict=True))


@pytest.mark.parametrize("template", [COMPACT, WINDOW], ids=["append-only", "window"])
def test_gradient_checkpointing_changes_no_bit(tiny_folder: Path, suite: ChainSuite, template: PromptTemplate) -> None:
    results = []
    for recompute in (False, True):
        options = ModelOptions("cpu", gradient_checkpointing=recompute)
        policy = TransformerPolicy.from_folder(tiny_folder, template, model_options=options, workers=1)
        rollouts = play(policy, suite)
        calls: list[int] = []
        layer = next(part for part in policy.model.module.modules() if isinstance(part, GradientCheckpointingLayer))
        layer.self_attn.register_forward_hook(lambda *_, calls=calls: calls.append(1))  # type: ignore[operator, union-attr]
        metrics = policy.update(rollouts, random_advantage(rollouts), ONE_STEP, [0])
        results.append((metrics, [value.detach().clone() for value in policy.model.parameters], len(calls)))
    (plain, weights, once), (metrics, recomputed, twice) = results
    assert metrics == plain
    assert all(torch.equal(a, b) for a, b in zip(weights, recomputed, strict=True))
    assert twice == 2 * once


def test_a_prompt_beyond_the_context_fails_its_own_episode(tiny_folder: Path, suite: ChainSuite) -> None:
    """Episodes that need a fifth turn outgrow the context; those that do not are played as ever."""
    free = TransformerPolicy.from_folder(tiny_folder, COMPACT, max_response_tokens=8)
    tasks = suite.tasks("train")[:12]
    whole = collect(free, suite, tasks, group_size=1, horizon=6, seed=[0]).rollouts
    lengths = [
        np.cumsum([len(one.record.prompt) + len(one.record.response) for one in rollout.responses]) for rollout in whole
    ]
    limit = int(max(length[:4][-1] for length in lengths)) + 8
    options = ModelOptions("cpu", context=limit)
    narrow = TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=options, max_response_tokens=8)
    played = collect(narrow, suite, tasks, group_size=1, horizon=6, seed=[0])
    failed = [rollout for rollout in played.rollouts if rollout.episode.stop == "error"]
    assert 0 < len(failed) < len(tasks)
    assert not played.failures
    for rollout in failed:
        reason = rollout.episode.extra["error"]
        assert reason.startswith("response: the prompt has ")
        assert reason.endswith(f"and at most {limit - 8} fit")
    for one, other in zip(whole, played.rollouts, strict=True):
        shared = len(other.responses)
        assert [turn.action for turn in one.episode.turns][:shared] == [turn.action for turn in other.episode.turns]
        if other not in failed:
            assert one.episode == other.episode
    narrow.update(played.rollouts, np.zeros(turn_count(played.rollouts)), ONE_STEP, [0])


def test_a_response_must_leave_room_for_a_prompt(tiny_folder: Path) -> None:
    with pytest.raises(OptionError, match="max_response_tokens is 64, and the context holds 64 tokens"):
        TransformerPolicy.from_folder(tiny_folder, COMPACT, model_options=ModelOptions("cpu", context=64))


def test_a_sliding_window_bounds_the_context() -> None:
    config = MistralConfig(
        vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=200, sliding_window=24,
    )  # fmt: skip
    torch.manual_seed(0)
    model = PackedModel(MistralForCausalLM(config).eval())
    assert model.context == 24
    plain = MistralForCausalLM(deepcopy(config)).eval()
    plain.set_attn_implementation("sdpa")
    plain.load_state_dict(model.module.state_dict())
    tokens = torch.arange(24)
    with torch.no_grad():
        assert torch.allclose(
            model.logits(tokens, torch.arange(24), Segments([24])), plain(tokens[None]).logits[0], atol=1e-5
        )


def test_code_in_a_folder_is_never_run(tiny_folder: Path, tmp_path: Path) -> None:
    for file in tiny_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    with pytest.raises(InputError):
        load_model(tmp_path)
    assert not marker.exists()


def test_pickled_weights_are_never_read(tiny_folder: Path, tmp_path: Path) -> None:
    for file in tiny_folder.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="No causal language model found"):
        load_model(tmp_path)


def chatml(tiny_folder: Path) -> Codec:
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.chat_template = CHATML
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]})
    return Codec(tokenizer)


def test_turns_stand_in_the_chat_template_as_in_a_whole_conversation(tiny_folder: Path) -> None:
    """Chunks, end to end, are the conversation that the template itself writes, the system's words included."""
    codec = chatml(tiny_folder)
    conversation = Conversation(COMPACT, codec)
    messages, history = [], []
    chunks: list[int] = []
    for seen, said in (("a red lamp", "open red door"), ("a blue lamp", "wait")):
        request = Request(0, "out", tuple(history), seen, (), 5)
        chunks += conversation.prompts([request])[0].tolist()
        messages.append({"role": "user", "content": COMPACT.render(request)})
        whole = codec.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert chunks == codec.tokenizer(whole, add_special_tokens=False)["input_ids"]
        chunks += codec.response(said)
        messages.append({"role": "assistant", "content": said})
        history.append(PastTurn(seen, Response(said, (), 0.0), said))
    assert chunks.count(codec.tokenizer.convert_tokens_to_ids("<|im_start|>")) == 5


def test_a_self_contained_message_opens_its_own_conversation(tiny_folder: Path) -> None:
    codec = chatml(tiny_folder)
    past = PastTurn("a red lamp", Response("open red door", (), 0.0), "open red door")
    request = Request(0, "out", (past,), "a blue lamp", (), 5)
    (prompt,) = Conversation(WINDOW, codec).prompts([request])
    text = codec.tokenizer.decode(prompt.tolist())
    whole = codec.tokenizer.apply_chat_template(
        [{"role": "user", "content": WINDOW.render(request)}], tokenize=False, add_generation_prompt=True
    )
    assert prompt.tolist() == codec.tokenizer(whole, add_special_tokens=False)["input_ids"]
    assert "open red door" in text


def test_held_out_loss_is_the_loss_of_imitation_and_learns_nothing(make_policy: MakePolicy, suite: ChainSuite) -> None:
    policy = make_policy()
    rollouts = expert_rollouts(suite, 5)
    weight = np.ones(turn_count(rollouts))
    weight[::3] = 0.0
    before = [value.clone() for value in policy.model.parameters]
    measured = policy.response_nll(rollouts, weight)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters, strict=True))
    settings = ImitateSettings(observation_weight=0.0, minibatch=len(rollouts))
    assert policy.imitate(rollouts, weight, settings, [0])["response_nll"] == pytest.approx(measured, rel=1e-5)
    assert policy.response_nll([], np.zeros(0)) == 0.0
