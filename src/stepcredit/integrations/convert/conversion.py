"""From log files to one rollout file: find each file's reader, finish its drafts, write episodes as they come."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stepcredit.core.episodes import Episode
from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.core.files import write_episodes
from stepcredit.core.parsing import fault
from stepcredit.integrations.convert.atif import AtifReader
from stepcredit.integrations.convert.drafts import Draft, Notes, Reader
from stepcredit.integrations.convert.openai_chat import OpenaiReader
from stepcredit.integrations.convert.records import Record, compact, read_records
from stepcredit.integrations.convert.skyrl import SkyrlReader
from stepcredit.integrations.convert.trl import TrlReader
from stepcredit.integrations.convert.verifiers import VerifiersReader
from stepcredit.integrations.convert.verl import VerlReader

READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (VerlReader(), TrlReader(), VerifiersReader(), AtifReader(), SkyrlReader(), OpenaiReader())
}
"""Every format, by name; the first that recognises a record reads its file."""

_LONGEST_KEY = 80
"""Characters of a group key that are written out; the rest is told apart by a digest."""
_KEYS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Choices:
    """What a log does not say and its owner does.

    Attributes:
        format: name of a reader; None: each file is recognised.
        group_by: fields of a record whose values together name its task group, dotted paths; empty: the log's own ids.
        reward: field of a record that holds the episode's reward; None: where the format keeps it.
        success_above: an episode is a success where its return is above this, reward units.
    """

    format: str | None = None
    group_by: tuple[str, ...] = ()
    reward: str | None = None
    success_above: float = 0.0

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in READERS:
            raise unknown_name("format", self.format, READERS)
        if not math.isfinite(self.success_above):
            raise OptionError(f"success_above is {self.success_above}; expected a finite number.")


@dataclass(slots=True)
class Summary:
    """What a conversion read and wrote.

    Attributes:
        formats: files of each format.
        tasks: episodes of each task group.
        turns_with_logprobs: turns that have log-probabilities.
        notes: what was skipped and what is worth knowing.
    """

    formats: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    episodes: int = 0
    branches: int = 0
    turns: int = 0
    turns_with_logprobs: int = 0
    successes: int = 0
    notes: Notes = field(default_factory=Notes)

    def count(self, episode: Episode) -> None:
        """Add an episode."""
        self.tasks[episode.task] += 1
        self.episodes += 1
        self.branches += episode.parent is not None
        self.turns += len(episode.turns)
        self.turns_with_logprobs += sum(turn.logprobs is not None for turn in episode.turns)
        self.successes += episode.success

    def as_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "formats": dict(self.formats),
            "tasks": len(self.tasks),
            "singletons": sum(count == 1 for count in self.tasks.values()),
            "episodes": self.episodes,
            "branches": self.branches,
            "successes": self.successes,
            "turns": self.turns,
            "turns_with_logprobs": self.turns_with_logprobs,
            "skipped": {what: count for what, count in self.notes.skipped.items() if count},
            "remarks": {what: count for what, count in self.notes.remarks.items() if count},
        }


def convert(files: Sequence[Path], out: Path, choices: Choices) -> Summary:
    """Read logs and write them as one rollout file, which appears when all of them are read.

    Raises:
        InputError: a file cannot be read, or the output cannot be written.
        FileFormatError: a record is not what its format says, or lacks what no choice makes up for; names its place.
        MissingExtraError: a file needs a package that is not installed.
    """
    summary = Summary()
    write_episodes(out, _episodes(files, choices, summary))
    return summary


def find_reader(path: Path, name: str | None = None) -> tuple[Reader, Iterator[Record]]:
    """The reader of a file, recognised by its first record unless it is named, and the file's records."""
    records = read_records(path)
    first = next(records)
    reader = next((one for one in READERS.values() if one.recognises(first.values)), None)
    if name is not None:
        reader = READERS[name]
    elif reader is None:
        keys = [ascii(key) for key in itertools.islice(first.values, _KEYS_SHOWN)]
        got = f"an object with the fields {', '.join(keys)[:200]}" if keys else "an empty object"
        raise fault(first.place, "line", got, f"a record of {', '.join(READERS)}; name one with --format")
    return reader, itertools.chain([first], records)


def _episodes(files: Sequence[Path], choices: Choices, summary: Summary) -> Iterator[Episode]:
    places: dict[str, str] = {}
    for path in files:
        reader, records = find_reader(path, choices.format)
        summary.formats[reader.name] += 1
        for draft in reader.drafts(records, summary.notes):
            episode = _finish(draft, reader, choices)
            if episode.episode in places:
                got = f"{episode.episode!r}, which stands at {places[episode.episode]} too"
                raise draft.record.fault("episode", got, "every episode once, its lines together")
            places[episode.episode] = draft.record.place
            summary.count(episode)
            yield episode


def _finish(draft: Draft, reader: Reader, choices: Choices) -> Episode:
    """The episode of a draft: its group, its reward on the last turn, its outcome."""
    record = draft.record
    if not draft.turns:
        raise record.fault("line", "no message of the policy", "at least one")
    task = _group(draft, reader, choices)
    last = draft.turns[-1]
    turns = (*draft.turns[:-1], replace(last, reward=last.reward + _reward(draft, choices)))
    total = math.fsum(turn.reward for turn in turns)
    success = total > choices.success_above
    final = draft.final_observation
    return Episode(
        task=task,
        episode=draft.name or record.place,
        turns=turns,
        # Logs end with the policy's last message; two outcomes must not look like one final state.
        final_observation=f"(end: {'success' if success else 'failure'})" if final is None else final,
        success=success,
        parent=draft.parent,
        stop=draft.stop,
        extra={"source": {"format": reader.name, "place": record.place, **draft.source}},
    )


def _group(draft: Draft, reader: Reader, choices: Choices) -> str:
    record = draft.record
    if not choices.group_by:
        if draft.group is None:
            expected = f"a group id; name the fields that make a group: --group-by {reader.group_by}"
            raise record.fault("task group", f"no group id in a record of {reader.name}", expected)
        return draft.group
    parts = []
    for name in choices.group_by:
        value = record.find(name)
        if value is None:
            raise record.fault(name, "nothing", "a value to group by (--group-by)")
        parts.append(compact(value, record))
    key = " | ".join(parts)
    if len(key) <= _LONGEST_KEY:
        return key
    return f"{key[:_LONGEST_KEY]}… {hashlib.blake2b(key.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


def _reward(draft: Draft, choices: Choices) -> float:
    """What the last turn gets on top of its own reward."""
    record = draft.record
    if choices.reward is None:
        if draft.reward is None:
            raise record.fault("reward", "nothing", "a number; name the field that holds it: --reward FIELD")
        return draft.reward
    value = record.find(choices.reward)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise record.fault(choices.reward, repr(value)[:40], "a finite number (--reward)")
    return float(value)
