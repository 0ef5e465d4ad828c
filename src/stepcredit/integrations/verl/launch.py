"""Start verl with a recipe."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from stepcredit.core.errors import MissingExtraError
from stepcredit.integrations.engines.installed import VERL, check_version
from stepcredit.integrations.verl.recipe import MODULE, overrides
from stepcredit.training.config import TrainConfig


def command(config: TrainConfig, extra: Sequence[str], out: Path | None) -> list[str]:
    """The command line that trains the recipe with verl.

    Args:
        config: the recipe.
        extra: further overrides, ``KEY=VALUE``; they win.
        out: folder for checkpoints and rollouts; verl's own default without it.

    Raises:
        OptionError: the recipe asks for something that verl cannot do.
    """
    places = [] if out is None else [f"trainer.default_local_dir={out}", f"trainer.rollout_data_dir={out / 'rollouts'}"]
    return [sys.executable, "-m", MODULE, *overrides(config), *places, *extra]


def shown(arguments: Sequence[str]) -> str:
    """A command line as one pastes it into a shell, an argument a line."""
    return " \\\n    ".join([shlex.join(["python", *arguments[1:3]]), *map(shlex.quote, arguments[3:])]) + "\n"


def run(arguments: Sequence[str]) -> int:
    """Run the command to its end; verl's exit status.

    Raises:
        MissingExtraError: verl is not installed beside this stepcredit.
        OptionError: a version of verl that the plugin was not made for.
    """
    version = VERL.installed()
    if version is None:
        raise MissingExtraError(
            f"Training with verl needs verl, which is not installed here: pip install 'verl{VERL.supported}'"
        )
    check_version(VERL, version)
    return subprocess.run(arguments, check=False).returncode
