"""What a credit method is, and how its options are read off its own signature.

A method is a pure function ``f(turns, *, option=default, …) -> Credit``. Its keyword-only parameters *are* its options:
the annotation carries type, range (``Range``), choices (``Literal``) and one phrase of meaning, the default stands
where Python puts it. Nothing about an option is written a second time.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np

from stepcredit.core.credit import Credit, FloatArray
from stepcredit.core.errors import InputError, OptionError, unknown_name
from stepcredit.core.turns import Turns

Family = Literal[
    "episode level",
    "state groups",
    "history groups",
    "mixture",
    "graph",
    "tree",
    "turn values",
    "modulation",
    "contrib",
]
"""One family a file, in the order in which ``stepcredit methods`` lists them."""

_OFF = ("off", "none")
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers an option accepts: ``low`` … ``high``, both included unless said open."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False

    def __contains__(self, value: float) -> bool:
        return (
            math.isfinite(value) and (value > self.low if self.low_open else value >= self.low) and value <= self.high
        )

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'>' if self.low_open else '≥'} {self.low:g}" if self.low > -math.inf else "any finite number"
        return f"{'(' if self.low_open else '['}{self.low:g}, {self.high:g}]"


Gamma = Annotated[float, Range(0, 1), "discount of later rewards, per turn"]
"""Discount γ in [0, 1]."""
Weight = Annotated[float, Range(0), "weight of a term, relative to one"]
"""Non-negative weight."""


@dataclass(frozen=True, slots=True)
class Option:
    """One keyword-only parameter of a method.

    Attributes:
        kind: ``bool``, ``int``, ``float``, ``str``, or ``np.ndarray`` for a column that only Python can supply.
        choices: the allowed values where the annotation is a ``Literal``, else empty.
        range: the allowed numbers, None where the option is not a number.
        optional: whether None (``off`` on the command line) is allowed.
        meaning: one phrase, empty where the annotation has none.
    """

    name: str
    kind: type
    default: Any
    choices: tuple[str, ...] = ()
    range: Range | None = None
    optional: bool = False
    meaning: str = ""

    @property
    def expected(self) -> str:
        """What the option accepts, in words."""
        if self.choices:
            words = " or ".join(self.choices)
        elif self.kind is bool:
            words = "true or false"
        elif self.kind is str:
            words = "a name"
        elif self.kind is np.ndarray:
            words = "an array with one number a turn"
        else:
            words = f"{'a whole number' if self.kind is int else 'a number'} {self._bounds}".rstrip()
        return f"{words} or off" if self.optional else words

    @property
    def _bounds(self) -> str:
        if self.range is None or str(self.range) == "any finite number":
            return ""
        return f"in {self.range}" if self.range.high < math.inf else str(self.range)

    def parse(self, text: str) -> Any:
        """The value a command-line string stands for; checked by ``check``."""
        folded = text.strip().lower()
        if self.optional and folded in _OFF:
            return None
        if self.kind is bool:
            return _TRUTH.get(folded, text)
        if self.kind not in (int, float):
            return text
        try:
            return self.kind(text)
        except ValueError:
            return text

    def check(self, value: Any) -> Any:
        """The value as the function gets it.

        Raises:
            OptionError: wrong type, outside the range, or not one of the choices.
        """
        if value is None and self.optional:
            return None
        if self.kind is np.ndarray and not isinstance(value, str):
            return value
        if self.choices:
            if value not in self.choices:
                raise unknown_name(f"value for option {self.name!r}:", str(value), self.choices)
            return value
        fits = isinstance(value, self.kind) or (self.kind is float and isinstance(value, int))
        if fits and self.kind is not bool:
            fits = not isinstance(value, bool)
        if fits and self.kind in (int, float):
            fits = value in (self.range or Range())
        if not fits:
            raise OptionError(f"Option {self.name!r}: got {value!r}, expected {self.expected}.")
        return self.kind(value)


@dataclass(frozen=True)
class Method:
    """One line of the catalogue.

    Attributes:
        name: what users type.
        family: which file it lives in, in words.
        function: the pure function; its keyword-only parameters are the options.
        summary: what it does, in one line.
        source: paper and equation or section numbers.
        needs: columns a rollout must record beyond the required ones (``nll``, ``entropy``, ``values``, …).
        forest: how it runs when episodes branch; None: chains only, and ``assign`` refuses a forest.
        presets: the paper's settings per benchmark: name → options.
        scope: ``task``: credit in one task group never depends on another's; ``batch``: it does (batch whitening).
        partial: whether some turns may stay unscored (NaN).
    """

    name: str
    family: Family
    function: Callable[..., Credit]
    summary: str
    source: str
    needs: tuple[str, ...] = ()
    forest: str | None = None
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scope: Literal["task", "batch"] = "task"
    partial: bool = False

    @cached_property
    def options(self) -> dict[str, Option]:
        """The options by name, in the order of the signature."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        parameters = inspect.signature(self.function).parameters.values()
        return {
            parameter.name: _option(parameter.name, hints[parameter.name], parameter.default)
            for parameter in parameters
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def check_options(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Options as the function gets them.

        Raises:
            OptionError: an unknown option (with the nearest known one), or a value that does not fit.
        """
        return {name: self._option(name).check(value) for name, value in values.items()}

    def parse_options(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Options from command-line strings, read by the function's own annotations.

        Raises:
            OptionError: as ``check_options``.
        """
        return self.check_options({name: self._option(name).parse(text) for name, text in texts.items()})

    def preset(self, name: str) -> dict[str, Any]:
        """The options of a named preset.

        Raises:
            OptionError: the method has no such preset.
        """
        if name not in self.presets:
            if not self.presets:
                raise OptionError(f"Method {self.name!r} has no presets; set its options one by one.")
            raise unknown_name(f"preset of method {self.name!r}:", name, self.presets)
        return dict(self.presets[name])

    def _option(self, name: str) -> Option:
        if name not in self.options:
            if not self.options:
                raise OptionError(f"Unknown option {name!r}: method {self.name!r} has no options.")
            raise unknown_name(f"option of method {self.name!r}:", name, self.options)
        return self.options[name]


def required_column(turns: Turns, column: Literal["nll", "entropy"], method: str) -> FloatArray:
    """``[N]`` a column that a rollout may lack.

    Raises:
        InputError: a turn does not record it; names the first one.
    """
    values: FloatArray = getattr(turns, column)
    missing = np.isnan(values)
    if missing.any():
        row = int(np.argmax(missing))
        raise InputError(
            f"Method {method!r} needs {column!r} on every turn, but turn {turns.turn[row]} of episode "
            f"{turns.episode_names[turns.episode[row]]!r} has none; record it while collecting."
        )
    return values


def _option(name: str, annotation: Any, default: Any) -> Option:
    """Read one parameter's annotation: ``Annotated[T, Range, "meaning"]``, ``Literal[…]``, ``T | None``, or plain."""
    bounds: Range | None = None
    meaning = ""
    optional = False
    while True:
        origin = typing.get_origin(annotation)
        if origin is Annotated:
            annotation, *metadata = typing.get_args(annotation)
            for item in metadata:
                if isinstance(item, Range):
                    bounds = bounds or item
                elif isinstance(item, str):
                    meaning = meaning or item
        elif origin in (typing.Union, types.UnionType):
            optional = True
            (annotation,) = (part for part in typing.get_args(annotation) if part is not type(None))
        elif origin is Literal:
            return Option(name, str, default, typing.get_args(annotation), None, optional, meaning)
        else:
            return Option(name, origin or annotation, default, (), bounds, optional, meaning)
