"""Writes ``trl_completions.parquet`` with TRL's GRPO trainer: trl 1.16.0 and stepcredit, then ``python make_trl.py``.

The trainer logs completions itself; what it logs is put in place of a generation, since no model this small calls
tools. Two prompts, two completions each: chats with tool calls, two reward functions (one gives no reward to one row)
and a column that a reward function logged.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from stepcredit.policy.tiny import build_tiny_model

os.environ["TQDM_DISABLE"] = "1"


def call(name: str, **arguments: str) -> dict[str, Any]:
    """A message that calls a tool."""
    return {
        "role": "assistant",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def answer(name: str, content: str) -> dict[str, Any]:
    """A tool's answer."""
    return {"role": "tool", "name": name, "content": content}


def said(content: str) -> dict[str, Any]:
    """A message without a call."""
    return {"role": "assistant", "content": content}


CRANE, SLATE = ([{"role": "user", "content": f"Guess the word like {word}."}] for word in ("crane", "slate"))
COMPLETIONS = [
    [
        call("guess", word="brave"),
        answer("guess", "-GG-G"),
        call("check", letter="c"),
        answer("check", "yes"),
        said("crane"),
    ],
    [call("guess", word="brave"), answer("guess", "-GG-G"), said("grape")],
    [said("slate")],
    [call("guess", word="plate"), answer("guess", "-GGGG"), said("plate")],
]
LOGGED: dict[str, Any] = {
    "prompt": [CRANE, CRANE, SLATE, SLATE],
    "completion": COMPLETIONS,
    "rewards": {"solved": [1.0, 0.0, 1.0, 0.0], "short": [0.25, 0.5, math.nan, 0.5]},
    "advantages": [0.7, -0.7, 0.7, -0.7],
    "extra": {"answer": ["crane", "crane", "slate", "slate"]},
}


def solved(completions: list[Any], **_: Any) -> list[float]:
    """A reward function, for the trainer's constructor."""
    return [0.0] * len(completions)


def write(folder: Path) -> None:
    """Write the completions into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        build_tiny_model(Path(scratch), ["guess a word"], (), seed=0)
        arguments = GRPOConfig(
            output_dir=scratch,
            log_completions=True,
            num_generations=2,
            per_device_train_batch_size=4,
            use_cpu=True,
            bf16=False,
            report_to=[],
            num_completions_to_print=0,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(scratch),
            reward_funcs=[solved],
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": ["guess"] * 4}),
            processing_class=AutoTokenizer.from_pretrained(scratch),
        )
        for name in ("prompt", "completion", "advantages"):
            trainer._logs[name].extend(LOGGED[name])
        for kind in ("rewards", "extra"):
            for name, values in LOGGED[kind].items():
                trainer._logs[kind][name].extend(values)
        trainer.state.global_step = 12
        trainer.log({})
        written = Path(scratch, "completions", "completions_00012.parquet")
        shutil.move(written, folder / "trl_completions.parquet")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(Path(__file__).parent)
