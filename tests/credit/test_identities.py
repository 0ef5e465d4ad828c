"""Identities that hold for every method of the catalogue, on random chains and forests."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from reference.batches import DEGENERATE, batch, chain, random_chains, random_forest
from stepcredit.core.episodes import Episode
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign

PLAIN = [name for name, method in METHODS.items() if not {"values", "hindsight"} & set(method.needs)]
"""Methods that need no column beside the rollouts' own."""
BY_TASK = [name for name in PLAIN if METHODS[name].scope == "task"]
STEP_ONLY = {"rtmc", "hgpo"}


def credit_by_turn(episodes: list[Episode], name: str) -> dict[tuple[str, int], float]:
    turns = Turns.from_episodes(episodes)
    advantage = assign(turns, name).advantage
    keys = zip((turns.episode_names[e] for e in turns.episode), turns.turn.tolist(), strict=True)
    return dict(zip(keys, advantage.tolist(), strict=True))


def assert_same(one: dict[tuple[str, int], float], other: dict[tuple[str, int], float]) -> None:
    assert one.keys() == other.keys()
    np.testing.assert_allclose([one[key] for key in other], list(other.values()), rtol=1e-9, atol=1e-9)


def renamed(episodes: list[Episode], prefix: str) -> list[Episode]:
    """The batch under other task and episode names, as another file would hold it; name order is kept."""
    return [
        dataclasses.replace(
            episode,
            task=prefix + episode.task,
            episode=prefix + episode.episode,
            parent=episode.parent and dataclasses.replace(episode.parent, episode=prefix + episode.parent.episode),
        )
        for episode in episodes
    ]


@pytest.mark.parametrize("name", PLAIN)
def test_permuting_lines_permutes_credit(name: str) -> None:
    for seed in range(30):
        episodes = batch(seed)
        shuffled = random.Random(seed).sample(episodes, len(episodes))
        assert_same(credit_by_turn(shuffled, name), credit_by_turn(episodes, name))


@pytest.mark.parametrize("name", BY_TASK)
def test_tasks_are_isolated(name: str) -> None:
    for seed in range(30):
        episodes = batch(seed)
        together = credit_by_turn(episodes, name)
        for task in sorted({episode.task for episode in episodes}):
            own = [episode for episode in episodes if episode.task == task]
            alone = credit_by_turn(own, name)
            assert_same({key: together[key] for key in alone}, alone)


@pytest.mark.parametrize("name", BY_TASK)
def test_two_files_joined_are_the_two_apart(name: str) -> None:
    for seed in range(10):
        one, other = renamed(random_chains(seed), "a"), renamed(random_forest(seed), "b")
        joined = credit_by_turn(one + other, name)
        assert_same(joined, credit_by_turn(one, name) | credit_by_turn(other, name))


@pytest.mark.parametrize("name", PLAIN)
def test_calling_twice_gives_the_same_bits_and_leaves_the_table_alone(name: str) -> None:
    turns = Turns.from_episodes(batch(5))
    before = {field.name: np.copy(getattr(turns, field.name)) for field in dataclasses.fields(turns)}
    first, second = assign(turns, name), assign(turns, name)
    np.testing.assert_array_equal(first.advantage, second.advantage)
    for column, value in before.items():
        np.testing.assert_array_equal(getattr(turns, column), value, err_msg=column)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_batches_give_finite_credit(name: str, case: str) -> None:
    credit = assign(Turns.from_episodes(DEGENERATE[case]), name)
    assert np.isfinite(credit.advantage[credit.scored]).all()
    assert {"groups", "mean_abs", "warnings"} <= credit.diagnostics.keys()
    assert credit.diagnostics["mean_abs"].keys() == {"advantage", *credit.components}


@pytest.mark.parametrize("name", PLAIN)
def test_an_empty_batch_gives_empty_credit(name: str) -> None:
    credit = assign(Turns.from_episodes([]), name)
    assert credit.advantage.shape == (0,)


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce_pp", "gigpo", "rtmc", "bipace", "hgpo", "gaca", "salt"])
def test_equal_episodes_give_exact_zeros(name: str) -> None:
    episodes = [chain("t", f"{i}", ["s", "u", "v"], rewards=[0.1, 0.2, 0.3], penalties=[0.7] * 3) for i in range(8)]
    assert assign(Turns.from_episodes(episodes), name).advantage.tolist() == [0.0] * 24


@pytest.mark.parametrize("name", ["gigpo", "bipace", "rtmc", "hgpo"])
def test_where_no_state_comes_twice_the_step_term_vanishes(name: str) -> None:
    episodes = [
        chain("t", f"{i}", [f"{i} {t}" for t in range(4)], rewards=[0, 0, 0, i], penalties=[0, 0.1, 0, 0])
        for i in range(5)
    ]
    turns = Turns.from_episodes(episodes)
    credit = assign(turns, name)
    assert not credit.components["step"].any()
    expected = np.zeros(20) if name in STEP_ONLY else assign(turns, "grpo").advantage
    np.testing.assert_array_equal(credit.advantage, expected)


@pytest.mark.parametrize("name", ["grpo", "rloo", "gigpo", "bipace", "gaca", "reinforce_pp"])
def test_adding_a_constant_to_every_last_reward_changes_nothing_in_mean_mode(name: str) -> None:
    options = {"normalize": "mean"} if "normalize" in METHODS[name].options else {}
    if "gamma" in METHODS[name].options:
        options["gamma"] = 0.0  # a discounted constant is not a constant
    states = ["s", "u", "s"]
    plain = [chain("t", f"{i}", states, rewards=[0, 0, i]) for i in range(4)]
    shifted = [chain("t", f"{i}", states, rewards=[7, 7, 7 + i]) for i in range(4)]
    before, after = (assign(Turns.from_episodes(episodes), name, **options).advantage for episodes in (plain, shifted))
    np.testing.assert_allclose(after, before, atol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "gigpo", "gaca", "hgpo"])
@pytest.mark.parametrize("scale", [10.0, 0.01])
def test_with_deviation_only_the_ratio_of_reward_and_penalty_counts(name: str, scale: float) -> None:
    episodes = [chain("t", f"{i}", ["s", "u"], rewards=[0, i], penalties=[0.1 * (i % 2), 0]) for i in range(4)]
    scaled = [
        dataclasses.replace(
            episode,
            turns=tuple(
                dataclasses.replace(turn, reward=scale * turn.reward, penalty=scale * turn.penalty)
                for turn in episode.turns
            ),
        )
        for episode in episodes
    ]
    one, other = (assign(Turns.from_episodes(e), name).advantage for e in (episodes, scaled))
    np.testing.assert_allclose(one, other, rtol=1e-3)
