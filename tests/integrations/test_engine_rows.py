"""Rows that travel through an engine: whatever becomes of them on the way, credit is that of ``assign``."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import InputError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.integrations.engines.rows import credit_episodes, credit_rows, episode_rows, episodes_of_rows


def episode(name: str, states: str, *, won: bool, task: str = "t", **more: Any) -> Episode:
    turns = tuple(
        Turn(state, f"go {state}", reward=10.0 * (won and place == len(states) - 1), nll=0.1 * (place + 1), entropy=0.5)
        for place, state in enumerate(states)
    )
    return Episode(task, name, turns, "end", won, stop="won" if won else "lost", **more)


BATCH = [
    episode("a", "xyz", won=True, score=0.5, extra={"family": "pick"}),
    episode("b", "xwz", won=False),
    episode("c", "xy", won=True, parent=Parent("a", 1)),
    episode("d", "qr", won=False, task="u"),
    episode("e", "qrs", won=True, task="u"),
]


def rows_of(batch: list[Episode]) -> list[dict[str, Any]]:
    return [row for one in batch for row in episode_rows(one)]


def test_rows_give_back_the_episodes() -> None:
    back = episodes_of_rows(rows_of(BATCH))
    assert {one.episode: one for one in back} == {one.episode: one for one in BATCH}


@given(
    method=st.sampled_from(["graft", "gaca", "gigpo", "grpo", "tsbpo", "hgpo"]),
    seed=st.integers(0, 10**6),
    repeats=st.lists(st.integers(0, 13), max_size=8),
    padding=st.integers(0, 5),
)
def test_order_repeated_rows_and_padding_change_nothing(
    method: str, seed: int, repeats: list[int], padding: int
) -> None:
    turns = Turns.from_episodes(BATCH)
    expected = {
        (turns.episode_names[turns.episode[row]], int(turns.turn[row])): value
        for row, value in enumerate(assign(turns, method).advantage)
    }
    rows: list[dict[str, Any] | None] = list(rows_of(BATCH))
    rows += [rows[index % len(rows)] for index in repeats]
    rows += [None] * padding
    random.Random(str(seed)).shuffle(rows)
    credit = credit_rows(rows, method, {})
    for row, value in zip(rows, credit.advantage, strict=True):
        if row is None:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(expected[row["episode"], row["turn"]], abs=1e-12)


def test_episodes_that_ended_in_error_are_left_out_with_their_branches() -> None:
    broken = [episode("f", "xy", won=False), episode("g", "y", won=True, parent=Parent("f", 1))]
    broken[0] = Episode("t", "f", broken[0].turns, "end", False, stop="error", extra={"error": "hung"})
    advantage, credit = credit_episodes([*BATCH, *broken], "rloo", {})
    without, _ = credit_episodes(BATCH, "rloo", {})
    assert np.isnan(advantage["f"]).all()
    assert np.isnan(advantage["g"]).all()
    assert credit is not None
    for name, values in without.items():
        np.testing.assert_array_equal(advantage[name], values)


def test_a_batch_of_nothing_but_errors_has_no_credit() -> None:
    broken = Episode("t", "f", (Turn("x", "go"),), "end", False, stop="error")
    result = credit_rows(episode_rows(broken), "graft", {})
    assert result.credit is None
    assert np.isnan(result.advantage).all()
    assert result.episodes == (broken,)


def test_options_reach_the_method() -> None:
    low, _ = credit_episodes(BATCH, "gigpo", {"step_weight": 0.0})
    high, _ = credit_episodes(BATCH, "gigpo", {"step_weight": 1.0})
    assert not np.allclose(low["a"], high["a"])


@pytest.mark.parametrize(("method", "option", "key"), [("gae", "values", "value"), ("hcapo", "hindsight", "hindsight")])
def test_columns_that_a_method_takes_travel_on_the_rows(method: str, option: str, key: str) -> None:
    turns = Turns.from_episodes(BATCH)
    column = -np.random.default_rng([1]).random(len(turns)) - 0.1
    expected = assign(turns, method, **{option: column}).advantage
    rows = [{**row, key: float(value)} for row, value in zip(rows_of(BATCH), column, strict=True)]
    order = np.random.default_rng([2]).permutation(len(rows))
    credit = credit_rows([rows[place] for place in order], method, {})
    np.testing.assert_allclose(credit.advantage, expected[order], atol=1e-12)
    assert sorted(turn.extra[key] for one in credit.episodes for turn in one.turns) == sorted(column)
    for broken in (None, True, float("nan"), "high"):
        with pytest.raises(InputError, match=rf"Turn 0 of episode 'a' has .* as '{key}'; method '{method}' needs"):
            credit_rows([{**rows[0], key: broken}, *rows[1:]], method, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.pop(1), "Episode 'a' has no row for turn 1; expected one for each of its 3 turns"),
        (lambda rows: rows[0].pop("observation"), "no 'observation'"),
        (lambda rows: rows[0].update(reward="much"), "turns\\[0\\].reward: got 'much'"),
    ],
)
def test_faulty_rows_are_named(change: Any, message: str) -> None:
    rows = rows_of(BATCH)
    change(rows)
    with pytest.raises(InputError, match=message):
        credit_rows(rows, "grpo", {})
