"""Evaluation protocols as plain data: every number with where it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepcredit.core.errors import OptionError, check_least, unknown_name
from stepcredit.evaluation.intervals import MOST_RESAMPLES

CUSTOM = "custom"
"""Name of a protocol that is nobody's: a recipe's own settings, or a paper's with something changed."""

PAPERS = "setting shared by the papers"
GIGPO_PAPER = "GiGPO (arXiv 2505.10978), results tables"
GIGPO_CODE = "GiGPO's released run script"
TSBPO_PAPER = "TSBPO's settings"
CHOSEN = "chosen here: the source does not state it"
CHOSEN_BOOTSTRAP = "chosen here: one of the two counts in use, 10,000 and 20,000"
GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Protocol:
    """How an agent is evaluated in one environment.

    Attributes:
        name: ``gaca``, ``tsbpo``, ``gigpo`` or ``custom``.
        environment: name in the catalogue.
        temperature: sampling temperature; 0 is greedy.
        seeds: times that all tasks are played, each with a seed of its own.
        episodes_per_task: episodes of each task a seed.
        tasks: tasks of the split, families in turn; None for all.
        horizon: turns an episode may take.
        history: past turns a self-contained prompt shows.
        prompt_tokens: tokens a prompt may have; a longer one ends its episode in error. None for no limit.
        response_tokens: tokens a free response may have.
        resamples: whole-task bootstrap resamples of an interval.
        sources: field → where its value comes from.

    Raises:
        OptionError: a value out of range.
    """

    name: str
    environment: str
    temperature: float
    seeds: int
    episodes_per_task: int
    tasks: int | None
    horizon: int
    history: int
    prompt_tokens: int | None
    response_tokens: int
    resamples: int
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        least = {"temperature": 0, "history": 0, "resamples": 100} | dict.fromkeys(
            ("seeds", "episodes_per_task", "tasks", "horizon", "prompt_tokens", "response_tokens"), 1
        )
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None:
                check_least(name, value, minimum)
        if self.resamples > MOST_RESAMPLES:
            raise OptionError(f"resamples is {self.resamples}; expected {MOST_RESAMPLES:,} at most.")

    def replaced(self, **values: Any) -> Protocol:
        """This protocol with values that are not None replaced: ``custom`` where one of them differs."""
        changed = {name: value for name, value in values.items() if value is not None and value != getattr(self, name)}
        if not changed:
            return self
        sources = {**self.sources, **dict.fromkeys(changed, GIVEN)}
        return dataclasses.replace(self, **changed, name=CUSTOM, sources=sources)

    def given(self) -> list[str]:
        """The fields that ``replaced`` has changed."""
        return [name for name, source in self.sources.items() if source == GIVEN]

    def settings(self) -> dict[str, Any]:
        """Every field but the sources."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "sources"]
        return {name: getattr(self, name) for name in names}


Sourced = Mapping[str, tuple[Any, str]]
"""Field → its value and where it comes from."""

# What the papers share in an environment; each protocol says what it does differently.
_HOUSEHOLD: Sourced = {
    "temperature": (0.4, PAPERS),
    "seeds": (3, CHOSEN),
    "episodes_per_task": (1, CHOSEN),
    "tasks": (None, CHOSEN),
    "horizon": (50, PAPERS),
    "history": (2, PAPERS),
    "prompt_tokens": (2048, PAPERS),
    "response_tokens": (512, PAPERS),
}
_SHOPPING: Sourced = {**_HOUSEHOLD, "horizon": (15, PAPERS), "prompt_tokens": (4096, PAPERS)}
_GACA: Sourced = {"resamples": (10_000, CHOSEN_BOOTSTRAP)}
_TSBPO: Sourced = {"resamples": (20_000, CHOSEN_BOOTSTRAP), "history": (3, TSBPO_PAPER)}
_GIGPO: Sourced = {
    "temperature": (0.4, GIGPO_CODE),
    "seeds": (3, GIGPO_PAPER),
    "episodes_per_task": (1, GIGPO_CODE),
    "history": (2, GIGPO_CODE),
    "prompt_tokens": (4096, GIGPO_CODE),
    "response_tokens": (512, GIGPO_CODE),
    "resamples": (10_000, CHOSEN),
}
_GIGPO_HOUSEHOLD: Sourced = {
    **_GIGPO,
    "tasks": (128, GIGPO_CODE),
    "horizon": (50, GIGPO_CODE),
    "prompt_tokens": (2048, GIGPO_CODE),
}
_GIGPO_SHOPPING: Sourced = {**_GIGPO, "tasks": (256, GIGPO_CODE), "horizon": (15, GIGPO_CODE)}
# Its search script leaves the sampling of validation at the trainer's default, which is greedy.
_GIGPO_SEARCH: Sourced = {
    **_GIGPO,
    "temperature": (0.0, GIGPO_CODE),
    "tasks": (None, GIGPO_CODE),
    "horizon": (4, GIGPO_CODE),
    "history": (4, GIGPO_CODE),
}


def _protocol(name: str, environment: str, *sourced: Sourced) -> Protocol:
    """Later settings replace earlier ones."""
    merged = {key: pair for one in sourced for key, pair in one.items()}
    values = {key: value for key, (value, _) in merged.items()}
    return Protocol(name, environment, **values, sources={key: source for key, (_, source) in merged.items()})


PROTOCOLS: Mapping[str, Mapping[str, Protocol]] = {
    "gaca": {
        "household": _protocol("gaca", "household", _HOUSEHOLD, _GACA),
        "shopping": _protocol("gaca", "shopping", _SHOPPING, _GACA),
    },
    "tsbpo": {
        "household": _protocol("tsbpo", "household", _HOUSEHOLD, _TSBPO),
        "shopping": _protocol("tsbpo", "shopping", _SHOPPING, _TSBPO, {"prompt_tokens": (5120, TSBPO_PAPER)}),
    },
    "gigpo": {
        "household": _protocol("gigpo", "household", _GIGPO_HOUSEHOLD),
        "shopping": _protocol("gigpo", "shopping", _GIGPO_SHOPPING),
        "search_qa": _protocol("gigpo", "search_qa", _GIGPO_SEARCH),
    },
}
"""Protocol → environment → settings."""


def find_protocol(name: str, environment: str) -> Protocol:
    """The named protocol for an environment.

    Raises:
        OptionError: no such protocol, or it says nothing about this environment.
    """
    if name not in PROTOCOLS:
        raise unknown_name("protocol", name, (*PROTOCOLS, CUSTOM))
    known = PROTOCOLS[name]
    if environment not in known:
        raise OptionError(
            f"Protocol {name!r} says nothing about {environment!r}, only about {' and '.join(known)}; "
            f"use --protocol {CUSTOM}."
        )
    return known[environment]
