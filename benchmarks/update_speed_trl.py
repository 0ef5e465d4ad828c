"""TRL's part of update_speed.py: GRPOTrainer's loss and step on given rows; run in an environment that has TRL."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer


def trl_update(model: Path, batches: Sequence[dict[str, Tensor]], learning_rate: float) -> Callable[[], object]:
    """One update by the trainer: its loss of every padded batch, accumulated, and its optimiser's step.

    A row's prompt is its first token; everything after is the completion, in which ``tool_mask`` leaves the response
    tokens to be learnt. Advantages are per token, old log-probabilities given, KL and generation switched off.
    """
    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=2,
        num_generations=2,
        learning_rate=learning_rate,
        max_grad_norm=1.0,
        beta=0.0,
        loss_type="dapo",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_dropout=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa"),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["unused", "unused"]}),
        processing_class=AutoTokenizer.from_pretrained(model),
    )
    trainer.create_optimizer()
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = len(batches)
    total = sum(batch["learnt"].sum() for batch in batches)
    prepared = [_inputs(batch, total) for batch in batches]

    def update() -> None:
        for inputs in prepared:
            trainer.accelerator.backward(trainer.compute_loss(trainer.model, inputs))
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    return update


def _inputs(batch: dict[str, Tensor], total: Tensor) -> dict[str, Any]:
    """What ``GRPOTrainer`` generates and scores for a batch of rows; their last target becomes a token of its own."""
    ids = torch.cat([batch["ids"], torch.zeros(len(batch["ids"]), 1, dtype=torch.int64)], dim=1)
    mask = torch.cat([batch["mask"], torch.zeros_like(batch["mask"][:, :1])], dim=1)
    last = batch["mask"].sum(1)
    row = torch.arange(len(ids))
    ids[row, last] = batch["target"][row, last - 1]
    mask[row, last] = 1
    return {
        "prompt_ids": ids[:, :1],
        "prompt_mask": mask[:, :1],
        "completion_ids": ids[:, 1:],
        "completion_mask": mask[:, 1:],
        "tool_mask": batch["learnt"].long(),
        "advantages": batch["advantage"],
        "old_per_token_logps": torch.full(batch["ids"].shape, math.log(0.01)),
        "num_items_in_batch": total,
    }
