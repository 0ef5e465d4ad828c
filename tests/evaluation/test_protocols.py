"""Protocols are complete, sourced, and named ``custom`` as soon as anything differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.environments.catalogue import ENVIRONMENTS
from stepcredit.evaluation.protocols import GIVEN, PROTOCOLS, Protocol, find_protocol

COLUMNS = (
    "temperature",
    "seeds",
    "episodes_per_task",
    "tasks",
    "horizon",
    "history",
    "prompt_tokens",
    "response_tokens",
    "resamples",
)
"""Of the table on the page, in order."""
ALL = [protocol for environments in PROTOCOLS.values() for protocol in environments.values()]


@pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: f"{protocol.name}-{protocol.environment}")
def test_every_number_has_a_source(protocol: Protocol) -> None:
    assert sorted(protocol.sources) == sorted(protocol.settings().keys() - {"name", "environment"})
    assert all(protocol.sources.values())
    assert protocol.environment in ENVIRONMENTS
    assert find_protocol(protocol.name, protocol.environment) is protocol


def test_settings_that_the_papers_state() -> None:
    household = {name: find_protocol(name, "household") for name in PROTOCOLS}
    for protocol in household.values():
        assert (protocol.temperature, protocol.horizon) == (0.4, 50)
        assert (protocol.prompt_tokens, protocol.response_tokens) == (2048, 512)
    assert {name: protocol.history for name, protocol in household.items()} == {"gaca": 2, "tsbpo": 3, "gigpo": 2}
    assert find_protocol("gigpo", "shopping").horizon == 15
    assert find_protocol("gigpo", "search_qa").horizon == 4
    assert {protocol.resamples for protocol in ALL} == {10_000, 20_000}


def test_replacing_by_the_same_values_changes_nothing() -> None:
    protocol = find_protocol("gaca", "household")
    assert protocol.replaced(temperature=0.4, horizon=None) is protocol


def test_a_changed_setting_makes_it_custom_and_says_which() -> None:
    protocol = find_protocol("gaca", "household")
    changed = protocol.replaced(temperature=0.0, horizon=None, history=2)
    assert changed.name == "custom"
    assert (changed.temperature, changed.horizon) == (0.0, 50)
    assert [name for name, source in changed.sources.items() if source == GIVEN] == ["temperature"]


@pytest.mark.parametrize(
    "values", [{"temperature": -0.1}, {"temperature": float("nan")}, {"seeds": 0}, {"history": -1}, {"resamples": 10}]
)
def test_values_out_of_range_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(values))} is .*expected a finite number of at least"):
        find_protocol("gaca", "household").replaced(**values)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(OptionError, match=r"Unknown protocol 'gacca'\. Did you mean 'gaca'"):
        find_protocol("gacca", "household")
    with pytest.raises(OptionError, match="says nothing about 'search_qa', only about household and shopping"):
        find_protocol("tsbpo", "search_qa")


def test_the_page_shows_the_protocols_as_they_are() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert sorted(ALL[0].sources) == sorted(COLUMNS)
    rows = [
        f"| `{one.name}` | `{one.environment}` | "
        + " | ".join("all" if getattr(one, name) is None else f"{getattr(one, name):,}" for name in COLUMNS)
        + " |"
        for one in ALL
    ]
    shown = [line for line in page.splitlines() if line.startswith(tuple(f"| `{name}` | " for name in PROTOCOLS))]
    assert shown == rows
