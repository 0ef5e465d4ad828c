"""SkyRL's evaluation dumps, ``DATA_SOURCE.jsonl``: prompt and response as rendered text, no ids.

With ``generator.step_wise_trajectories`` a line is one turn, and its prompt holds everything before it: lines that
continue each other, text for text, are joined to one episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepcredit.core.episodes import Turn
from stepcredit.integrations.convert.drafts import Draft, Notes
from stepcredit.integrations.convert.messages import to_turns
from stepcredit.integrations.convert.records import Record
from stepcredit.integrations.convert.rendered import split_rendered

_NAMED = frozenset({"input_prompt", "output_response", "score", "stop_reason"})


class SkyrlReader:
    """Reads evaluation dumps of SkyRL."""

    name = "skyrl"
    group_by = "input_prompt"

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """``input_prompt`` and ``output_response``."""
        return {"input_prompt", "output_response"} <= record.keys()

    def drafts(self, records: Iterable[Record], notes: Notes) -> Iterator[Draft]:
        """A draft an episode: a line, or lines that continue each other."""
        for lines in _episodes(records):
            notes.remarks["lines joined to the line before, which they continue"] += len(lines) - 1
            turns: list[Turn] = []
            for line in lines:
                messages, marked = split_rendered(line.values["input_prompt"], line.values["output_response"])
                if not marked:
                    notes.remarks["lines without marks of a chat template: the whole prompt is the observation"] += 1
                own, final = to_turns(messages)
                turns += own
                turns[-1] = replace(turns[-1], reward=_score(line))
            yield Draft(
                lines[0],
                tuple(turns),
                reward=0.0 if any(line.values.get("score") is not None for line in lines) else None,
                final_observation=final,
                stop=lines[-1].optional("stop_reason", str, "a string"),
                source=lines[0].plain(_NAMED),
            )


def _episodes(records: Iterable[Record]) -> Iterator[list[Record]]:
    lines: list[Record] = []
    text = ""
    for record in records:
        prompt = record.required("input_prompt", str, "a string")
        if lines and not (text and prompt.startswith(text)):
            yield lines
            lines = []
        lines.append(record)
        text = prompt + record.required("output_response", str, "a string")
    if lines:
        yield lines


def _score(record: Record) -> float:
    """The line's score; one score a token counts as their sum."""
    if isinstance(record.values.get("score"), list):
        return sum(record.numbers("score"))
    return record.number("score", "a finite number, or one a token") or 0.0
