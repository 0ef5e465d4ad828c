"""Credit back into verifiers' traces: ``MessageNode.advantages``, one number per sampled token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from stepcredit.core.files import open_atomic
from stepcredit.integrations.convert.drafts import Notes
from stepcredit.integrations.convert.records import Record, read_records
from stepcredit.integrations.convert.verifiers import listings, trainable_traces


@dataclass(slots=True)
class Written:
    """What was written back.

    Attributes:
        turns: turns of the traces.
        scored: turns that got advantages; the others had none in the credit file, or no sampled tokens.
        tokens: sampled tokens that got one.
        without_tokens: scored turns whose node records no sampled tokens.
    """

    turns: int = 0
    scored: int = 0
    tokens: int = 0
    without_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "turns": self.turns,
            "scored": self.scored,
            "tokens": self.tokens,
            "without_tokens": self.without_tokens,
        }


def write_advantages(files: Sequence[Path], credit: Path, out: Path) -> Written:
    """Write traces again, with the advantage of every scored turn on each of its sampled tokens.

    A turn that was not scored keeps a node without ``advantages``, which verifiers reads as never scored. Credit and
    traces are read side by side: the credit file must come from the rollouts of the same files in the same order.

    Raises:
        InputError: a file cannot be read or written.
        FileFormatError: a place of a file does not have its form, or the files do not belong together.
    """
    written = Written()
    rows = read_records(credit)
    with open_atomic(out) as output:
        for path in files:
            for record in read_records(path):
                for node, advantage in _scores(record, rows, credit):
                    _write(node, advantage, written)
                try:
                    output.write(orjson.dumps(record.values) + b"\n")
                except TypeError:
                    raise record.fault("line", "JSON nested too deeply", "an episode of verifiers") from None
        extra = next(rows, None)
        if extra is not None:
            raise extra.fault("line", "credit of a turn that the traces do not have", "credit of these traces")
    return written


def _scores(record: Record, rows: Iterator[Record], credit: Path) -> Iterator[tuple[Record, float | None]]:
    """Every turn's node with its advantage, None where it was not scored."""
    for trace, nodes, _ in trainable_traces(record, Notes()):
        for listing in listings(trace, nodes, Notes()):
            for turn, index in enumerate(listing.sampled):
                row = next(rows, None)
                expected = f"credit of turn {turn} of {listing.name!r}, the next turn of {record.place}"
                if row is None:
                    raise record.fault("traces", f"no more lines in {str(credit)!r}", expected)
                name, number = row.required("episode", str, "a string"), row.required("turn", int, "a whole number")
                if (name, number) != (listing.name, turn):
                    raise row.fault("episode", f"turn {number} of {name!r}", expected)
                yield nodes[index], row.number("advantage", "a finite number or null")


def _write(node: Record, advantage: float | None, written: Written) -> None:
    values: dict[str, Any] = node.values  # type: ignore[assignment]  # the decoded line's own object
    written.turns += 1
    values.pop("advantages", None)
    if advantage is None:
        return
    mask = node.optional("mask", list, "a list of truths") or []
    tokens = sum(one is True for one in mask) or len(node.numbers("logprobs"))
    if tokens:
        values["advantages"] = [advantage] * tokens
        written.scored += 1
        written.tokens += tokens
    else:
        written.without_tokens += 1
