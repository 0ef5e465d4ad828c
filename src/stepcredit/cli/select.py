"""``stepcredit select``: which checkpoint of several seeds to report, and the figure at a fixed update beside it."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path

from rich.table import Table

from stepcredit.cli.console import Console
from stepcredit.core.errors import OptionError
from stepcredit.core.objects import first_difference
from stepcredit.core.text import harmless
from stepcredit.evaluation.select import SeedMean, Selected, select_checkpoint
from stepcredit.training.config import make_config
from stepcredit.training.run_folder import RunFolder


def select(*runs: Path, on: str | None = None, fixed: int | None = None, json: bool = False) -> None:
    """Print success at the update with the highest mean over seeds, and at an update fixed in advance.

    Args:
        runs: run folders that differ in their seed alone.
        on: split that the highest mean is looked for on; the first evaluated one by default. On the others, the same
            update is shown, which is free of the choice's optimism.
        fixed: updates fixed in advance; all of them by default.
        json: print JSON on standard output instead of the table.
    """
    if not runs:
        raise OptionError("Got no run to select a checkpoint of; name the run folders of all seeds.")
    _check_recipes(runs)
    selected = select_checkpoint([RunFolder(run).metrics() for run in runs], on=on, fixed=fixed)
    if json:
        named = {"runs": [str(run) for run in runs], **selected.to_json()}
        sys.stdout.write(harmless(jsonlib.dumps(named, ensure_ascii=False)) + "\n")
    else:
        _print(selected, len(runs))


def _check_recipes(runs: tuple[Path, ...]) -> None:
    """Only runs of one recipe and different seeds have a mean over seeds.

    Raises:
        OptionError: another key than the seed differs, or a seed is there twice.
    """
    recipes = [make_config(RunFolder(run).read_config()).model_dump(mode="json") for run in runs]
    seeds = [recipe.pop("seed") for recipe in recipes]
    for run, recipe in zip(runs[1:], recipes[1:], strict=True):
        difference = first_difference(recipes[0], recipe)
        if difference is not None:
            raise OptionError(f"{str(runs[0])!r} and {str(run)!r} are no seeds of one recipe: {difference}.")
    for place, seed in enumerate(seeds):
        if seed in seeds[:place]:
            raise OptionError(f"{str(runs[place])!r} has seed {seed}, as a run before it; name every seed once.")


def _print(selected: Selected, runs: int) -> None:
    any_split = next(iter(selected.splits.values()))
    table = Table(
        title=f"Success, mean over {runs} seed{'s' if runs > 1 else ''} (deviation over seeds)",
        caption="A maximum over checkpoints is optimistic on the split it was chosen on; the fixed update is not. "
        "The mean of each run's own maximum is shown as a warning, not as a figure to report.",
    )
    table.add_column("split")
    table.add_column(
        f"maximum mean\n(update {any_split.maximum.update}, chosen on {selected.chosen_on})", justify="right"
    )
    table.add_column(f"fixed\n(update {any_split.fixed.update})", justify="right")
    table.add_column("difference", justify="right")
    table.add_column("mean of\nown maxima", justify="right")
    for split, figures in selected.splits.items():
        table.add_row(
            split,
            _cell(figures.maximum),
            _cell(figures.fixed),
            f"{figures.maximum.mean - figures.fixed.mean:+.1%}",
            f"{figures.each_maximum:.1%}",
        )
    Console().print(table)


def _cell(mean: SeedMean) -> str:
    return f"{mean.mean:.1%}" + ("" if mean.deviation is None else f" ± {mean.deviation:.1%}")
