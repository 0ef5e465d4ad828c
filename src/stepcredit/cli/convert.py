"""``stepcredit convert``: logs of other stacks as a rollout file, and credit back into verifiers' traces."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from stepcredit.core.errors import OptionError
from stepcredit.core.files import STANDARD_OUTPUT
from stepcredit.core.text import harmless
from stepcredit.integrations.convert import conversion, write_back


def convert(
    files: Annotated[list[Path], Parameter(negative="")],
    *,
    out: Annotated[Path, Parameter(allow_leading_hyphen=True)] = STANDARD_OUTPUT,
    format: str | None = None,
    group_by: Annotated[str | None, Parameter(allow_leading_hyphen=False)] = None,
    reward: str | None = None,
    success_above: float = 0.0,
    to: Literal["rollouts", "verifiers"] = "rollouts",
    credit: Path | None = None,
    json: bool = False,
) -> None:
    """Turn logs of verl, TRL, verifiers, prime-rl, Harbor, SkyRL or OpenAI chats into a rollout file.

    The rollout file appears only if all files are in order; standard output gets each episode as it is read.

    Args:
        files: log files (.jsonl, .jsonl.gz, .json, .parquet); formats may differ.
        out: rollout file to write (.gz compresses), - is standard output.
        format: verl, trl, verifiers, atif, skyrl or openai; recognised by the fields of the first record without it.
        group_by: FIELD[,FIELD]... whose values together name a task group; the log's own group ids without it.
        reward: field with the episode's reward, where it is not where the format keeps it.
        success_above: an episode is a success where its return is above this.
        to: verifiers: write traces again, with the advantages of --credit on their sampled tokens.
        credit: credit file of these traces' rollouts, for --to verifiers.
        json: print the summary on standard error as one JSON line.
    """
    if (to == "verifiers") != (credit is not None):
        raise OptionError("--to verifiers and --credit FILE belong together; got one without the other.")
    try:
        if credit is not None:
            summary = write_back.write_advantages(files, credit, out).as_json()
        else:
            fields = tuple(field.strip() for field in group_by.split(",")) if group_by else ()
            choices = conversion.Choices(format, fields, reward, success_above)
            summary = conversion.convert(files, out, choices).as_json()
    except BrokenPipeError:
        # The reader of standard output has seen enough; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    sys.stderr.write(harmless(jsonlib.dumps(summary, ensure_ascii=False) + "\n" if json else _sentences(summary)))


def _sentences(summary: dict[str, Any]) -> str:
    """The summary for a person."""
    if "tokens" in summary:
        without = summary["without_tokens"]
        return (
            f"{summary['scored']:,} of {summary['turns']:,} turns written back, {summary['tokens']:,} sampled tokens"
            + (f"; {without:,} turns have credit and no sampled tokens" if without else "")
            + "\n"
        )
    files = ", ".join(f"{count} of {name}" for name, count in summary["formats"].items())
    lines = [
        f"files: {files}",
        f"{summary['episodes']:,} episodes ({summary['successes']:,} successes, {summary['branches']:,} branches) in "
        f"{summary['tasks']:,} task groups ({summary['singletons']:,} of one episode), {summary['turns']:,} turns, "
        f"{summary['turns_with_logprobs']:,} with log-probabilities",
        *(f"skipped: {count:,} {what}" for what, count in summary["skipped"].items()),
        *(f"note: {count:,} {what}" for what, count in summary["remarks"].items()),
    ]
    return "".join(f"{line}\n" for line in lines)
