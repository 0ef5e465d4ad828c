"""Checkpoint selection: the maximum mean over seeds and the fixed update, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from stepcredit.core.errors import InputError, OptionError
from stepcredit.evaluation.results import OVERALL
from stepcredit.evaluation.select import select_checkpoint


def metrics(curves: dict[str, list[float]], imitation_steps: int = 3) -> list[dict[str, Any]]:
    """Metrics of a run evaluated before, after every ten updates, and after the last."""
    count = len(next(iter(curves.values())))
    lines: list[dict[str, Any]] = []
    for place in range(count):
        if place:
            lines += [{"kind": "update", "step": imitation_steps, "update": 10 * (place - 1) + k} for k in range(1, 11)]
        moment = "before" if not place else "after" if place == count - 1 else f"update-{10 * place}"
        lines += [_line(moment, split, values[place]) for split, values in curves.items()]
    return [*lines, _line("control", next(iter(curves)), 1.0)]


def _line(moment: str, split: str, mean: float) -> dict[str, Any]:
    families = {OVERALL: {"success": {"mean": mean, "low": 0.0, "high": 1.0}}}
    return {"kind": "evaluation", "step": 1, "moment": moment, "split": split, "families": families}


def test_by_hand() -> None:
    runs = [metrics({"seen": [0.1, 0.8, 0.4, 0.6]}), metrics({"seen": [0.2, 0.5, 0.8, 0.6]})]
    selected = select_checkpoint(runs)
    assert selected.chosen_on == "seen"
    figures = selected.splits["seen"]
    assert (figures.maximum.update, figures.fixed.update) == (10, 30)
    assert figures.maximum.mean == pytest.approx(0.65)
    assert figures.maximum.deviation == pytest.approx(0.3 / 2**0.5)
    assert figures.maximum.seeds == [0.8, 0.5]
    assert figures.fixed.mean == pytest.approx(0.6)
    assert figures.each_maximum == pytest.approx(0.8)  # each run's own best is flattering
    assert [one.update for one in figures.curve] == [0, 10, 20, 30]
    assert [one.mean for one in figures.curve] == pytest.approx([0.15, 0.65, 0.6, 0.6])


def test_the_other_split_is_reported_at_the_update_chosen_on_the_first() -> None:
    runs = [metrics({"seen": [0.1, 0.9, 0.5], "unseen": [0.1, 0.3, 0.7]})]
    selected = select_checkpoint(runs)
    assert selected.splits["unseen"].maximum.update == 10
    assert selected.splits["unseen"].maximum.mean == 0.3
    other = select_checkpoint(runs, on="unseen")
    assert other.splits["seen"].maximum.update == 20
    assert other.splits["seen"].maximum.deviation is None


def test_ties_go_to_the_earlier_update() -> None:
    assert select_checkpoint([metrics({"s": [0.5, 0.5, 0.5]})]).splits["s"].maximum.update == 0


def test_the_fixed_update_can_be_named() -> None:
    runs = [metrics({"s": [0.1, 0.2, 0.3]})]
    assert select_checkpoint(runs, fixed=10).splits["s"].fixed.mean == 0.2
    with pytest.raises(OptionError, match="after 15 updates; expected one of: 0, 10, 20"):
        select_checkpoint(runs, fixed=15)


def test_only_what_all_runs_evaluated_counts() -> None:
    runs = [metrics({"s": [0.1, 0.9, 0.3, 0.5], "t": [1, 1, 1, 1]}), metrics({"s": [0.1, 0.2, 0.3]})]
    selected = select_checkpoint(runs)
    assert list(selected.splits) == ["s"]
    assert [one.update for one in selected.splits["s"].curve] == [0, 10, 20]
    assert selected.splits["s"].fixed.update == 20


def test_what_cannot_be_selected_is_refused() -> None:
    with pytest.raises(OptionError, match="share no evaluated split"):
        select_checkpoint([])
    with pytest.raises(OptionError, match="share no evaluated split"):
        select_checkpoint([metrics({"s": [0.1, 0.2]}), metrics({"t": [0.1, 0.2]})])
    with pytest.raises(OptionError, match="Not all runs evaluated split 'u'; expected one of: s"):
        select_checkpoint([metrics({"s": [0.1, 0.2]})], on="u")
    late = [line for line in metrics({"s": [0.1, 0.2]}) if line.get("moment") != "before"]
    early = [line for line in metrics({"s": [0.1, 0.2]}) if line.get("moment") == "before"]
    with pytest.raises(OptionError, match="no update after which all runs were evaluated on 's'"):
        select_checkpoint([late, early])


@pytest.mark.parametrize("line", [[1], {"step": 1}, {"kind": "update"}, {"kind": "evaluation", "moment": "before"}])
def test_metrics_that_nobody_wrote_are_one_sentence(line: Any) -> None:
    with pytest.raises(InputError, match="not as training writes them"):
        select_checkpoint([[line]])


@pytest.mark.parametrize("success", [None, "x", [1], True, float("nan"), -0.1, 1.1])
def test_a_success_is_a_share(success: Any) -> None:
    lines = metrics({"s": [0.1, 0.2]})
    evaluation = next(line for line in lines if line["kind"] == "evaluation")
    evaluation["families"]["all"]["success"]["mean"] = success
    with pytest.raises(InputError, match="not as training writes them"):
        select_checkpoint([lines])


def test_an_update_is_a_whole_number() -> None:
    lines = [{**line, "update": 0.5} if line["kind"] == "update" else line for line in metrics({"s": [0.1, 0.2]})]
    with pytest.raises(InputError, match="not as training writes them"):
        select_checkpoint([lines])
