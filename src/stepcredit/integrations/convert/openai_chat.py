"""Chats in the form of OpenAI's API, one a line: ``messages``, and what the log's owner put beside them.

The form knows neither rewards nor groups. ``reward`` and ``group`` are read where they are there; ``--reward`` and
``--group-by`` name other fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepcredit.integrations.convert.drafts import Draft, Notes
from stepcredit.integrations.convert.messages import read_message, to_turns
from stepcredit.integrations.convert.records import Record, compact

_NAMED = frozenset({"messages", "tools", "reward", "group", "id"})


class OpenaiReader:
    """Reads chats in the form of OpenAI's API."""

    name = "openai"
    group_by = "FIELD"

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """``messages``."""
        return "messages" in record

    def drafts(self, records: Iterable[Record], notes: Notes) -> Iterator[Draft]:
        """A draft a line."""
        for record in records:
            turns, final = to_turns(map(read_message, record.children("messages")))
            group = record.values.get("group")
            yield Draft(
                record,
                turns,
                name=record.optional("id", str, "a string"),
                group=None if group is None else compact(group, record),
                reward=record.number("reward", "a finite number"),
                final_observation=final,
                source=record.plain(_NAMED),
            )
