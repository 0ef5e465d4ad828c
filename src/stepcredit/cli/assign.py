"""``stepcredit assign``: credit for every turn of a rollout file, by any method of the catalogue."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from stepcredit.core.credit import Credit
from stepcredit.core.errors import OptionError
from stepcredit.core.files import STANDARD_OUTPUT, read_turns, write_credit
from stepcredit.core.text import harmless
from stepcredit.core.turns import Turns
from stepcredit.credit import catalogue


def assign(
    rollouts: Path,
    *,
    method: str,
    settings: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    preset: str | None = None,
    out: Annotated[Path, Parameter(allow_leading_hyphen=True)] = STANDARD_OUTPUT,
    json: bool = False,
) -> None:
    """Assign credit to every turn of a rollout file.

    Nothing is written unless the whole file is in order.

    Args:
        rollouts: rollout file (.jsonl or .jsonl.gz).
        method: name of a credit method; `stepcredit methods` lists them.
        settings: OPTION=VALUE, may be repeated; `stepcredit methods NAME` lists the options.
        preset: a paper's settings for a benchmark; --set goes before it.
        out: credit file to write (.gz compresses), - is standard output.
        json: print the summary on standard error as one JSON line.
    """
    chosen = catalogue.find_method(method)
    options = chosen.preset(preset) if preset is not None else {}
    options |= chosen.parse_options(_pairs(settings or ()))
    turns = read_turns(rollouts)
    credit = catalogue.assign(turns, method, **options)
    try:
        write_credit(out, turns, credit)
    except BrokenPipeError:
        # The reader of standard output has seen enough; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    summary = summarize(turns, credit, method, options)
    sys.stderr.write(harmless(jsonlib.dumps(summary, ensure_ascii=False) + "\n" if json else _sentences(summary)))


def summarize(turns: Turns, credit: Credit, method: str, options: dict[str, Any]) -> dict[str, Any]:
    """What was computed, and the diagnostics of its credit."""
    return {
        "method": method,
        "options": options,
        "turns": len(turns),
        "scored": int(credit.scored.sum()),
        "episodes": len(turns.episode_names),
        "tasks": len(turns.task_names),
        "diagnostics": dict(credit.diagnostics),
    }


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise OptionError(f"--set: got {setting!r}, expected OPTION=VALUE.")
        if name in pairs:
            raise OptionError(f"--set: got option {name!r} twice, expected it once.")
        pairs[name] = value
    return pairs


def _sentences(summary: dict[str, Any]) -> str:
    """The summary for a person: what was scored, the groups it was compared in, the size of the credit, warnings."""
    found = dict(summary["diagnostics"])
    groups, sizes, warnings = (found.pop(key) for key in ("groups", "mean_abs", "warnings"))
    lines = [
        f"{summary['method']}: {summary['scored']:,} of {summary['turns']:,} turns scored, "
        f"{summary['episodes']:,} episodes, {summary['tasks']:,} task groups",
        f"groups {groups['count']:,}, singletons {groups['singletons']:,}, "
        f"turns in groups of two or more {groups['shared']:.1%}, all equal {groups['all_equal']:,}",
        "mean " + ", ".join(f"|{name}| {value:.4g}" for name, value in sizes.items()),
        f"group sizes: {_plain(groups['sizes'])}",
        *(f"{key.replace('_', ' ')}: {_plain(value)}" for key, value in found.items()),
        *(f"warning: {warning}" for warning in warnings),
    ]
    return "".join(f"{line}\n" for line in lines)


def _plain(value: Any) -> str:
    """A number, or a dict of them, in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(part)}" for key, part in value.items()) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
