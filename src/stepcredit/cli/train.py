"""``stepcredit train``: run a recipe, or continue a run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from stepcredit.cli.monitor import ConsoleMonitor
from stepcredit.cli.tables import print_evaluations
from stepcredit.core.errors import CheckpointError, OptionError
from stepcredit.training.config import load_config, make_config
from stepcredit.training.loop import train as run_training
from stepcredit.training.run_folder import RunFolder


def train(
    recipe: Path | None = None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    json: bool = False,
    **options: Annotated[str, Parameter(help="any recipe key, for example --method graft --method-options.lam 0.8")],
) -> None:
    """Train an agent as a recipe says; without a recipe, the tiny model in the household.

    Any key of the recipe can be given as an option and replaces the recipe's value; keys of tables are written with
    a dot. `docs/training.md` lists the keys.

    Args:
        recipe: TOML file with recipe keys.
        out: run folder, new or empty; by default a numbered folder below `runs/`.
        resume: run folder to continue, bit-equal with the uninterrupted run.
        json: print the final table as JSON on standard output.
    """
    if resume is not None and (recipe is not None or options or out is not None):
        raise OptionError("--resume continues a run as it was configured; leave recipe, --out and other options away.")
    if resume is not None:
        if not resume.is_dir():
            raise CheckpointError(f"No run folder {str(resume)!r} to resume.")
        config = make_config(RunFolder(resume).read_config())
    else:
        config = load_config(recipe, parse_overrides(options))
    folder = resume or out or next_run_folder(Path("runs"), recipe)
    with RunFolder(folder) as run, ConsoleMonitor() as monitor:
        if resume is None:
            run.write_config(config.model_dump(mode="json"))
        monitor.say(f"Run folder: {folder}")
        run_training(config, run, monitor)
    print_evaluations(RunFolder(folder), json=json)


def next_run_folder(parent: Path, recipe: Path | None) -> Path:
    """``PARENT/NAME-001``, the first number not taken."""
    name = recipe.stem if recipe is not None else "train"
    taken = {path.name for path in parent.iterdir()} if parent.is_dir() else set()
    number = 1
    while f"{name}-{number:03d}" in taken:
        number += 1
    return parent / f"{name}-{number:03d}"


def parse_overrides(options: dict[str, str]) -> dict[str, Any]:
    """Command-line strings as recipe values: TOML where it reads as TOML, else text; dots make tables."""
    values: dict[str, Any] = {}
    for key, text in options.items():
        name, _, inner = key.replace("-", "_").partition(".")
        value = _toml_value(text)
        if inner:
            table = values.setdefault(name, {})
            if not isinstance(table, dict):
                raise OptionError(f"--{key} and --{name} exclude each other; give the whole table or single keys.")
            table[inner] = value
        else:
            values[name] = value
    return values


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
