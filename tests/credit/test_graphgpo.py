"""graphgpo: against plain loops, the released code's numbers, and what a goal is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from credit.test_peers import CASES, load
from reference.batches import chain
from reference.compare import assert_matches_reference
from reference.graphgpo import graphgpo as reference
from stepcredit.core.turns import Turns
from stepcredit.credit.graph_baselines import graphgpo

OPTIONS = [{}, {"relative": True}, {"decay": 0.2, "normalize": "mean"}, {"decay": 1.0, "relative": True}]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("graphgpo", reference, OPTIONS, range(block * 150, block * 150 + 150))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("normalize", ["mean", "mean_std"])
@pytest.mark.parametrize("relative", [False, True])
def test_equals_the_released_code(shared_data: Path, name: str, normalize: Any, relative: bool) -> None:
    case, turns, order = load(shared_data, name)
    credit = graphgpo(turns, decay=case["graphgpo_gamma"], relative=relative, normalize=normalize)
    mode = f"nd{int(relative)}"
    recorded = np.array(case[f"graphgpo_{mode}_{normalize}_norm"])[order]
    np.testing.assert_allclose(credit.advantage, recorded, atol=1e-5)
    returns = np.array(case[f"graphgpo_returns_{mode}"])[order]
    np.testing.assert_allclose(credit.components["step_return"], returns, atol=1e-5)


def test_distances_run_over_edges_of_all_episodes() -> None:
    # B never wins, but from b it stood one step from where A won.
    episodes = [chain("t", "A", ["a", "b"], end="done", success=True), chain("t", "B", ["c", "b"], end="lost")]
    returns = graphgpo(Turns.from_episodes(episodes)).components["step_return"]
    # d: a 2, b 1, goal 0, c 2, lost (cannot reach it) 3.
    np.testing.assert_allclose(returns, [1, 10, 1, 0.01])


def test_no_observation_is_the_goal() -> None:
    # "goal" is a state like any other, and where a failing episode ends is no goal either.
    episodes = [chain("t", "A", ["s", "goal"], end="success", success=True), chain("t", "B", ["s"], end="success")]
    returns = graphgpo(Turns.from_episodes(episodes)).components["step_return"]
    np.testing.assert_allclose(returns, [1, 10, 0.01])


def test_without_success_only_penalties_tell_turns_apart() -> None:
    episodes = [chain("t", "A", ["s", "u"]), chain("t", "B", ["s", "v"], penalties=[0.1, 0])]
    credit = graphgpo(Turns.from_episodes(episodes), normalize="mean")
    np.testing.assert_allclose(credit.components["step"], [0.05, 0, -0.05, 0], atol=1e-15)
    assert len(set(credit.components["step_return"].tolist())) == 1


def test_one_tasks_goal_is_not_anothers() -> None:
    episodes = [chain("t", "A", ["s"], success=True), chain("u", "B", ["s"])]
    returns = graphgpo(Turns.from_episodes(episodes)).components["step_return"]
    np.testing.assert_allclose(returns, [10, 1])


def test_thousands_of_steps_from_the_goal_are_worth_nothing_and_no_error() -> None:
    returns = graphgpo(Turns.from_episodes([chain("t", "A", [f"s{i}" for i in range(3000)], success=True)]))
    assert returns.components["step_return"][0] == 0
    assert returns.components["step_return"][-2] == pytest.approx(1)
