"""Models and tokenizers from folders and hub names. Only safetensors are read, and no code comes with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from stepcredit.core.errors import InputError, OptionError
from stepcredit.policy.adapters import add_adapters
from stepcredit.policy.model import OWN_ATTENTION, PackedModel
from stepcredit.policy.model_options import ModelOptions

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def choose_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is the first of cuda, mps and cpu that is there.

    Raises:
        OptionError: this machine has no such device.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, found in there.items() if found)
    if not there[name]:
        raise OptionError(f"This machine has no device {name!r}; set device to 'auto' or 'cpu'.")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The type of the arithmetic; ``auto`` is bfloat16 on a CUDA device that has it, float32 elsewhere."""
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def load_model(
    name: str | Path, options: ModelOptions | None = None, *, seed: int = 0, workers: int | None = None
) -> tuple[PackedModel, Any]:
    """A model and its tokenizer from a folder or by hub name.

    Args:
        name: the folder or hub name.
        options: device, types, adapters.
        seed: fixes the first weights of adapters.
        workers: see ``PackedModel``.

    Raises:
        InputError: no such folder or name, no model or no tokenizer in it.
        OptionError: the model cannot run on packed rows, or the device is not there.
        MissingExtraError: adapters without peft.
    """
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
        raise InputError(f"{str(name)!r} is neither a run nor a model folder: config.json is missing.")
    options = options or ModelOptions()
    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    tokenizer = load_tokenizer(name)
    model = load_weights(name, dtype if options.lora_rank else torch.float32)
    if options.lora_rank:
        add_adapters(model, rank=options.lora_rank, alpha=options.lora_alpha, seed=seed)
    packed = PackedModel(
        model.to(device), dtype=dtype, gradient_checkpointing=options.gradient_checkpointing, workers=workers
    )
    packed.context = min(packed.context, options.context or packed.context)
    return packed, tokenizer


def load_alike(model: PackedModel, name: str | Path) -> PackedModel:
    """Another model that computes where and how a given one does; it has no adapters.

    Raises:
        InputError: no model in safetensors there.
        OptionError: it cannot run on packed rows.
    """
    other = load_weights(name, torch.float32).to(model.device)
    return PackedModel(other, dtype=model.dtype, workers=model.workers.count)


def load_tokenizer(name: str | Path) -> Any:
    """The tokenizer of a folder or hub name.

    Raises:
        InputError: no such folder or name, or no tokenizer in it.
    """
    if not Path(name).is_dir() and not _HUB_NAME.fullmatch(str(name)):
        raise InputError(
            f"No model folder {str(name)!r}; expected a folder, a hub name such as 'Qwen/Qwen3-0.6B', or 'tiny'."
        )
    with quiet():
        try:
            return AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _not_found("tokenizer", str(name), error) from None


def load_weights(name: str | Path, dtype: torch.dtype) -> Any:
    """The model of a folder or hub name, on the CPU, its weights in one type.

    Raises:
        InputError: no causal language model in safetensors there.
    """
    with quiet():
        try:
            return AutoModelForCausalLM.from_pretrained(
                str(name),
                dtype=dtype,
                attn_implementation=OWN_ATTENTION,
                trust_remote_code=False,
                use_safetensors=True,
            )
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise _not_found("causal language model", str(name), error) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _not_found(what: str, name: str, error: Exception) -> InputError:
    """The error for a model or tokenizer that transformers could not load."""
    reason, *more = map(str.strip, str(error).strip().split("\n"))
    if reason.endswith(":"):  # it announces the lines after it
        reason = " ".join([reason, *more])
    if Path(name).is_dir():
        return InputError(f"No {what} found in {name!r}: {reason}")
    return InputError(f"There is no folder {name!r} here, and the hub gave no {what} of that name: {reason}")
