"""Pairing two evaluations: numbers by hand, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.environments.chain import ChainSuite
from stepcredit.evaluation.agents import Agent
from stepcredit.evaluation.compare import compare_evaluations
from stepcredit.evaluation.folder import EvaluationResult, Kept, load_evaluation, run_evaluation
from stepcredit.evaluation.intervals import Interval
from stepcredit.evaluation.results import OVERALL, Outcome, summarize

from .players import DoorPolicy, chain_plan, chain_protocol

TASKS = {"a": "f", "b": "f", "c": "g"}


def kept(won: dict[str, list[bool]], **plan: Any) -> Kept:
    """An evaluation with these outcomes, one seed, task by task."""
    outcomes = [
        Outcome(task, TASKS[task], success=one, score=float(one), turns=1) for task, each in won.items() for one in each
    ]
    protocol = {**chain_protocol(seeds=1).settings(), "sources": {}, **plan.pop("protocol", {})}
    head = {"environment": "chain", "split": "test", "first_seed": 0, "protocol": protocol, "tasks": list(won), **plan}
    return Kept(Path("folder"), head, {}, EvaluationResult(summarize(outcomes, resamples=100), outcomes))


def test_by_hand() -> None:
    first = kept({"a": [True, False], "b": [False, False], "c": [True, True]})
    second = kept({"a": [True, True], "b": [False, False], "c": [False, True]})
    result = compare_evaluations(first, second).families
    assert list(result) == ["f", "g", OVERALL]
    overall = result[OVERALL]
    assert (overall.tasks, overall.wins, overall.ties, overall.losses) == (3, 1, 1, 1)
    assert (overall.first, overall.second) == (3 / 6, 3 / 6)
    assert overall.difference.mean == 0.0
    assert overall.difference.low == -0.5  # all three draws are task c with probability 1/27, above 2.5 %
    assert (result["f"].first, result["f"].second) == (1 / 4, 2 / 4)
    assert result["g"].difference == Interval(-0.5, -0.5, -0.5)
    assert result["f"].score == result["f"].difference


def test_with_itself_nothing_differs() -> None:
    one = kept({"a": [True, False], "b": [False, True], "c": [True, True]})
    result = compare_evaluations(one, one).families[OVERALL]
    assert (result.wins, result.ties, result.losses) == (0, 3, 0)
    assert result.difference == Interval(0.0, 0.0, 0.0)


def test_swapping_mirrors_everything() -> None:
    one = kept({"a": [True, True], "b": [False, True], "c": [True, True]})
    other = kept({"a": [False, True], "b": [True, True], "c": [False, False]})
    there = compare_evaluations(one, other).families[OVERALL]
    back = compare_evaluations(other, one).families[OVERALL]
    assert (there.wins, there.losses) == (back.losses, back.wins)
    assert there.difference.mean == -back.difference.mean
    assert there.difference.low == pytest.approx(-back.difference.high)


def test_names_sources_and_resamples_of_a_protocol_do_not_matter() -> None:
    one = kept({"a": [True]})
    other = kept({"a": [True]}, protocol={"name": "gaca", "sources": {"horizon": "x"}, "resamples": 500})
    assert compare_evaluations(one, other).families[OVERALL].ties == 1


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"protocol": {"horizon": 9}}, "not played alike: protocol.horizon is 4 in one and 9 in the other"),
        ({"split": "train"}, 'split is "test" in one and "train" in the other'),
        ({"first_seed": 3}, "first_seed is 0 in one and 3 in the other"),
        ({"environment_options": {"room": "small"}}, "environment_options is null in one"),
    ],
)
def test_other_protocols_are_refused(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        compare_evaluations(kept({"a": [True]}), kept({"a": [True]}, **plan))


def test_other_tasks_are_refused() -> None:
    with pytest.raises(OptionError, match=r"not played on the same tasks \(2 and 2, 1 of them shared\)"):
        compare_evaluations(kept({"a": [True], "b": [True]}), kept({"b": [True], "c": [True]}))


def test_real_evaluations_pair_task_by_task(tmp_path: Path) -> None:
    suite = ChainSuite(length=2, doors=3, count=12)
    plan = chain_plan(suite, chain_protocol())
    for name, right in (("weak", 0.3), ("strong", 0.95)):
        agent = Agent(DoorPolicy(right), "action")
        run_evaluation(agent, suite, suite.tasks("test"), plan, {"name": name}, tmp_path / name)
    weak, strong = (load_evaluation(tmp_path / name) for name in ("weak", "strong"))
    row = compare_evaluations(weak, strong).families[OVERALL]
    assert row.difference.mean == pytest.approx(row.second - row.first, abs=1e-12)
    assert row.difference.low > 0
    assert row.wins > row.losses
    shorter = replace(plan, tasks=plan.tasks[:6])
    run_evaluation(
        Agent(DoorPolicy(0.5), "action"), suite, suite.tasks("test")[:6], shorter, {"name": "x"}, tmp_path / "x"
    )
    with pytest.raises(OptionError, match="12 and 6, 6 of them shared"):
        compare_evaluations(weak, load_evaluation(tmp_path / "x"))


@pytest.mark.parametrize("resamples", [-5, 0, 10**17])
def test_a_number_of_resamples_that_cannot_be_drawn_is_refused(resamples: int) -> None:
    one = kept({"a": [True], "b": [False]})
    with pytest.raises(OptionError, match=f"resamples is {resamples}; expected a number from 1 to"):
        compare_evaluations(one, one, resamples=resamples)
