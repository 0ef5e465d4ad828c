"""verl's rollout dumps: ``trainer.rollout_data_dir`` and ``trainer.validation_data_dir``, one file a step.

The V1 trainer writes one line a training row, ``uid`` = ``PROMPT_SESSION_ROW``, sorted: rows of one rollout stand
together and are its turns. The v0 trainer writes no ids: a line is a whole episode.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepcredit.core.episodes import Turn
from stepcredit.integrations.convert.drafts import Draft, Notes
from stepcredit.integrations.convert.messages import to_turns
from stepcredit.integrations.convert.records import Record
from stepcredit.integrations.convert.rendered import split_rendered

_PADDING = "pad"
"""How the key of a padding row starts; a real one starts with a hexadecimal number."""
_NAMED = frozenset({"input", "output", "score", "uid"})


@dataclass(frozen=True, slots=True)
class _Row:
    """One training row: its rollout, its index there, and what it holds."""

    prompt: str
    session: str
    index: int
    record: Record


class VerlReader:
    """Reads rollout and validation dumps of verl, V1 and v0."""

    name = "verl"
    group_by = "step,input"

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """``input``, ``output`` and ``score`` or ``step``."""
        return {"input", "output"} <= record.keys() and bool({"score", "step"} & record.keys())

    def drafts(self, records: Iterable[Record], notes: Notes) -> Iterator[Draft]:
        """A draft a rollout; padding rows are skipped."""
        kept = (record for record in records if not _is_padding(record, notes))
        for with_ids, part in itertools.groupby(kept, key=lambda record: record.values.get("uid") is not None):
            if with_ids:
                rows = map(_row, part)
                for _, rollout in itertools.groupby(rows, key=lambda row: (row.prompt, row.session)):
                    yield _from_rows(list(rollout), notes)
            else:
                for record in part:
                    yield _from_line(record, notes)


def _is_padding(record: Record, notes: Notes) -> bool:
    padding = str(record.values.get("uid", "")).startswith(_PADDING)
    notes.skipped["padding rows"] += padding
    return padding


def _row(record: Record) -> _Row:
    uid = record.required("uid", str, "a string")
    prompt, _, rest = uid.rpartition("_")
    prompt, _, session = prompt.rpartition("_")
    if not (prompt and session.isdecimal() and rest.isdecimal() and len(rest) < 10):
        raise record.fault("uid", repr(uid[:80]), "PROMPT_SESSION_ROW")
    return _Row(prompt, session, int(rest), record)


def _from_rows(rows: Sequence[_Row], notes: Notes) -> Draft:
    """An episode of the rows of one rollout; its score stands on every row and counts once."""
    first = rows[0]
    turns: list[Turn] = []
    scores = [_score(row.record) for row in rows]
    final = None
    for expected, (row, score) in enumerate(zip(rows, scores, strict=True)):
        if row.index != expected:
            raise row.record.fault("uid", f"row {row.index}", f"row {expected}, the next of its rollout")
        own, final = _turns(row.record, notes)
        turns += own
        if len(set(scores)) > 1 and score is not None:
            turns[-1] = replace(turns[-1], reward=score)
    if len(set(scores)) > 1:
        notes.remarks["rollouts whose rows have different scores, taken as rewards of their turns"] += 1
    return Draft(
        first.record,
        tuple(turns),
        name=f"{first.prompt}_{first.session}",
        group=first.prompt,
        reward=scores[0] if len(set(scores)) == 1 else 0.0,
        final_observation=final,
        source=first.record.plain(_NAMED),
    )


def _from_line(record: Record, notes: Notes) -> Draft:
    turns, final = _turns(record, notes)
    return Draft(record, turns, reward=_score(record), final_observation=final, source=record.plain(_NAMED))


def _turns(record: Record, notes: Notes) -> tuple[tuple[Turn, ...], str | None]:
    prompt = record.required("input", str, "a string")
    messages, marked = split_rendered(prompt, record.required("output", str, "a string"))
    if not marked:
        notes.remarks["lines without marks of a chat template: the whole input is the observation"] += 1
    return to_turns(messages)


def _score(record: Record) -> float | None:
    return record.number("score", "a finite number")
