"""A model that a Python package carries, as a trainable folder: no download beside pip's.

A package carries weights in GGUF, quantised. What comes out is an ordinary model folder: float32 safetensors,
tokenizer, chat template, and a card that names origin and licence.
"""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from stepcredit.core.errors import MissingExtraError, missing_extra
from stepcredit.policy.carried import Carried
from stepcredit.policy.loading import quiet


def write_pretrained(carried: Carried, folder: Path) -> None:
    """Turn a carried model into a model folder; about a minute, and four bytes a parameter.

    Raises:
        MissingExtraError: the package, or one that reading GGUF needs, is not installed.
    """
    source = _locate(carried)
    for reader in ("gguf", "accelerate"):
        if util.find_spec(reader) is None:
            raise missing_extra(reader, "smollm2", "Reading GGUF")
    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
        tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        # The file says by number which tokens these are; transformers reads the numbers for the model alone.
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.pad_token_id)
        tokenizer.model_max_length = model.config.max_position_embeddings
        tokenizer.clean_up_tokenization_spaces = False
        model.config.name_or_path = carried.model
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(_card(carried), encoding="utf-8")


def _locate(carried: Carried) -> Path:
    """The GGUF file. The package is not imported: it would ask for its dependencies.

    Raises:
        MissingExtraError: the package is not installed.
    """
    spec = util.find_spec(carried.module)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"{carried.model} comes with the package {carried.package}, which is not installed: {carried.command}"
        )
    return Path(spec.origin).with_name(carried.file)


def _card(carried: Carried) -> str:
    version = metadata.version(carried.package)
    return (
        f"---\nlicense: {carried.licence.lower()}\n---\n\n# {carried.model}\n\n"
        f"By {carried.author}, under the {carried.licence} licence. The weights are those of {carried.file}, as the "
        f"Python package {carried.package} {version} carries it, computed back from their quantised form to float32: "
        "close to the published ones, not equal.\n"
    )
