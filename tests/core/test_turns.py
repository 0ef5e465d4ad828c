"""The flat table: every column against plain loops, parents in any order, every fault of a batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reference.batches import DEGENERATE, batch, chain, long_branch_chain, random_forest
from reference.rows import all_rows
from stepcredit.core.episodes import Episode, Parent
from stepcredit.core.errors import InputError, NumericsError
from stepcredit.core.turns import NO_EPISODE, NO_ROW, Turns


def small_forest() -> list[Episode]:
    """A root of three turns; B leaves it at turn 1; C leaves B at B's turn 1; D starts anew. C stands first."""
    return [
        chain("t", "C", ["v", "w"], parent=Parent("B", 1)),
        chain("t", "A", ["s", "u", "x"]),
        chain("t", "B", ["u", "v"], parent=Parent("A", 1)),
        chain("t", "D", ["s"]),
    ]


def test_columns_of_a_forest() -> None:
    turns = Turns.from_episodes(small_forest())
    # Rows: 0-1 C, 2-4 A, 5-6 B, 7 D.
    assert turns.start.tolist() == [0, 2, 5, 7, 8]
    assert turns.turn.tolist() == [0, 1, 0, 1, 2, 0, 1, 0]
    assert turns.depth.tolist() == [2, 3, 0, 1, 2, 1, 2, 0]
    assert turns.previous.tolist() == [5, 0, NO_ROW, 2, 3, 2, 5, NO_ROW]
    assert turns.episode_parent.tolist() == [2, NO_EPISODE, 1, NO_EPISODE]
    assert turns.branch_row.tolist() == [6, NO_ROW, 3, NO_ROW]
    assert turns.last.tolist() == [1, 4, 6, 7]
    assert turns.is_forest


def test_only_a_branchs_first_turn_shares_its_occurrence() -> None:
    turns = Turns.from_episodes(small_forest())
    leaves = turns.occurrence.tolist()
    assert leaves[0] == leaves[6]  # C left where B's turn 1 was taken
    assert leaves[5] == leaves[3]  # B left where A's turn 1 was taken
    assert len(set(leaves)) == len(leaves) - 2
    assert leaves[2] != leaves[7]  # two roots never share one, though their observations are equal
    for row in range(len(turns)):
        before = turns.previous[row]
        assert before == NO_ROW or turns.occurrence[row] == turns.next_occurrence[before]


@pytest.mark.parametrize("seed", range(200))
def test_columns_equal_plain_loops(seed: int) -> None:
    episodes = batch(seed)
    turns, rows = Turns.from_episodes(episodes), all_rows(episodes)
    assert len(turns) == len(rows)
    for index, row in enumerate(rows):
        assert turns.task_names[turns.task[index]] == row.task
        assert turns.episode_names[turns.episode[index]] == row.episode
        assert turns.turn[index] == row.turn
        assert turns.depth[index] == len(row.path) - 1
        assert turns.state_names[turns.state[index]] == row.state
        assert turns.state_names[turns.next_state[index]] == row.next_state
        assert turns.action_names[turns.action[index]] == row.action
        assert (turns.reward[index], turns.penalty[index]) == (row.reward, row.penalty)
        assert turns.nll[index] == pytest.approx(row.nll, nan_ok=True)
        if len(row.path) > 1:
            before = rows[turns.previous[index]]
            assert (before.episode, before.turn) == (row.path[-2].episode, row.path[-2].turn)
        else:
            assert turns.previous[index] == NO_ROW


def test_equal_text_is_one_key_within_a_task_and_never_across() -> None:
    turns = Turns.from_episodes([chain("a", "A", ["s", "s", "1"]), chain("b", "B", ["s", "True", "1.0"])])
    assert turns.state[0] == turns.state[1] != turns.state[3]
    assert turns.action[0] == turns.action[1] != turns.action[3]
    assert len(set(turns.state.tolist())) == 5


def test_missing_numbers_are_nan_and_logprobs_give_the_mean() -> None:
    episode = chain("t", "A", ["s", "s", "s"])
    given = (
        dataclasses.replace(episode.turns[0], nll=None, entropy=None),
        dataclasses.replace(episode.turns[1], nll=None, logprobs=(-1.0, -2.0)),
        dataclasses.replace(episode.turns[2], nll=None, logprobs=()),
    )
    turns = Turns.from_episodes([dataclasses.replace(episode, turns=given)])
    np.testing.assert_array_equal(turns.nll, [np.nan, 1.5, np.nan])
    np.testing.assert_array_equal(turns.entropy, [np.nan, 0.5, 0.5])
    np.testing.assert_array_equal(turns.score, [np.nan])


def test_an_empty_batch_is_a_table_without_rows() -> None:
    turns = Turns.from_episodes([])
    assert len(turns) == 0
    assert turns.start.tolist() == [0]
    assert not turns.is_forest


def test_deep_chain_of_branches_needs_no_recursion() -> None:
    links = 3000
    turns = Turns.from_episodes(long_branch_chain(links)[::-1])
    # Each link leaves at turn 1 of the one before and adds one turn of depth.
    assert turns.depth.max() == links + 1
    assert np.count_nonzero(turns.previous == NO_ROW) == 1


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([Episode("t", "A", (), "end", False)], "Episode 'A': turns: got an empty list, expected at least one turn."),
        ([chain("t", "A", ["s"]), chain("u", "A", ["s"])], "Episode 'A': episode: got 'A' a second time"),
        ([chain("t", "B", ["s"], parent=Parent("A", 0))], "Episode 'B': parent.episode: got 'A', expected the name of"),
        (
            [chain("t", "A", ["s"]), chain("u", "B", ["s"], parent=Parent("A", 0))],
            "Episode 'B': parent.episode: got 'A', an episode of another task, expected a parent of the same task.",
        ),
        (
            [chain("t", "A", ["s"]), chain("t", "B", ["s"], parent=Parent("A", 1))],
            "Episode 'B': parent.turn: got 1, expected 0 to 0, the own turns of 'A'.",
        ),
        (
            [chain("t", "A", ["s"]), chain("t", "B", ["s"], parent=Parent("A", -1))],
            "Episode 'B': parent.turn: got -1, expected 0 to 0",
        ),
        (
            [chain("t", "A", ["s"], parent=Parent("B", 0)), chain("t", "B", ["s"], parent=Parent("A", 0))],
            "Episode 'A': parent: got 'A' among its own ancestors, expected parents that lead to a root.",
        ),
        (
            [chain("t", "A", ["s"], parent=Parent("A", 0))],
            "Episode 'A': parent: got 'A' among its own ancestors",
        ),
    ],
)
def test_faults_name_the_episode(episodes: list[Episode], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Turns.from_episodes(episodes)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("field", ["reward", "penalty"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_names_turn_and_episode(field: str, value: float) -> None:
    good, bad = chain("t", "A", ["s"]), chain("t", "B", ["s", "u"])
    turn = dataclasses.replace(bad.turns[1], **{field: value})
    with pytest.raises(NumericsError, match=r"^Reward or penalty of turn 1 of episode 'B' is not finite"):
        Turns.from_episodes([good, dataclasses.replace(bad, turns=(bad.turns[0], turn))])


def test_a_cycle_below_a_valid_branch_is_found() -> None:
    episodes = [
        chain("t", "A", ["s"]),
        chain("t", "B", ["s"], parent=Parent("A", 0)),
        chain("t", "C", ["s"], parent=Parent("D", 0)),
        chain("t", "D", ["s"], parent=Parent("C", 0)),
    ]
    with pytest.raises(InputError, match="'C' among its own ancestors"):
        Turns.from_episodes(episodes)


@pytest.mark.parametrize("name", [*DEGENERATE, "random forest"])
def test_at_most_200_bytes_a_turn_in_long_batches(name: str) -> None:
    episodes = DEGENERATE.get(name) or random_forest(7)
    turns = Turns.from_episodes(episodes)
    columns = [getattr(turns, field.name) for field in dataclasses.fields(turns)]
    size = sum(column.nbytes for column in columns if isinstance(column, np.ndarray))
    per_episode = 4 * 4 + 1 + 8  # start, task, parent, branch row; success; score
    assert size <= 73 * len(turns) + per_episode * (len(turns.episode_names) + 1)
