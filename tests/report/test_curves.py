"""Figures of runs and batches: numbers by hand."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepcredit.core.errors import StepcreditError
from stepcredit.report.batch import make_batch
from stepcredit.report.compare import compare_report, paired_difference
from stepcredit.report.distributions import batch_figures
from stepcredit.report.figures import Figure, Series
from stepcredit.report.overview import run_figures
from stepcredit.report.runs import own_method, run_report, run_warnings, spread

from .worlds import episode, evaluation_line, forest, make_run, update_line, woven


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names)
    return {figure.name: figure for figure in figures}


def shares(series: Series) -> dict[str, float]:
    return {str(x): y for x, y in zip(series.x, series.y, strict=True) if y is not None}


def test_success_curves_stand_at_the_updates_before_them() -> None:
    metrics = [
        {"step": 1, "kind": "imitation", "epoch": 1},
        evaluation_line("before", 2, {"pick": 0.2, "all": 0.3}),
        update_line(1, woven()),
        update_line(2, woven()),
        evaluation_line("update-2", 4, {"pick": 0.4, "all": 0.5}),
        update_line(3, woven()),
        evaluation_line("after", 5, {"pick": 0.6, "all": 0.7}),
        evaluation_line("control", 5, {"pick": 0.1, "all": 0.1}),
    ]
    figures = by_name(run_figures(metrics, []))
    own, control = figures["success-all"].series
    assert (list(own.x), list(own.y)) == ([0, 2, 3], [0.3, 0.5, 0.7])
    assert list(own.low) == pytest.approx([0.2, 0.4, 0.6])
    assert (control.name, list(control.x), list(control.y)) == ("valid, control", [3], [0.1])
    assert list(figures)[:2] == ["success-all", "success-pick"]


def test_what_every_update_logs_is_a_curve_and_what_none_logs_is_not() -> None:
    figures = by_name(run_figures([update_line(1, woven()), update_line(2, woven())], []))
    assert list(figures["entropy"].series[0].y) == pytest.approx([1.9, 1.8])
    assert list(figures["training-success"].series[0].y) == [0.75, 0.75]
    assert "conversion" not in figures
    assert "gradient" not in figures
    assert {series.name for series in figures["credit-size"].series} == {"advantage", "episode", "step"}


def test_time_is_matched_by_step_and_speed_counts_turns() -> None:
    metrics = [update_line(1, woven()) | {"step": 7}, update_line(2, woven()) | {"step": 8}]
    timing = [
        {"step": 7, "update": 0.5, "rollout": 3.0, "credit": 0.1},
        {"step": 8, "update": 0.7, "rollout": 1.5, "evaluation": 4.0},
    ]
    figures = by_name(run_figures(metrics, timing))
    assert {series.name: list(series.y) for series in figures["time"].series} == {
        "rollout": [3.0, 1.5], "credit": [0.1, 0.0], "update": [0.5, 0.7], "evaluation": [0.0, 4.0],
    }  # fmt: skip
    assert list(figures["time"].series[0].x) == [1, 2]
    assert list(figures["speed"].series[0].y) == pytest.approx([9 / 3.0, 9 / 1.5])


def test_group_figures_of_the_worked_case() -> None:
    figures = by_name(batch_figures(make_batch("batch", woven(), ("grpo",))))
    # Nine turns: s is left by 4, x by 3, y by 2.
    assert shares(figures["group-size"].series[0]) == pytest.approx({"1": 0, "2": 2 / 9, "3–4": 7 / 9})
    through, reach = figures["propagation"].series
    # Episodes through s: 4, x: 3 (A, B, D), y: 2; every one of the three is reached by all four outcomes.
    assert shares(through) == pytest.approx({"1": 0, "2": 1 / 3, "3–4": 2 / 3})
    assert shares(reach) == pytest.approx({"1": 0, "2": 0, "3–4": 1})


def test_density_by_depth() -> None:
    # Depth 0: five turns leave s. Depth 1: five turns, of which x, x share a state and three are alone.
    paths = ["x", "x", "p", "q", "r"]
    played = [episode(f"e{at}", ["s", "a", state, "b", "L"], won=False) for at, state in enumerate(paths)]
    density = by_name(batch_figures(make_batch("batch", played, ("grpo",))))["group-density"].series[0]
    assert (list(density.x), list(density.y)) == ([0, 1], [1.0, 0.4])


def test_methods_beside_each_other() -> None:
    batch = make_batch("batch", [*woven("t1"), *woven("t2")], ("grpo", "graft", "gigpo", "gaca"))
    figures = by_name(batch_figures(batch))
    against = figures["disagreement"].series[0]
    opposite = batch.credits["grpo"].advantage * batch.credits["graft"].advantage < 0
    assert opposite.sum() > 0
    assert list(against.x) == ["graft", "gigpo", "gaca"]
    assert against.y[0] == pytest.approx(opposite.mean())
    assert against.low[0] == against.high[0] == against.y[0]  # two equal tasks: resampling them changes nothing
    episode_part, step_part = (batch.credits["gigpo"].components[name] for name in ("episode", "step"))
    assert figures["sign-conflicts"].series[0].y[0] == pytest.approx(np.mean(episode_part * step_part < 0))
    weight = figures["mixing-weight"].series[0]
    assert weight.name == "gaca"
    assert sum(y for y in weight.y if y is not None) == pytest.approx(1)
    magnitude = next(one for one in figures["credit-magnitude"].series if one.name == "grpo")
    assert magnitude.y[-1] == pytest.approx(np.abs(batch.credits["grpo"].advantage).max())


def test_reliability_comes_from_the_allocator() -> None:
    bins = [{"low": 0.0, "high": 0.1, "count": 3, "predicted": 0.05, "observed": 1 / 3}]
    line = update_line(1, forest(), allocation={"root": {"bins": bins}, "branch": {"bins": []}})
    figures = by_name(batch_figures(make_batch("batch", forest(), ("tsbpo",), metrics=line)))
    root = figures["reliability-root"].series[0]
    assert (list(root.x), list(root.y), list(root.size)) == ([0.05], [1 / 3], [3])
    assert "reliability-branch" not in figures


def test_updates_shown_are_spread_over_the_run() -> None:
    files = [Path(str(number)) for number in range(1, 201)]
    shown = [int(file.name) for file in spread(files, 5)]
    assert shown == [1, 51, 100, 150, 200] or shown == [1, 51, 101, 150, 200]
    assert spread(files[:3], 5) == files[:3]
    assert spread([], 5) == []


def test_own_method_is_spelled_with_its_options() -> None:
    assert own_method({"method": "gigpo", "method_options": {}}) == "gigpo"
    assert own_method({"method": "graft", "method_options": {"lam": 0.8, "gae": False}}) == "graft:lam=0.8,gae=false"


def test_run_warnings_say_what_was_lost() -> None:
    suffixes = {"openings": 5, "unreplayable": 2}
    line = update_line(1, woven(), failures=3, allocation={"round_outcomes": suffixes})
    assert run_warnings([line])[:2] == [
        "3 episodes failed before their first turn and are in no figure.",
        "2 of 5 branches could not be replayed.",
    ]
    assert run_warnings([]) == []


def test_report_of_a_run_puts_its_own_method_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", method="graft", method_options={"lam": 0.8})
    report = run_report(run, ("grpo", "gigpo"))
    assert [batch.name for batch in report.batches] == ["update 1", "update 2", "update 3"]
    assert list(report.batches[0].credits) == ["graft:lam=0.8", "grpo", "gigpo"]
    assert report.headline["success on valid (95 %: 65.0% – 85.0%)"] == "25.0% → 75.0%"
    assert report.headline["episodes played"] == "12"
    assert report.sampling == []


def wrong_lines(line: Any) -> Iterator[Any]:
    """The line with one value, anywhere in it, left out or of another kind."""
    if isinstance(line, dict):
        for name, value in line.items():
            rest = {other: line[other] for other in line if other != name}
            yield rest
            for wrong in ("?", None, [], {}, -1, *wrong_lines(value)):
                yield {**rest, name: wrong}


@pytest.mark.parametrize("name", ["metrics", "timing", "config"])
def test_a_log_of_another_kind_is_one_sentence_that_names_the_run(name: str, tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "run"), make_run(tmp_path / "other")
    shutil.rmtree(run / "rollouts")
    file = run / ("config.json" if name == "config" else f"{name}.jsonl")
    *before, last = file.read_text().splitlines()
    refusals = []
    for wrong in wrong_lines(json.loads(last)):
        file.write_text("\n".join([*before, json.dumps(wrong), ""]))
        for read in (lambda: run_report(run), lambda: compare_report([other, run])):
            try:
                read()
            except StepcreditError as error:
                refusals.append(str(error))
    assert refusals
    assert all(f"recipe or the log of {str(run)!r} is not as training writes it" in one for one in refusals)


def test_paired_difference_by_hand() -> None:
    first = {"a": ("f", 0.0), "b": ("f", 1.0), "c": ("g", 0.0), "only here": ("g", 1.0)}
    other = {"a": ("f", 1.0), "b": ("f", 1.0), "c": ("g", 1.0)}
    found = paired_difference(first, other)
    assert found is not None
    tasks, interval = found
    assert (tasks, interval.mean, interval.high) == (3, pytest.approx(2 / 3), 1.0)
    assert paired_difference(first, other, "g") is not None
    assert paired_difference(first, {"z": ("f", 1.0)}) is None


def test_runs_side_by_side(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a" / "run", after=0.25)
    two = make_run(tmp_path / "b" / "run", after=0.75, method="graft")
    report = compare_report([one, two])
    assert report.title == "a/run · b/run"
    figures = by_name(list(report.figures))
    assert [series.name for series in figures["success-all"].series] == ["a/run", "b/run"]
    difference = figures["difference-valid"].series[0]
    # Before: the same. After: tasks 2 and 3 of four are won by the second run only.
    assert (list(difference.x), list(difference.y)) == ([0, 3], [0.0, 0.5])
    assert not math.isclose(difference.low[1] or 0, difference.high[1] or 0)
    header, *rows = report.tables["Success less that of a/run"]
    assert header[:3] == ["run", "split", "family"]
    assert rows[0][:6] == ["b/run", "valid", "all", "3", "4", "+50.0%"]
    assert report.tables["Recipe keys that differ"][1:] == [["method", "gigpo", "graft"]]
