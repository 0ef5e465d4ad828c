"""``stepcredit train``: run a recipe, or continue a run."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from stepcredit.cli.monitor import ConsoleMonitor
from stepcredit.cli.tables import print_evaluations
from stepcredit.core.errors import CheckpointError, OptionError, StepcreditError
from stepcredit.report.runs import write_report
from stepcredit.training.build import check_installed
from stepcredit.training.config import load_config, make_config
from stepcredit.training.loop import train as run_training
from stepcredit.training.run_folder import RunFolder


def train(
    *recipe: Annotated[str, Parameter(allow_leading_hyphen=True)],
    out: Path | None = None,
    resume: Path | None = None,
    engine: Literal["stepcredit", "verl"] = "stepcredit",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train an agent as a recipe says; without a recipe, the tiny model in the household.

    Any key of the recipe can be given as an option and replaces the recipe's value; keys of tables are written with
    a dot: `--method graft --method-options.lam 0.8`. `docs/training.md` lists the keys.

    Args:
        recipe: TOML file with recipe keys, and single keys as options.
        out: run folder, new or empty; by default a numbered folder below `runs/`.
        resume: run folder to continue, bit-equal with the uninterrupted run.
        engine: `verl` hands the recipe to verl, together with any `KEY=VALUE` overrides of its own given here.
        dry_run: with `--engine verl`, print the command instead of running it.
        json: print the final table as JSON on standard output.
    """
    if engine == "verl":
        train_with_verl(recipe, out=out, resume=resume, dry_run=dry_run)
        return
    if dry_run:
        raise OptionError("--dry-run prints the command of another engine; add --engine verl.")
    file, options = split_arguments(recipe)
    if resume is not None and (recipe or out is not None):
        raise OptionError("--resume continues a run as it was configured; leave recipe, --out and other options away.")
    if resume is not None:
        if not resume.is_dir():
            raise CheckpointError(f"No run folder {str(resume)!r} to resume.")
        config = make_config(RunFolder(resume).read_config())
    else:
        config = load_config(file, parse_overrides(options))
    check_installed(config)  # before there is a folder that no run would fill
    folder = resume or out or next_run_folder(Path("runs"), file)
    with RunFolder(folder) as run, ConsoleMonitor() as monitor:
        if resume is None:
            run.write_config(config.model_dump(mode="json"))
        monitor.say(f"Run folder: {folder}")
        if config.group_size == 1:
            monitor.say("Warning: group_size 1 leaves nothing to compare an episode with; most methods score it zero.")

        def refresh_report() -> None:
            try:
                write_report(folder, folder)
            except StepcreditError as error:  # a picture that cannot be drawn never ends a run
                monitor.say(f"No report: {error}")

        run_training(config, run, monitor, refresh_report)
        refresh_report()
    print_evaluations(RunFolder(folder), json=json)


def train_with_verl(tokens: Sequence[str], *, out: Path | None, resume: Path | None, dry_run: bool) -> None:
    """Print or run verl's command for a recipe; exits with verl's own status.

    Args:
        tokens: recipe file, recipe keys as options, and overrides of verl (``KEY=VALUE``, with a dot in the key).
        out: folder for verl's checkpoints and our rollout files.
        resume: refused; verl continues by itself.
        dry_run: print only.
    """
    from stepcredit.integrations.verl import launch

    if resume is not None:
        raise OptionError("verl continues by itself: start it again with the same --out instead of --resume.")
    extra = [token for token in tokens if "=" in token and "." in token.partition("=")[0] and token[:2] != "--"]
    file, options = split_arguments([token for token in tokens if token not in extra])
    command = launch.command(load_config(file, parse_overrides(options)), extra, out)
    if dry_run:
        sys.stdout.write(launch.shown(command))
    elif status := launch.run(command):
        sys.exit(status)


def split_arguments(tokens: Sequence[str]) -> tuple[Path | None, dict[str, str]]:
    """The recipe file and the recipe keys of a command line: ``FILE --key value --key=value …``.

    Raises:
        OptionError: a key without value, or a second file.
    """
    file: Path | None = None
    options: dict[str, str] = {}
    waiting = iter(tokens)
    for token in waiting:
        if not token.startswith("--"):
            if file is not None:
                raise OptionError(
                    f"Got {token!r} beside the recipe {str(file)!r}; expected one recipe, then --key value."
                )
            file = Path(token)
            continue
        key, given, value = token[2:].partition("=")
        found = value if given else next(waiting, None)
        if found is None:
            raise OptionError(f"--{key} has no value; write --{key} VALUE.")
        options[key] = found
    return file, options


def next_run_folder(parent: Path, recipe: Path | None) -> Path:
    """``PARENT/NAME-001``, the first number not taken."""
    name = recipe.stem if recipe is not None else "train"
    taken = {path.name for path in parent.iterdir()} if parent.is_dir() else set()
    number = 1
    while f"{name}-{number:03d}" in taken:
        number += 1
    return parent / f"{name}-{number:03d}"


def parse_overrides(options: Mapping[str, str]) -> dict[str, Any]:
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
