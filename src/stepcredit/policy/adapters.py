"""Low-rank adapters (LoRA, arXiv 2106.09685): W + (α/r)·B·A with W frozen, A random, and B zero at first."""

from __future__ import annotations

import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepcredit.core.errors import missing_extra

WEIGHTS = "adapter_model.safetensors"
"""File of an adapter's weights, as peft names it."""

_SAVED_PREFIX = "base_model.model."
_ADAPTER = "default"


def import_peft() -> Any:
    """The peft package.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module("peft")
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "lora", "LoRA") from None


def add_adapters(model: Any, *, rank: int, alpha: float, seed: int) -> None:
    """Freeze a model and put adapters on every linear layer but the output layer; the model computes what it did.

    Args:
        model: a model of transformers, changed in place.
        rank: r.
        alpha: α.
        seed: fixes A.

    Raises:
        MissingExtraError: peft is not installed.
    """
    config = import_peft().LoraConfig(
        r=rank, lora_alpha=alpha, target_modules="all-linear", lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.add_adapter(config, adapter_name=_ADAPTER)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def is_adapted(model: Any) -> bool:
    """Whether ``add_adapters`` was here."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def saved_name(name: str) -> str:
    """The name that peft's files use for an adapter's parameter."""
    return _SAVED_PREFIX + name.replace(f".{_ADAPTER}.", ".")


def share_frozen(model: Any) -> Any:
    """A copy with adapters of its own that shares every frozen weight, so that it costs next to no memory."""
    frozen: list[Tensor] = [value for value in model.parameters() if not value.requires_grad]
    return copy.deepcopy(model, {id(value): value for value in (*frozen, *model.buffers())})


def merge_adapters(base: Any, folder: Path) -> Any:
    """The base model with an adapter folder's (α/r)·B·A added to its weights: an ordinary model.

    Raises:
        MissingExtraError: peft is not installed.
    """
    return import_peft().PeftModel.from_pretrained(base, folder).merge_and_unload()
