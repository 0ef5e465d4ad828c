"""The learning benchmark at its smoke size: it runs, stores one line a run, resumes, and tabulates."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "learning.py"
RESULTS = SCRIPT.parent / "results"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr("sys.argv", ["learning.py", *options])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_smoke_run_stores_lines_and_a_rerun_adds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "learning.jsonl"
    run(monkeypatch, "--smoke", "--out", str(out), "--work", str(tmp_path))
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [line["arm"] for line in lines] == ["gigpo", "graft", "tsbpo fitted"]
    for line in lines:
        assert line["curve"][0][0] == 0
        assert line["curve"][-1][0] >= 800
        assert line["curve"][-1][1] == line["final"]
        assert 0 <= line["area"] <= 1
    assert capsys.readouterr().out.count("| 1 |") == 3
    page = tmp_path / "page.md"
    page.write_text("Above.\n<!-- linear -->\nold\n<!-- end -->\nBelow.\n", encoding="utf-8")
    run(monkeypatch, "--smoke", "--out", str(out), "--work", str(tmp_path), "--page", str(page))
    assert len(out.read_text(encoding="utf-8").splitlines()) == 3
    text = page.read_text(encoding="utf-8")
    assert text.startswith("Above.\n<!-- linear -->\n\n| arm | seeds |")
    assert text.endswith("\n\n<!-- end -->\nBelow.\n")
    assert "old" not in text


def test_arms_are_distinct_and_their_recipes_load(script: dict[str, Any]) -> None:
    arms, scales = script["ARMS"], script["SCALES"]
    assert len({arm.name for arm in arms}) == len(arms)
    prints = [script["fingerprint"](arm, scales["tiny"]) for arm in arms]
    assert len(set(prints)) == len(arms)
    assert set(prints).isdisjoint(script["fingerprint"](arm, scales["linear"]) for arm in arms)


def test_runs_of_other_settings_are_not_counted(script: dict[str, Any], tmp_path: Path) -> None:
    scale = script["SCALES"]["linear"]
    arm = script["ARMS"][0]
    own = {"arm": arm.name, "seed": 1, "recipe": script["fingerprint"](arm, scale), "area": 0.5, "final": 1.0}
    other = {**own, "recipe": "00000000", "seed": 0}
    path = tmp_path / "learning.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (other, own)), encoding="utf-8")
    assert script["read_runs"](path, scale) == [own]


def test_table_pairs_seeds_with_the_reference(script: dict[str, Any]) -> None:
    lines = [
        {"arm": arm, "seed": seed, "area": area, "final": 1.0}
        for arm, areas in {"gigpo": (0.25, 0.75), "grpo": (0.5, 1.0)}.items()
        for seed, area in enumerate(areas)
    ]
    rows = script["table"](lines).splitlines()[2:]
    assert rows == [
        "| grpo | 2 | 0.750 [0.500, 1.000] | 1.000 [1.000, 1.000] | +0.250 [+0.250, +0.250] |",
        "| gigpo | 2 | 0.500 [0.250, 0.750] | 1.000 [1.000, 1.000] |  |",
    ]


@pytest.mark.parametrize("model", ["linear", "tiny"])
def test_stored_runs_are_of_the_present_settings(script: dict[str, Any], model: str) -> None:
    path = RESULTS / f"learning-{model}.jsonl"
    stored = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = script["read_runs"](path, script["SCALES"][model])
    assert len(kept) == len(stored) > 0
    assert len({(line["arm"], line["seed"]) for line in stored}) == len(stored)
