"""A checkpoint as a plain model folder: safetensors, configuration and tokenizer, adapters merged."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from stepcredit.policy.adapters import merge_adapters
from stepcredit.policy.checkpoint import has_adapters
from stepcredit.policy.loading import load_tokenizer, load_weights, quiet


def export_policy(
    checkpoint: Path, model: str | Path, folder: Path, *, dtype: Literal["float32", "bfloat16"] = "float32"
) -> None:
    """Write a checkpoint's policy as a model folder; merging and rounding happen in float32.

    Args:
        checkpoint: what ``save_policy`` wrote.
        model: folder or hub name of the model whose adapters were trained; not needed for a checkpoint of all weights.
        folder: where to.
        dtype: of the written weights.

    Raises:
        InputError: the checkpoint or the model cannot be read.
        MissingExtraError: adapters without the extra ``lora``.
    """
    tokenizer = load_tokenizer(checkpoint)
    if has_adapters(checkpoint):
        module = merge_adapters(load_weights(model, torch.float32), checkpoint)
    else:
        module = load_weights(checkpoint, torch.float32)
    with quiet():
        module.to(torch.bfloat16 if dtype == "bfloat16" else torch.float32).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
