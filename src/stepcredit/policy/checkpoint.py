"""Checkpoints of the neural policy: safetensors and JSON, nothing that runs when read.

FOLDER/model.safetensors, config.json, tokenizer files          an ordinary model folder
FOLDER/adapter_model.safetensors, adapter_config.json, …        instead of the two, where only adapters are trained
FOLDER/optimizer.safetensors                                    AdamW's moments and step counts, by parameter
FOLDER/critic.safetensors                                       the critic with its optimiser, where there is one
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stepcredit.core.errors import CheckpointError
from stepcredit.policy.adapters import WEIGHTS as ADAPTER_WEIGHTS
from stepcredit.policy.adapters import is_adapted, saved_name
from stepcredit.policy.critic import Critic
from stepcredit.policy.loading import quiet
from stepcredit.policy.model import PackedModel
from stepcredit.policy.optimizer import Optimizer

OPTIMIZER = "optimizer.safetensors"
"""File of the optimiser's state; everything else in the folder is the model's."""
_WEIGHTS = "model.safetensors"


def has_adapters(folder: Path) -> bool:
    """Whether a folder holds adapters and not a whole model."""
    return (folder / ADAPTER_WEIGHTS).exists()


def save_policy(
    folder: Path, model: PackedModel, tokenizer: Any, optimizer: Optimizer, critic: Critic | None = None
) -> None:
    """Write a checkpoint into an existing or new folder; making it appear at once is the caller's business.

    Raises:
        OSError: the disk refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with quiet():
            module: Any = model.module
            module.save_pretrained(folder, max_shard_size="1TB")
            tokenizer.save_pretrained(folder)
        save_file({name: value.contiguous() for name, value in optimizer.state().items()}, folder / OPTIMIZER)
        if critic is not None:
            critic.save(folder)
    except SafetensorError as error:  # a full disk, as its writer calls it
        raise OSError(str(error)) from error


def load_policy(folder: Path, model: PackedModel, optimizer: Optimizer) -> None:
    """Restore weights and optimiser state in place, bit by bit.

    Raises:
        CheckpointError: a file is missing, cut short, or belongs to another model.
    """
    moments = _read(folder, OPTIMIZER)
    load_trained(folder, model)
    try:
        optimizer.restore(moments)
    except KeyError as error:
        raise CheckpointError(f"The checkpoint {str(folder)!r} lacks the optimiser state {error}.") from None


def load_trained(folder: Path, model: PackedModel) -> None:
    """Restore the weights that a checkpoint holds: all of them, or the adapters'.

    Raises:
        CheckpointError: a file is missing, cut short, or belongs to another model.
    """
    adapted = is_adapted(model.module)
    weights = _read(folder, ADAPTER_WEIGHTS if adapted else _WEIGHTS)
    own = {
        saved_name(name) if adapted else name: parameter
        for name, parameter in _stored_parameters(model.module, adapted=adapted)
    }
    unexpected = sorted(weights.keys() ^ own.keys())
    wrong = [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    if unexpected or wrong:
        first = (unexpected + sorted(wrong))[0]
        raise CheckpointError(f"The checkpoint {str(folder)!r} belongs to another model: {first!r} does not fit.")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def _stored_parameters(module: nn.Module, *, adapted: bool) -> list[tuple[str, nn.Parameter]]:
    return [(name, value) for name, value in module.named_parameters() if value.requires_grad or not adapted]


def _read(folder: Path, file: str) -> dict[str, Tensor]:
    try:
        stored: dict[str, Tensor] = load_file(folder / file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"Cannot read {str(folder / file)!r}: {error}.") from None
    return stored
