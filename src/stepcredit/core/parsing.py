"""One line of a rollout file → one ``Episode``, with every check of the format and errors that name the field.

This is the careful half of reading. ``files`` reads whole columns at once where a line has the common form and comes
here for everything else, so what is accepted and what it means is decided by this module alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import FileFormatError

_EPISODE_FIELDS = frozenset({"task", "episode", "parent", "turns", "final_observation", "success", "score", "stop"})
_TURN_FIELDS = frozenset({"observation", "action", "reward", "penalty", "valid", "nll", "logprobs", "entropy", "state"})
_SHOWN = 40
"""Characters of a wrong value that an error message quotes."""
_ABSENT = object()


def parse_episode(line: bytes, place: str) -> Episode:
    """The episode that one line holds; fields the format does not name are kept in ``extra``.

    An optional field that is null counts as absent.

    Args:
        line: one JSON object in UTF-8.
        place: ``FILE:LINE``, which starts every error message.

    Raises:
        FileFormatError: not JSON, or not an episode; names place, field, what was found and what is expected.
    """
    record = Fields(decode(line, place), place, "")
    turns = record.required("turns", list, "a list of turns")
    if not turns:
        raise record.fault("turns", "an empty list", "at least one turn")
    return Episode(
        task=record.required("task", str, "a string"),
        episode=record.required("episode", str, "a string"),
        turns=tuple(_turn(Fields(turn, place, f"turns[{index}].")) for index, turn in enumerate(turns)),
        final_observation=record.required("final_observation", str, "a string"),
        success=record.required("success", bool, "true or false"),
        parent=_parent(record),
        score=record.number("score", "a number in [0, 1]", low=0.0, high=1.0),
        stop=record.optional("stop", str, "a string"),
        extra=record.rest(_EPISODE_FIELDS),
    )


def _turn(fields: Fields) -> Turn:
    return Turn(
        observation=fields.required("observation", str, "a string"),
        action=fields.required("action", str, "a string"),
        reward=fields.defaulted("reward", "a finite number"),
        penalty=fields.defaulted("penalty", "a finite number of at least 0", low=0.0),
        valid=fields.required("valid", bool, "true or false") if "valid" in fields.values else True,
        nll=fields.number("nll", "a finite number"),
        logprobs=_logprobs(fields),
        entropy=fields.number("entropy", "a finite number"),
        state=fields.optional("state", str, "a string"),
        extra=fields.rest(_TURN_FIELDS),
    )


def _parent(record: Fields) -> Parent | None:
    link = record.values.get("parent", _ABSENT)
    if link is None:
        return None
    expected = 'null or {"episode": …, "turn": …}'
    if not isinstance(link, dict):
        raise record.fault("parent", shown(link), expected)
    fields = Fields(link, record.place, "parent.")
    name = fields.required("episode", str, "a string")
    turn = fields.required("turn", int, "a whole number of at least 0")
    if turn < 0:
        raise fields.fault("turn", str(turn), "a whole number of at least 0")
    return Parent(name, turn)


def _logprobs(fields: Fields) -> tuple[float, ...] | None:
    values = fields.optional("logprobs", list, "a list of numbers")
    if values is None:
        return None
    entries = Fields({f"[{i}]": value for i, value in enumerate(values)}, fields.place, f"{fields.prefix}logprobs")
    return tuple(entries.defaulted(entry, "a finite number") for entry in entries.values)


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object under inspection: its values, where it stands, and the path to it inside the line."""

    values: Mapping[str, Any]
    place: str
    prefix: str

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            raise fault(self.place, self.prefix.rstrip(".") or "line", shown(self.values), "a JSON object")

    def fault(self, field: str, got: str, expected: str) -> FileFormatError:
        """The error for one field of this object."""
        return fault(self.place, self.prefix + field, got, expected)

    def required(self, field: str, kind: type, expected: str) -> Any:
        """The field's value, which must be there and of exactly this type (true is no whole number)."""
        value = self.values.get(field, _ABSENT)
        if type(value) is not kind:
            raise self.fault(field, shown(value), expected)
        return value

    def optional(self, field: str, kind: type, expected: str) -> Any:
        """The field's value, None where it is absent or null."""
        return None if self.values.get(field) is None else self.required(field, kind, expected)

    def number(self, field: str, expected: str, *, low: float = -math.inf, high: float = math.inf) -> float | None:
        """A finite number in [low, high], None where the field is absent or null."""
        value = self.values.get(field)
        if value is None:
            return None
        number = float(value) if type(value) in (int, float) else math.nan
        if not (math.isfinite(number) and low <= number <= high):
            raise self.fault(field, shown(value), expected)
        return number

    def defaulted(self, field: str, expected: str, *, low: float = -math.inf) -> float:
        """A finite number of at least ``low``, 0 where the field is absent."""
        number = self.number(field, expected, low=low)
        if number is None and field in self.values:
            raise self.fault(field, "null", expected)
        return number or 0.0

    def rest(self, known: frozenset[str]) -> dict[str, Any]:
        """The fields that the format does not name."""
        return {name: value for name, value in self.values.items() if name not in known}


def fault(place: str, field: str, got: str, expected: str) -> FileFormatError:
    """The error for one field at one place."""
    return FileFormatError(f"{place}: {field}: got {got}, expected {expected}.")


def decode(line: bytes, place: str) -> Any:
    """The line's JSON value. What the strict decoder refuses is looked at again, to say which field is to blame."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        strict = error
    try:
        text = line.decode()
        value = json.loads(text, parse_int=float)  # whatever length the number has
    except UnicodeDecodeError as error:
        raise fault(place, "line", f"bytes that are not UTF-8 (byte {error.start + 1})", "UTF-8 text") from None
    except json.JSONDecodeError as error:
        got = f"text that is not JSON ({error.msg}, column {error.colno})" if text.strip() else "an empty line"
        raise fault(place, "line", got, "one JSON object") from None
    except RecursionError:
        raise fault(place, "line", "JSON nested too deeply", "one flat JSON object") from None
    _refuse_unrepresentable(value, place)
    raise fault(place, "line", f"text that is not JSON ({strict})", "one JSON object")


def _refuse_unrepresentable(value: Any, place: str) -> None:
    """Refuse NaN, infinity, numbers beyond 64-bit floats and half characters, naming the field they stand in."""
    path: list[str | int] = []
    pending = [_parts(value)]
    while pending:
        part = next(pending[-1], None)
        if part is None:
            pending.pop()
            del path[-1:]
            continue
        name, item = part
        if isinstance(item, dict | list):
            path.append(name)
            pending.append(_parts(item))
        elif isinstance(item, str) and any("\ud800" <= character <= "\udfff" for character in item):
            raise fault(place, _spelled([*path, name]), "half of a surrogate pair", "Unicode text")
        elif isinstance(item, float) and not math.isfinite(item):
            raise fault(place, _spelled([*path, name]), shown(item), "a finite number")


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    """What a JSON value holds, by name or index; a name stands beside itself too, for it is text as well."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name, name
            yield name, item
    elif isinstance(value, list):
        yield from enumerate(value)
    else:
        yield "line", value


def _spelled(path: Iterable[str | int]) -> str:
    """A path into a line as messages show it: ``turns[3].reward``."""
    steps = (name if isinstance(name, int) or name.isprintable() else shown(name) for name in path)
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def shown(value: Any) -> str:
    """A wrong value as an error message quotes it."""
    if value is _ABSENT:
        return "nothing"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a JSON object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    # repr also turns control characters of hostile files into harmless escapes.
    text = ascii(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
