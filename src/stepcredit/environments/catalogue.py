"""The environments by name."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

from pydantic import TypeAdapter, ValidationError

from stepcredit.core.errors import EnvironmentFaultError, OptionError, StepcreditError, misfit, unknown_name
from stepcredit.environments.protocol import Task, TaskSuite


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an environment, read off its suite's keyword-only parameters.

    Attributes:
        annotation: type and range; values are checked against it.
        meaning: one phrase.
    """

    name: str
    annotation: Any
    default: Any
    meaning: str

    @property
    def type_name(self) -> str:
        """The annotation in words."""
        return _type_name(self.annotation)

    def parse(self, text: str) -> Any:
        """The value a command-line string stands for; a list's items are separated by commas."""
        return self.check(text.split(",") if self.type_name.startswith("list") else text)

    def check(self, value: Any) -> Any:
        """The value as the suite gets it.

        Raises:
            OptionError: it does not fit the annotation.
        """
        try:
            return TypeAdapter(self.annotation).validate_python(value)
        except ValidationError as error:
            raise misfit(f"Environment option {self.name!r}", value, error) from None


@dataclass(frozen=True, slots=True)
class EnvironmentEntry:
    """One line of the catalogue.

    Attributes:
        name: how users call it.
        summary: what is played, in one line.
        suite: ``module:class`` of its suite, imported when it is asked for.
    """

    name: str
    summary: str
    suite: str

    def load(self) -> type[Any]:
        """The suite's class.

        Raises:
            OptionError: there is no such module or class, or the module cannot be imported.
        """
        module, _, name = self.suite.partition(":")
        try:
            loaded: type[Any] = getattr(import_module(module), name)
        except (ModuleNotFoundError, AttributeError, ValueError) as error:
            raise OptionError(f"Cannot load {self.suite!r}: {error}; expected MODULE:CLASS of a suite.") from None
        except Exception as error:  # a module of somebody's own may raise anything
            raise OptionError(f"Cannot load {self.suite!r}: {type(error).__name__}: {error}.") from error
        if not isinstance(loaded, type):
            raise OptionError(f"{self.suite!r} is a {type(loaded).__name__}; expected MODULE:CLASS of a suite.")
        return loaded

    def options(self) -> dict[str, Option]:
        """Name → option, in the order of the suite's parameters."""
        initialiser = self.load().__init__
        annotations = typing.get_type_hints(initialiser, include_extras=True)
        options = {}
        for parameter in inspect.signature(initialiser).parameters.values():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                if parameter.name not in annotations:
                    raise OptionError(f"Option {parameter.name!r} of {self.suite!r} has no type; annotate it.")
                annotation = annotations[parameter.name]
                meaning = next((extra for extra in typing.get_args(annotation)[1:] if isinstance(extra, str)), "")
                options[parameter.name] = Option(parameter.name, annotation, parameter.default, meaning)
        return options

    def parse(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Options as the suite takes them, from the command line's strings; ``-`` and ``_`` are the same in a name.

        Raises:
            OptionError: an option that does not exist, or a value that does not fit.
        """
        known, values = self.options(), {}
        for spelled, text in given.items():
            name = spelled.replace("-", "_")
            if name not in known:
                raise unknown_name(f"{self.name} option", name, known)
            values[name] = known[name].parse(text)
        return values


def _type_name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, UnionType):
        return " | ".join(_type_name(one) for one in arguments if one is not NoneType)
    if origin is Sequence:
        return f"list of {_type_name(arguments[0])}"
    return str(getattr(annotation, "__name__", annotation))


_ENTRIES = (
    EnvironmentEntry(
        "household",
        "ALFWorld's household tasks: six families, official or generated games",
        "stepcredit.environments.household.suite:HouseholdSuite",
    ),
    EnvironmentEntry(
        "shopping",
        "WebShop: find the product a customer describes, choose its options, buy it; official or generated catalogue",
        "stepcredit.environments.shopping.suite:ShoppingSuite",
    ),
    EnvironmentEntry(
        "search_qa",
        "Questions answered in several turns with a retriever: own files and servers, or a generated world",
        "stepcredit.environments.search_qa.suite:SearchSuite",
    ),
)
ENVIRONMENTS = {entry.name: entry for entry in _ENTRIES}
"""Every environment, by name."""


def find_environment(name: str) -> EnvironmentEntry:
    """The entry of a name, or of a suite of your own as ``module:Class``; its module may lie in the working directory.

    Raises:
        OptionError: no such environment.
    """
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    if ":" not in name:
        raise unknown_name("environment", name, ENVIRONMENTS)
    if "" not in sys.path:
        sys.path.append("")
    return EnvironmentEntry(name, "an environment of your own", name)


def make_suite(name: str, **options: Any) -> TaskSuite:
    """The suite of tasks of an environment.

    Args:
        name: name in ``ENVIRONMENTS``, or ``module:Class`` of a suite of your own.
        options: of that environment, see ``stepcredit envs NAME``.

    Raises:
        OptionError: no such environment or option, or a value that does not fit.
        InputError: data that an option points to cannot be read.
        EnvironmentFaultError: the suite's own constructor raises.
    """
    entry = find_environment(name)
    known = entry.options()
    for option in options:
        if option not in known:
            raise unknown_name(f"{name} option", option, known)
    checked = {option: known[option].check(value) for option, value in options.items()}
    made = entry.load()
    try:
        inspect.signature(made).bind(**checked)
    except TypeError as error:
        raise OptionError(f"Cannot make {name!r}: {error}; expected a suite whose options have defaults.") from None
    try:
        suite: TaskSuite = made(**checked)
    except StepcreditError:
        raise
    except Exception as error:  # a suite of somebody's own may raise anything
        raise EnvironmentFaultError(f"Cannot make {name!r}: {type(error).__name__}: {error}.") from error
    return suite


def find_task(suite: TaskSuite, identifier: str, splits: Sequence[str] | None = None) -> Task:
    """The task of an identifier.

    Args:
        suite: whose task it is.
        identifier: the task's ``id``.
        splits: where to look; None: everywhere.

    Raises:
        OptionError: no such task.
    """
    names = suite.splits() if splits is None else splits
    for task in (task for name in names for task in suite.tasks(name)):
        if task.id == identifier:
            return task
    raise OptionError(f"Unknown task {identifier!r} in {', '.join(names)}; one is {suite.tasks(names[0])[0].id!r}.")
