"""The error tree. Every error a user can cause is one of these; each also is the standard-library type it refines.

StepcreditError
├── InputError(ValueError)        data from outside: rollout files, games, catalogues, corpora
│   └── FileFormatError           one place in one file: ``FILE:LINE: field: got …, expected …``
├── OptionError(ValueError)       an option, method, environment or recipe key that does not exist or does not fit
├── EnvironmentFaultError(RuntimeError)  an environment raised, hung or answered nonsense; recorded on its episode
├── NumericsError(ArithmeticError)  NaN or infinity where a number is needed
├── CheckpointError(RuntimeError) a run folder that cannot be read, written or resumed
└── MissingExtraError(ImportError)  an optional dependency is not installed; says what to install

A message is one sentence: what was got, what is expected, and the way out.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class StepcreditError(Exception):
    """Root of all errors that stepcredit raises on purpose."""


class InputError(StepcreditError, ValueError):
    """Data from outside does not have the required form."""


class FileFormatError(InputError):
    """One place of one file does not have the required form; the message starts with ``FILE:LINE``."""


class OptionError(StepcreditError, ValueError):
    """A name or a value chosen by the user does not exist or does not fit."""


class EnvironmentFaultError(StepcreditError, RuntimeError):
    """An environment raised, hung, or answered outside its protocol."""


class NumericsError(StepcreditError, ArithmeticError):
    """A number that must be finite is not."""


class CheckpointError(StepcreditError, RuntimeError):
    """A run folder or checkpoint cannot be read, written or resumed."""


class MissingExtraError(StepcreditError, ImportError):
    """An optional dependency is missing; the message names the extra that brings it."""


_LISTED = 40
"""Names an error lists at most."""


def unknown_name(kind: str, got: str, known: Iterable[str]) -> OptionError:
    """The error for a name that does not exist: names what was got, the nearest known name, or else all known names.

    Args:
        kind: what the name stands for, as a noun ("method", "recipe key").
        got: the unknown name.
        known: the names that exist.
    """
    names = sorted(known)
    close = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    rest = f", … ({len(names)} in all)" if len(names) > _LISTED else "."
    hint = f"Did you mean {close[0]!r}?" if close else f"Expected one of: {', '.join(names[:_LISTED])}{rest}"
    return OptionError(f"Unknown {kind} {got!r}. {hint}")


def misfit(place: str, got: object, error: ValidationError) -> OptionError:
    """The error for a value that its annotation refuses: ``PLACE: got …; input should be ….``

    Args:
        place: which option or key, as the message begins.
        got: the value.
        error: pydantic's; its first complaint is the reason.
    """
    reason = error.errors()[0]["msg"]
    return OptionError(f"{place}: got {got!r}; {reason[:1].lower()}{reason[1:]}.")


def check_least(name: str, value: float, minimum: float) -> None:
    """Refuse a number that is not finite or below the least one.

    Raises:
        OptionError: names what was got and what is expected.
    """
    if not minimum <= value < math.inf:
        raise OptionError(f"{name} is {value}; expected a finite number of at least {minimum}.")


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The error for an optional dependency that is not installed."""
    return MissingExtraError(f"{purpose} needs {package}, which is not installed: pip install 'stepcredit[{extra}]'")
