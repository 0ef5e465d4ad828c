"""The learning benchmark at its smoke size: it runs, stores one line a run, resumes; and its page."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "learning.py"
RESULTS = BENCHMARKS / "results"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def page_script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as if run from there
    return runpy.run_path(str(BENCHMARKS / "learning_page.py"))


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr("sys.argv", ["learning.py", *options])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_smoke_run_stores_lines_and_a_rerun_adds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "learning.jsonl"
    run(monkeypatch, "--smoke", "--out", str(out), "--work", str(tmp_path))
    stored = out.read_bytes()
    lines = [json.loads(line) for line in stored.splitlines()]
    assert [line["arm"] for line in lines] == ["gigpo", "graft", "tsbpo fitted"]
    for line in lines:
        assert line["curve"][0][0] == 0
        assert line["curve"][-1][0] >= 800
        assert line["curve"][-1][1] == line["final"]
        assert 0 <= line["area"] <= 1
    run(monkeypatch, "--smoke", "--out", str(out), "--work", str(tmp_path))
    assert out.read_bytes() == stored
    # Cut short by a kill, the last run is made again, the same.
    out.write_bytes(stored[:-9])
    run(monkeypatch, "--smoke", "--out", str(out), "--work", str(tmp_path))
    again = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [{**line, "cpu_s": 0} for line in again] == [{**line, "cpu_s": 0} for line in lines]


def test_a_start_belongs_to_what_it_was_learnt_from(script: dict[str, Any], tmp_path: Path) -> None:
    """A smoke run's start must not become that of a whole run."""
    scale = script["SMOKE"]["tiny"]
    suite = script["make_suite"]("household", **scale.recipe["environment_options"])
    for games in (1, 2, 1):
        recipe = {**scale.recipe, "demonstrations": {"pick": games}}
        arm = script["replace"](scale, recipe=recipe)
        config = script["make_config"]({**script["_recipe"](script["ARMS"][0], arm), "seed": 0})
        script["_initial_policy"](config, suite, tmp_path)
    assert len(list(tmp_path.glob("*/start"))) == 2


def test_page_holds_the_tables_of_what_is_stored(script: dict[str, Any], page_script: dict[str, Any]) -> None:
    page = page_script["PAGE"].read_text(encoding="utf-8")
    for model, scale in script["SCALES"].items():
        runs = script["read_runs"](RESULTS / f"learning-{model}.jsonl", scale)
        assert f"<!-- {model} -->" in page
        assert page_script["fill"](page, model, runs) == page, "run: python benchmarks/learning_page.py"
    text = page_script["fill"]("Above.\n<!-- tiny -->\nold\n<!-- end -->\nBelow.\n", "tiny", [])
    assert text == f"Above.\n<!-- tiny -->\n\n{page_script['table']([])}\n\n<!-- end -->\nBelow.\n"


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


def test_table_pairs_seeds_with_the_reference(page_script: dict[str, Any]) -> None:
    areas = {"gigpo": (0.25, 0.75), "grpo": (0.5, 1.0), "rloo": (0.5,)}
    lines = [
        {"arm": arm, "seed": seed, "area": area, "final": 1.0}
        for arm, each in areas.items()
        for seed, area in enumerate(each)
    ]
    # Two seeds: t(1) = 12.706, half an interval = 12.706 · (.5 / √2) / √2.
    assert page_script["table"](lines).splitlines()[2:] == [
        "| grpo | 2 | 0.750 [-2.427, 3.927] | 1.000 [1.000, 1.000] | +0.250 [+0.250, +0.250] |",
        "| gigpo | 2 | 0.500 [-2.677, 3.677] | 1.000 [1.000, 1.000] |  |",
        "| rloo | 1 | 0.500 | 1.000 | +0.250 |",
    ]


@pytest.mark.parametrize("model", ["linear", "tiny"])
def test_stored_runs_are_of_the_present_settings(script: dict[str, Any], model: str) -> None:
    path = RESULTS / f"learning-{model}.jsonl"
    stored = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = script["read_runs"](path, script["SCALES"][model])
    assert len(kept) == len(stored) > 0
    assert len({(line["arm"], line["seed"]) for line in stored}) == len(stored)
