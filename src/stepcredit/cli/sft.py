"""``stepcredit sft``: fine-tune a language model on a chat file."""

from __future__ import annotations

import json as jsonlib
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from stepcredit.cli.monitor import ConsoleMonitor
from stepcredit.core.errors import OptionError, missing_extra
from stepcredit.training.build import in_words
from stepcredit.training.chats import CHAT, read_chats
from stepcredit.training.config import config_model_options, make_config
from stepcredit.training.fine_tuning import TuningSettings, fine_tune
from stepcredit.training.run_folder import write_folder

LOG = "sft.json"
"""File of the written folder that says how it came about."""


def sft(
    data: Path,
    *,
    model: str,
    out: Path,
    epochs: int = 3,
    learning_rate: float = 1e-5,
    warmup: float = 0.03,
    minibatch: int = 16,
    held_out: float = 0.1,
    micro_batch_tokens: int = 4096,
    model_options: dict[str, str] | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Train a model on the answers of a chat file and write it as a model folder, which a recipe can name as its model.

    The learning rate rises over the first steps and falls along a cosine to a tenth. The loss of conversations whose
    task is held out is measured before the first and after every epoch.

    Args:
        data: chat file of `stepcredit demonstrate`, or another in ShareGPT's form.
        model: folder or hub name.
        out: folder to write, new.
        epochs: passes over the conversations.
        learning_rate: AdamW's highest learning rate.
        warmup: share of the steps in which it rises.
        minibatch: conversations an optimiser step.
        held_out: share of the tasks that are only measured.
        micro_batch_tokens: tokens in one forward pass; bounds memory.
        model_options: as in a recipe, for example --model-options.lora-rank 16; adapters are merged in the end.
        seed: fixes the split, the order and the first weights of adapters.
        json: print the losses as JSON on standard output.
    """
    if out.exists():
        raise OptionError(f"{str(out)!r} exists already; choose another --out, or remove it first.")
    settings = TuningSettings(epochs, learning_rate, warmup, minibatch, held_out, micro_batch_tokens, seed)
    options = {name.replace("-", "_"): value for name, value in (model_options or {}).items()}
    checked = config_model_options(make_config({"model": model, "model_options": options}))
    chats = read_chats(data)
    try:
        from stepcredit.policy.export import export_policy
        from stepcredit.policy.transformer import TransformerPolicy
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "train", "A language model") from None
    policy = TransformerPolicy.from_folder(model, CHAT, model_options=checked, seed=seed, constrained=False)
    with ConsoleMonitor() as monitor:
        monitor.say(f"{len(chats)} conversations. {in_words(policy.model.describe())}")
        lines = fine_tune(policy, chats, settings, monitor)
    with tempfile.TemporaryDirectory() as scratch:
        policy.save(Path(scratch))

        def write(folder: Path) -> None:
            export_policy(Path(scratch), model, folder)
            record = {"data": data.name, "model": model, "settings": asdict(settings), "epochs": lines}
            (folder / LOG).write_text(jsonlib.dumps(record, indent=2) + "\n", encoding="utf-8")

        write_folder(out, write)
    for line in lines:
        print("  ".join(f"{name} {value:.4g}" for name, value in line.items()), file=sys.stderr)
    print(jsonlib.dumps(lines) if json else out)
