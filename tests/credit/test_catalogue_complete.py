"""A method has its test file, slow reference, golden numbers, page and benchmark rows, or this fails."""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from stepcredit.credit.catalogue import METHODS

ROOT = Path(__file__).resolve().parents[2]
SIZES = {6_400, 51_200, 1_024_000}


def pages() -> dict[str, Path]:
    return {path.stem: path for path in (ROOT / "docs" / "methods").rglob("*.md")}


def references() -> set[str]:
    """Names of the functions defined in the slow references."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "reference").glob("*.py"))
    return set(re.findall(r"^def (\w+)\(", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((ROOT / "benchmarks/results/credit_speed.json").read_text(encoding="utf-8"))
    return stored


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_named_like_its_function(name: str) -> None:
    assert METHODS[name].name == name
    assert METHODS[name].function.__name__ == name
    assert METHODS[name].source
    assert METHODS[name].summary


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_test_that_names_its_slow_reference(name: str) -> None:
    assert name in references(), f"tests/reference defines no {name}()"
    own = ROOT / "tests" / "credit" / f"test_{name}.py"
    assert own.is_file()
    assert re.search(rf"^from reference\.\w+ import .*\b{name}\b", own.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_golden_numbers(name: str) -> None:
    assert (ROOT / "tests" / "golden" / f"{name}.json").is_file()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_page_with_example_presets_and_source(name: str) -> None:
    assert name in pages(), f"docs/methods/{name}.md is missing"
    text = pages()[name].read_text(encoding="utf-8")
    assert f"<!-- example: {name} -->" in text
    assert "Source" in text
    for preset in METHODS[name].presets:
        assert f"`{preset}`" in text, f"{name}: preset {preset} is not on its page"
    for paper in re.findall(r"\d{4}\.\d{5}", METHODS[name].source):
        assert paper in text


@pytest.mark.parametrize("name", METHODS)
def test_the_worked_example_is_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    import docs_examples

    lines = docs_examples.example(name).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) in (2 + 7, 2 + 8)  # seven turns with a branch, eight without
    assert len({line.count("|") for line in table}) == 1
    assert any(re.search(r"\*\*-?\d", line) for line in table)


@pytest.mark.parametrize("name", [*METHODS, "build"])
def test_a_method_has_benchmark_rows_within_their_limits(name: str, benchmark: dict[str, Any]) -> None:
    rows = [row for row in benchmark["rows"] if row["name"] == name]
    assert {row["turns"] for row in rows} == SIZES
    assert [row for row in rows if row["ms"] > row["limit_ms"]] == []


def test_stored_figures_of_table_and_files_are_within_their_limits(benchmark: dict[str, Any]) -> None:
    assert benchmark["bytes_a_turn"] <= 200
    assert benchmark["file"]["megabytes"] >= 1000
    assert benchmark["file"]["megabytes_a_second"] >= 40
    assert benchmark["file"]["peak_gb"] < 3


def test_no_page_stands_for_a_method_that_does_not_exist() -> None:
    assert sorted(pages().keys() - METHODS.keys() - {"index"}) == []


@pytest.mark.parametrize("name", METHODS)
def test_a_method_lives_in_the_credit_package(name: str) -> None:
    assert inspect.getmodule(METHODS[name].function).__name__.startswith("stepcredit.credit.")  # type: ignore[union-attr]
