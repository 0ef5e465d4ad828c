"""Faults that users reported of other stacks, each as a case here or in the file named.

Grouping: a group id per episode, uneven groups, group size 1, long episodes (test_grpo); one row left out instead of
one episode (test_rloo); singleton states, order of discounting and normalising, order-dependent clusters, rounding
residue (test_gigpo); singleton states that keep a signal (test_gaca); a level of exactly zero (test_hgpo); noise of a
value solver (test_graft); filtering on shaped rewards (test_diagnostics); reward scale (test_identities).
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from reference.batches import chain, hand_five
from stepcredit.core.errors import InputError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign
from stepcredit.credit.diagnostics import build_credit, describe_groups

MINE = ["grpo", "rloo", "reinforce_pp", "gigpo", "rtmc", "bipace", "hgpo", "gaca"]


def test_a_batch_padded_with_copies_is_refused_instead_of_moving_every_baseline() -> None:
    first, second = hand_five()
    with pytest.raises(InputError, match="Episode 'A': episode: got 'A' a second time"):
        Turns.from_episodes([first, second, first])


def test_what_was_not_scored_stays_out_of_every_mean() -> None:
    turns = Turns.from_episodes([chain("t", f"{i}", ["s"], rewards=[i]) for i in range(4)])
    advantage = np.array([-1.0, 1.0, 1.0, np.nan])
    groups = describe_groups(turns.task[:3], turns.reward[:3])
    credit = build_credit(turns, advantage, {}, groups=groups)
    assert credit.diagnostics["mean_abs"]["advantage"] == 1.0
    assert credit.scored.tolist() == [True, True, True, False]


@pytest.mark.parametrize("name", MINE)
def test_groups_are_made_by_name_and_never_by_position(name: str) -> None:
    """Repeats of a task may come one after the other or interleaved, and workers may reorder them for balance."""
    made = [
        chain(task, f"{task}{i}", ["s", "u"], rewards=[0, i * scale])
        for task, scale in (("a", 1), ("b", 3))
        for i in range(3)
    ]
    expected: dict[tuple[str, int], float] | None = None
    for order in itertools.islice(itertools.permutations(made), 0, None, 97):
        turns = Turns.from_episodes(order)
        advantage = assign(turns, name).advantage
        names = [turns.episode_names[e] for e in turns.episode]
        found = dict(zip(zip(names, turns.turn.tolist(), strict=True), advantage.tolist(), strict=True))
        expected = expected or found
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", MINE)
def test_groups_of_unequal_size_keep_their_own_mean(name: str) -> None:
    sure = [chain("sure", f"s{i}", ["s"], rewards=[1]) for i in range(3)]
    lost = [chain("lost", f"l{i}", ["s"]) for i in range(2)]
    assert assign(Turns.from_episodes(sure + lost), name).advantage.tolist() == [0] * 5


@pytest.mark.parametrize("name", MINE)
@pytest.mark.parametrize("value", [0.35, 0.1, 1 / 3])
def test_eight_equal_rewards_are_exactly_zero(name: str, value: float) -> None:
    turns = Turns.from_episodes([chain("t", f"{i}", ["s"], rewards=[value]) for i in range(8)])
    assert assign(turns, name).advantage.tolist() == [0] * 8


@pytest.mark.parametrize("name", MINE)
def test_group_size_one_is_zero_with_a_warning_and_never_the_raw_return(name: str) -> None:
    credit = assign(Turns.from_episodes([chain("t", "A", ["s"], rewards=[5])]), name)
    assert credit.advantage.tolist() == [0]
    assert len(credit.diagnostics["warnings"]) == 1


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].family == "state groups"])
def test_states_that_other_languages_confuse_stay_apart(name: str) -> None:
    keys = ["1", "True", "1.0", "true", "01", " 1", "１"]
    episodes = [chain("t", f"{i}", [key], rewards=[i]) for i, key in enumerate(keys)]
    credit = assign(Turns.from_episodes(episodes), name)
    assert not credit.components["step"].any()


def test_an_empty_response_has_no_likelihood_and_is_named() -> None:
    episode = chain("t", "A", ["s", "u"])
    empty = dataclasses.replace(episode.turns[1], nll=None, logprobs=())
    turns = Turns.from_episodes([dataclasses.replace(episode, turns=(episode.turns[0], empty))])
    with pytest.raises(InputError, match="but turn 1 of episode 'A' has none"):
        assign(turns, "gaca")
    assert np.isfinite(assign(turns, "gigpo").advantage).all()


def test_charges_weigh_ten_times_more_where_rewards_are_ten_times_smaller() -> None:
    """A penalty of .1 beside rewards of 1 is not the same batch as beside rewards of 10: scale both or neither."""

    def share_of_penalty(win: float) -> float:
        episodes = [
            chain("t", "A", ["s"], rewards=[win]),
            chain("t", "B", ["s"]),
            chain("t", "C", ["s"], penalties=[0.1]),
        ]
        win_credit, loss, charged = assign(Turns.from_episodes(episodes), "grpo").advantage
        return float((loss - charged) / (win_credit - loss))

    assert share_of_penalty(1.0) == pytest.approx(10 * share_of_penalty(10.0))
