"""Between a log and a rollout file: the draft of an episode, and what a reader of one format is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepcredit.core.episodes import Parent, Turn
from stepcredit.integrations.convert.records import Record


@dataclass(frozen=True, slots=True)
class Draft:
    """An episode as far as its log tells it.

    Attributes:
        record: the record it (first) stands in; ``--group-by`` and ``--reward`` look fields up here.
        turns: with the rewards that the log gives to single turns, 0 elsewhere.
        name: unique name; None: the place of the record.
        group: what makes a task group; None where the log has no such thing.
        reward: reward of the whole episode, on top of the turns' own; None where the log has none.
        final_observation: what was shown after the last turn; None where the log ends with it.
        parent: for a branch.
        stop: why it ended.
        source: what else is worth keeping, plain values.
    """

    record: Record
    turns: tuple[Turn, ...]
    name: str | None = None
    group: str | None = None
    reward: float | None = None
    final_observation: str | None = None
    parent: Parent | None = None
    stop: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Notes:
    """What a conversion met on the way.

    Attributes:
        skipped: what was left out, counted by what it was.
        remarks: what a user should know about how the log was read, counted likewise.
    """

    skipped: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)


class Reader(Protocol):
    """Reads the logs of one format. A reader keeps nothing: one serves any number of files.

    Attributes:
        name: what ``--format`` calls it.
        group_by: the fields of a record that make a good ``--group-by`` where the log has no group ids.
    """

    name: str
    group_by: str

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """Whether a record with these keys is of this format."""
        ...

    def drafts(self, records: Iterable[Record], notes: Notes) -> Iterator[Draft]:
        """The episodes of a file, in its order, at most one in memory.

        Raises:
            FileFormatError: a record does not have the format's form; names its place.
        """
        ...
