"""A causal language model of the transformers family, run on packed rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from stepcredit.core.errors import InputError, OptionError
from stepcredit.policy.attention import IMPLEMENTATION, Layout, Segments
from stepcredit.policy.workers import Workers

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


class PackedModel:
    """Runs a model on sequences that lie end to end in one row, and its output layer only where it is wanted.

    Args:
        model: a causal language model of transformers; switched to evaluation mode (no dropout) for good, so that
            generation and update see the same distribution.
        workers: parts of a batch computed at once; None for as many as torch has threads on a CPU, and one elsewhere.

    Raises:
        OptionError: packed rows do not give the logits that the model itself gives (sliding windows, recurrent layers,
            scaled or capped logits).
    """

    def __init__(self, model: Any, *, workers: int | None = None) -> None:
        self.module: nn.Module = model.eval()
        self.config: Any = model.config
        self._body = model.base_model
        self._head: nn.Module = model.get_output_embeddings()
        self.device: torch.device = model.device
        self.parameters = [value for value in model.parameters() if value.requires_grad]
        self.workers = Workers(workers or (torch.get_num_threads() if self.device.type == "cpu" else 1))
        own = _probe_logits(model)
        model.set_attn_implementation(IMPLEMENTATION)
        tokens = _probe_tokens(model)
        packed = None
        try:
            with torch.no_grad():
                packed = self.logits(tokens, torch.arange(len(tokens)), Segments([len(tokens)]))
        except (TypeError, AttributeError, AssertionError):
            pass  # an architecture that does not hand the layout through
        if packed is None or not torch.allclose(packed.float(), own.float(), rtol=1e-2, atol=1e-2):
            raise OptionError(
                f"{type(model).__name__} cannot run on packed rows; "
                f"choose a model with plain causal attention in every layer, such as Llama, Qwen 2 or Qwen 3."
            )

    def logits(self, tokens: Tensor, positions: Tensor, layout: Layout, select: Tensor | None = None) -> Tensor:
        """Next-token logits ``[M, V]``.

        Args:
            tokens: ``[T]`` ids of all sequences end to end.
            positions: ``[T]`` position of each token in its own sequence.
            layout: which token sees which.
            select: ``[M]`` places whose successor is asked for; None for all ``T``.
        """
        hidden: Tensor = self._body(
            input_ids=tokens[None].to(self.device),
            position_ids=positions[None].to(self.device),
            use_cache=False,
            layout=layout,
        ).last_hidden_state[0]
        logits: Tensor = self._head(hidden if select is None else hidden[select.to(self.device)])
        return logits


def _probe_tokens(model: Any) -> Tensor:
    vocabulary: int = model.config.get_text_config().vocab_size
    return torch.arange(12, device=model.device) % vocabulary


def _probe_logits(model: Any) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=_probe_tokens(model)[None], use_cache=False).logits[0]
    return logits


def load_model(name: str | Path, *, device: str = "cpu", workers: int | None = None) -> tuple[PackedModel, Any]:
    """A model, in float32, and its tokenizer from a folder or by hub name.

    Args:
        name: the folder or hub name.
        device: where the model lives.
        workers: see ``PackedModel``.

    Raises:
        InputError: no such folder or name, no model or no tokenizer in it.
        OptionError: the model cannot run on packed rows.
    """
    if not Path(name).is_dir() and not _HUB_NAME.fullmatch(str(name)):
        raise InputError(
            f"No model folder {str(name)!r}; expected a folder, a hub name such as 'Qwen/Qwen3-0.6B', or 'tiny'."
        )
    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(name))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"No tokenizer found in {str(name)!r}: {_first_line(error)}") from None
        try:
            model = AutoModelForCausalLM.from_pretrained(str(name), dtype=torch.float32, attn_implementation="sdpa")
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"No causal language model found in {str(name)!r}: {_first_line(error)}") from None
    return PackedModel(model.to(device), workers=workers), tokenizer


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


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
