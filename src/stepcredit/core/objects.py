"""JSON objects that say what a run, a checkpoint or an evaluation is: read whole, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepcredit.core.errors import CheckpointError, StepcreditError


def read_object(file: Path, *, absent: str) -> dict[str, Any]:
    """The JSON object of a file.

    Args:
        file: which one.
        absent: the error's sentence where there is no such file; only the caller knows what that means.

    Raises:
        CheckpointError: there is no such file, it cannot be read, or it holds something else.
    """
    try:
        value: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(absent) from None
    except OSError as error:
        raise CheckpointError(f"Cannot read {str(file)!r}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{str(file)!r} is not JSON ({error}); restore it.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{str(file)!r} holds no JSON object; restore it.")
    return value


@contextmanager
def as_written(refusal: Callable[[str], StepcreditError]) -> Iterator[None]:
    """Files that hold something else than we write are one sentence, not a missing key somewhere.

    Args:
        refusal: the error to raise, given what was found.
    """
    try:
        yield
    except StepcreditError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise refusal(repr(error)) from error


def first_difference(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> str | None:
    """The first value in which two trees of plain values differ, as a clause; None where they agree."""
    for name in [*first, *(name for name in second if name not in first)]:
        one, other = first.get(name), second.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            inside = first_difference(one, other, f"{prefix}{name}.")
            if inside is not None:
                return inside
        elif one != other:
            return f"{prefix}{name} is {_short(one)} in one and {_short(other)} in the other"
    return None


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
