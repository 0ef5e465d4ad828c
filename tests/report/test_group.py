"""A task group's payload against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stepcredit.core.episodes import Episode, Parent
from stepcredit.core.errors import InputError, OptionError
from stepcredit.report import group as group_module
from stepcredit.report.batch import make_batch
from stepcredit.report.forest import Forest, episode_rows
from stepcredit.report.group import NOT_DRAWN, describe_group

from .worlds import episode, forest, woven


def payload(episodes: list[Episode], *methods: str, task: int = 0) -> dict[str, Any]:
    batch = make_batch("batch", episodes, methods or ("grpo",))
    return describe_group(batch, Forest(batch.turns) if batch.turns.is_forest else None, task)


def by_text(group: dict[str, Any], column: str) -> dict[str, Any]:
    nodes = group["graph"]["nodes"]
    return {group["texts"][text]: value for text, value in zip(nodes["text"], nodes[column], strict=True)}


def test_nodes_of_the_worked_case() -> None:
    group = payload(woven())
    assert by_text(group, "value") == pytest.approx(
        {"s": 0.73344, "x": 0.66, "y": 0.8217, "W": 1.0, "L": 0.0}, abs=1e-5
    )
    assert by_text(group, "visits") == {"s": 4, "x": 3, "y": 2, "W": 0, "L": 0}
    assert by_text(group, "endings") == {"s": 0, "x": 0, "y": 0, "W": 3, "L": 1}
    assert by_text(group, "wins") == {"s": 0, "x": 0, "y": 0, "W": 3, "L": 0}
    assert by_text(group, "degree") == {"s": 4, "x": 4, "y": 4, "W": 3, "L": 1}
    assert by_text(group, "x") == {"s": 0, "x": 1, "y": 1, "W": 2, "L": 2}


def test_edges_carry_mean_credit_by_method() -> None:
    group = payload(woven(), "graft:gae=false,normalize=none", "grpo:normalize=mean")
    nodes, edges = group["graph"]["nodes"], group["graph"]["edges"]
    names = [group["texts"][text] for text in nodes["text"]]
    pairs = [(names[u], names[v]) for u, v in zip(edges["source"], edges["target"], strict=True)]
    delta, outcome = (dict(zip(pairs, credit, strict=True)) for credit in edges["credit"])
    assert delta == pytest.approx(
        {
            ("s", "x"): -0.080041,
            ("s", "y"): 0.080042,
            ("x", "W"): 0.33,
            ("x", "L"): -0.66,
            ("y", "W"): 0.1683,
            ("y", "x"): -0.1683,
        },
        abs=1e-5,
    )
    # Returns 10, 0, 10, 10, over the turns (A 2, B 2, C 2, D 3): mean 70/9. A and B share s → x: one +20/9, one −70/9.
    assert outcome["s", "x"] == pytest.approx((20 / 9 - 70 / 9) / 2, abs=1e-4)
    assert outcome["x", "L"] == pytest.approx(-70 / 9, abs=1e-4)
    assert dict(zip(pairs, edges["count"], strict=True)) == {
        ("s", "x"): 2, ("s", "y"): 2, ("x", "W"): 2, ("x", "L"): 1, ("y", "W"): 1, ("y", "x"): 1,
    }  # fmt: skip


def test_choices_tell_actions_with_one_target_apart() -> None:
    twice = [episode("A", ["s", "a", "W"], won=True), episode("B", ["s", "b", "W"], won=True)]
    graph = payload(twice)["graph"]
    assert graph["edges"]["count"] == [2]
    assert (graph["choices"]["edge"], graph["choices"]["count"]) == ([0, 0], [1, 1])


def test_episode_columns() -> None:
    group = payload(woven(), "gigpo:normalize=mean", "gaca")
    last = group["episodes"][3]
    assert [group["texts"][text] for text in last["action"]] == ["d", "e", "b"]
    assert (last["return"], last["success"], group["texts"][last["stop"]]) == (10.0, True, "won")
    assert last["nll"] == [0.5, 0.6, 0.7]
    own, mixed = last["credit"]
    assert own["parts"].keys() == {"episode", "step"}
    assert own["advantage"] == pytest.approx(np.add(own["parts"]["episode"], own["parts"]["step"]), abs=1e-3)
    assert mixed["parts"]["weight"] == pytest.approx(
        np.minimum(0.5 * (1 + 0.5 * np.array([0.5, 0.6, 0.7]) / 0.6), 1), abs=1e-4
    )
    assert (group["texts"][group["family"]], group["texts"][group["goal"]]) == ("weave", "reach W in t")


def test_not_scored_is_none_not_zero() -> None:
    batch = make_batch("batch", woven(), ("grpo",))
    credit = batch.credits["grpo"]
    unscored = dataclasses.replace(credit, advantage=np.where(np.arange(9) == 1, np.nan, credit.advantage))
    group = describe_group(dataclasses.replace(batch, credits={"grpo": unscored}), None, 0)
    assert group["episodes"][0]["credit"][0]["advantage"][1] is None
    # x → W was taken by A (row 1, not scored) and D: the mean is D's alone.
    names = [group["texts"][text] for text in group["graph"]["nodes"]["text"]]
    edges = group["graph"]["edges"]
    edge = [(names[u], names[v]) for u, v in zip(edges["source"], edges["target"], strict=True)].index(("x", "W"))
    assert edges["credit"][0][edge] == pytest.approx(credit.advantage[8], abs=1e-4)


def test_tree_of_a_forest() -> None:
    group = payload(forest(), "tsbpo")
    tree = group["tree"]
    assert tree["rows"] == [0, 1, 2, 3]
    segments = tree["segments"]
    rows = list(zip(*(segments[name] for name in ("episode", "from", "to", "score", "credit", "root")), strict=True))
    # Split at x after A's first turn: A's rest 0, B 10, C 0; mean 10/3. Roots: A 0, D 10 − 1/2; mean 4.75.
    assert rows == [
        (0, 0, 1, 0.0, -4.75, True),
        (0, 1, 3, 0.0, pytest.approx(-10 / 3, abs=1e-4), False),
        (1, 1, 2, 10.0, pytest.approx(20 / 3, abs=1e-4), False),
        (2, 1, 3, 0.0, pytest.approx(-10 / 3, abs=1e-4), False),
        (3, 0, 2, 9.5, 4.75, True),
    ]
    assert tree["splits"] == {"row": [0], "at": [1], "value": [pytest.approx(10 / 3, abs=1e-4)], "children": [3]}
    assert [one["parent"] for one in group["episodes"]] == [None, 0, 0, None]
    assert group["episodes"][1]["parentTurn"] == 1


def test_late_branches_stand_next_to_their_parent() -> None:
    long = episode("A", ["s", "a", "x", "b", "y", "c", "L"], won=False)
    early = episode("B", ["x", "d", "L"], won=False, parent=Parent("A", 1))
    late = episode("C", ["y", "d", "L"], won=False, parent=Parent("A", 2))
    deeper = episode("D", ["y", "e", "L"], won=False, parent=Parent("C", 0))
    batch = make_batch("batch", [long, early, late, deeper], ("tsbpo",))
    assert episode_rows(batch.turns, [0, 1, 2, 3]) == {0: 0, 2: 1, 3: 2, 1: 3}


def test_a_group_too_large_keeps_parents_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "MOST_EPISODES", 3)
    branches = [episode(f"B{at}", ["x", "d", "W"], won=True, parent=Parent("Z", 1)) for at in range(3)]
    root = episode("Z", ["s", "a", "x", "b", "L"], won=False)
    group = payload([*branches, root], "tsbpo")
    assert [group["texts"][one["name"]] for one in group["episodes"]] == ["B0", "B1", "Z"]
    assert group["members"] == 4
    assert by_text(group, "visits")["x"] == 4  # the graph is that of all episodes


def test_a_graph_too_large_draws_the_states_visited_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "MOST_NODES", 3)
    group = payload(woven())
    assert by_text(group, "visits") == {"s": 4, "x": 3, "W": 0}
    assert group["states"] == 5
    assert group["episodes"][1]["end"] == NOT_DRAWN


def test_a_method_that_lacks_data_is_left_out_with_a_warning() -> None:
    bare = [
        dataclasses.replace(one, turns=tuple(dataclasses.replace(turn, nll=None) for turn in one.turns))
        for one in woven()
    ]
    batch = make_batch("batch", bare, ("grpo", "gaca"))
    assert list(batch.credits) == ["grpo"]
    assert any(warning.startswith("gaca is left out") and "nll" in warning for warning in batch.warnings)
    with pytest.raises(InputError, match="No credit for 'batch'"):
        make_batch("batch", bare, ("gaca",))
    with pytest.raises(OptionError, match="Did you mean 'grpo'"):
        make_batch("batch", bare, ("grpoo",))


def test_one_sided_groups_are_named() -> None:
    lost = [episode(f"l{at}", ["s", "a", "L"], task="hard", won=False) for at in range(2)]
    batch = make_batch("batch", [*woven(), *lost], ("grpo",))
    assert any(
        "1 of 2 task groups have one outcome only (1 all failed, 0 all succeeded)" in one for one in batch.warnings
    )
