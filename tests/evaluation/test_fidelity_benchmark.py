"""The fidelity benchmark at its smoke size, and the page that is made from the stored results."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from stepcredit.credit.catalogue import METHODS

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((BENCHMARKS / "results" / "fidelity.json").read_text(encoding="utf-8"))
    return results


def test_smoke_size_measures_every_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "fidelity.json"
    monkeypatch.setattr("sys.argv", ["fidelity.py", "--smoke", "--out", str(out)])
    runpy.run_path(str(BENCHMARKS / "fidelity.py"), run_name="__main__")
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [cell["forest"] for cell in found["cells"]] == [False, True] * 2
    for cell in found["cells"]:
        assert set(METHODS) < set(cell["arms"])
        exact = cell["arms"]["exact advantage"]
        assert exact["error"] == [0, 0, 0]
        assert exact["sign"] == [1, 1, 1]
    assert {*found} >= {"command", "seed", "machine", "proposition", "mixture", "siblings", "lengths", "household"}


def test_page_and_stored_results_agree(stored: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as if run from there
    page = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    script = runpy.run_path(str(BENCHMARKS / "fidelity_page.py"))
    assert script["fill"](page, stored) == page, "run: python benchmarks/fidelity_page.py"
    for name in script["TABLES"]:
        assert f"<!-- table: {name} -->" in page


def test_every_method_has_its_rows(stored: dict[str, Any]) -> None:
    for cell in stored["cells"]:
        assert set(METHODS) <= set(cell["arms"])


def test_stored_results_hold_what_the_page_says(stored: dict[str, Any]) -> None:
    layered = [
        row for row in stored["proposition"] if row["kind"] == "layered" and not row["slip"] and row["alike"] == 1
    ]
    assert len(layered) == 4
    for row in layered:
        graph, states, episodes = (row["error"][name] for name in ("graph", "state groups", "episode"))
        assert graph[2] < states[1]
        assert states[0] < episodes[0]
