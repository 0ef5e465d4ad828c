"""Checkpoints of the neural policy: safetensors and JSON, nothing that runs when read.

FOLDER/model.safetensors, config.json, tokenizer files   an ordinary model folder
FOLDER/optimizer.safetensors                             AdamW's moments and step counts, by parameter
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from stepcredit.core.errors import CheckpointError
from stepcredit.policy.model import PackedModel, quiet
from stepcredit.policy.optimizer import Optimizer

_OPTIMIZER = "optimizer.safetensors"
_WEIGHTS = "model.safetensors"


def save_policy(folder: Path, model: PackedModel, tokenizer: Any, optimizer: Optimizer) -> None:
    """Write a checkpoint into an existing or new folder; making it appear at once is the caller's business."""
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        module: Any = model.module
        module.save_pretrained(folder, max_shard_size="1TB")
        tokenizer.save_pretrained(folder)
    save_file({name: value.contiguous() for name, value in optimizer.state().items()}, folder / _OPTIMIZER)


def load_policy(folder: Path, model: PackedModel, optimizer: Optimizer) -> None:
    """Restore weights and optimiser state in place, bit by bit.

    Raises:
        CheckpointError: a file is missing, cut short, or belongs to another model.
    """
    try:
        weights = load_file(folder / _WEIGHTS)
        moments = load_file(folder / _OPTIMIZER)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"Cannot read the checkpoint {str(folder)!r}: {error}.") from None
    own = dict(model.module.named_parameters())
    unexpected = sorted(weights.keys() ^ own.keys())
    wrong = [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    if unexpected or wrong:
        first = (unexpected + sorted(wrong))[0]
        raise CheckpointError(f"The checkpoint {str(folder)!r} belongs to another model: {first!r} does not fit.")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])
    try:
        optimizer.restore(moments)
    except KeyError as error:
        raise CheckpointError(f"The checkpoint {str(folder)!r} lacks the optimiser state {error}.") from None
