"""``stepcredit export``: the policy of a run as a plain model folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from stepcredit.core.errors import CheckpointError, OptionError, missing_extra
from stepcredit.training.config import make_config
from stepcredit.training.run_folder import RunFolder, write_folder


def export(
    run: Path, folder: Path, *, at_start: bool = False, dtype: Literal["float32", "bfloat16"] = "float32"
) -> None:
    """Write a run's newest policy as a model folder for transformers and whatever reads its format.

    Weights (safetensors), configuration, tokenizer and chat template; adapters are merged into the weights. The
    optimiser stays behind.

    Args:
        run: run folder.
        folder: folder to write, new.
        at_start: the policy that reinforcement learning began from, instead of the newest.
        dtype: of the weights. Training keeps them in float32; bfloat16 takes half the room and rounds.
    """
    source = RunFolder(run)
    config = make_config(source.read_config())
    if config.model == "linear":
        raise OptionError(f"The policy of {str(run)!r} is linear, not a language model; there is nothing to export.")
    if folder.exists():
        raise OptionError(f"{str(folder)!r} exists already; choose another folder, or remove it first.")
    newest = source.latest()
    checkpoint = run / "start" if at_start else newest and newest[1]
    if checkpoint is None or not checkpoint.is_dir():
        raise CheckpointError(f"{str(run)!r} has no checkpoint yet; let it train for a while.")
    try:
        from stepcredit.policy.export import export_policy
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "train", "A language model") from None
    model = run / "model" if config.model == "tiny" else config.model
    write_folder(folder, lambda partial: export_policy(checkpoint, model, partial, dtype=dtype))
    print(f"Exported {checkpoint}", file=sys.stderr)
    print(folder)
