"""TRL's completions, ``OUTPUT_DIR/completions/completions_STEP.parquet`` (``log_completions=True``).

A row is a completion: a chat with tool calls and results, or plain text. Rows carry no group id. Every column of
fractions that TRL does not name is a reward function's, or a number that one of them logged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepcredit.integrations.convert.drafts import Draft, Notes
from stepcredit.integrations.convert.messages import POLICY, Message, read_message, to_turns
from stepcredit.integrations.convert.records import Record
from stepcredit.integrations.convert.rendered import split_rendered

_NAMED = frozenset({"step", "prompt", "completion", "advantage"})


class TrlReader:
    """Reads completions that TRL's GRPO trainer logs."""

    name = "trl"
    group_by = "step,prompt"

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """``prompt``, ``completion`` and ``advantage``."""
        return {"prompt", "completion", "advantage"} <= record.keys()

    def drafts(self, records: Iterable[Record], notes: Notes) -> Iterator[Draft]:
        """A draft a row."""
        for record in records:
            rewards = _rewards(record)
            if len(rewards) > 1:
                notes.remarks[f"rows whose reward is the sum of {' + '.join(rewards)} (choose with --reward)"] += 1
            turns, final = to_turns(_messages(record, notes))
            known = [value for value in rewards.values() if value is not None]
            yield Draft(
                record,
                turns,
                reward=math.fsum(known) if known else None,
                final_observation=final,
                source=_finite(record.plain(_NAMED - {"step", "advantage"})),
            )


def _messages(record: Record, notes: Notes) -> list[Message]:
    prompt, completion = record.values.get("prompt"), record.values.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        messages, marked = split_rendered(prompt, completion)
        if not marked:
            notes.remarks["rows of plain text without marks of a chat template: the whole completion is one turn"] += 1
        return messages
    if isinstance(prompt, str):
        return [Message("user", prompt), *map(read_message, record.children("completion"))]
    before = [read_message(message) for message in record.children("prompt")]
    context = [Message(one.role, one.text, sampled=False) for one in before]
    if isinstance(completion, str):
        return [*context, Message(POLICY, completion)]
    return [*context, *map(read_message, record.children("completion"))]


def _rewards(record: Record) -> dict[str, float | None]:
    """The reward columns of a row; None where a function gave no reward (a missing number, NaN in the file)."""
    rewards: dict[str, float | None] = {}
    for name, value in record.values.items():
        if name not in _NAMED and isinstance(value, float):
            rewards[name] = None if math.isnan(value) else record.number(name, "a finite number")
    return rewards


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}
