"""What is remembered of tasks and states, how it fades, and that it stays bounded."""

from __future__ import annotations

import numpy as np
import pytest

from stepcredit.allocation.memory import NOT_REMEMBERED, StateMemory, TaskMemory
from stepcredit.allocation.states import StateGroup, Visits
from stepcredit.core.episodes import Parent


def no_vectors(count: int) -> np.ndarray:
    return np.zeros((count, 0), dtype=np.float32)


def group(state: str, *visits: tuple[str, int, int], task: str = "t", depth: int = 0) -> StateGroup:
    return StateGroup(task, state, depth, 50, Parent("e", depth), tuple(Visits(*visit) for visit in visits))


def remember(memory: StateMemory, round_: int, *groups: StateGroup) -> None:
    memory.remember(round_, groups, [0] * len(groups), no_vectors(len(groups)))


def seen(memory: StateMemory, round_: int, *groups: StateGroup) -> list[tuple[int, int, int, int, float]]:
    found = memory.outcomes(memory.rows(groups), round_)
    return list(zip(*(column.tolist() for column in found), strict=True))


def test_task_history_fades_by_round() -> None:
    tasks = TaskMemory(0.5)
    tasks.add(["a", "b"], no_vectors(2))
    tasks.observe(1, tasks.row("a"), 4, 2)
    np.testing.assert_array_equal(tasks.history(2), [[4, 2], [0, 0]])
    np.testing.assert_array_equal(tasks.history(4), [[1, 0.5], [0, 0]])
    tasks.observe(3, tasks.row("a"), 0, 1)
    np.testing.assert_array_equal(tasks.history(4), [[1, 1.5], [0, 0]])
    assert tasks.revisited(["b", "a", "unheard of"]).tolist() == [False, True, False]
    assert tasks.unknown(["b", "unheard of"]) == [1]


def test_task_state_round_trip() -> None:
    tasks = TaskMemory(0.5)
    tasks.add(["a", "b"], np.array([[1, 0], [0, 1]], dtype=np.float32))
    tasks.observe(2, 1, 3, 1)
    copy = TaskMemory(0.5)
    copy.load(*tasks.state())
    tasks.observe(3, 1, 1, 1)
    assert copy.names == ["a", "b"]
    assert copy.row("b") == 1
    np.testing.assert_array_equal(copy.history(3), [[0, 0], [3, 1]])
    np.testing.assert_array_equal(copy.goals, tasks.goals)


def test_state_outcomes_keep_clusters_apart_and_fade() -> None:
    memory = StateMemory(0.5, 10)
    x, y, new = group("x"), group("y"), group("new")
    remember(memory, 1, group("x", ("e0", 0, 1), ("e1", 2, 3)), group("y", ("e1", 1, 0)))
    remember(memory, 2, group("y", ("e0", 0, 4)))  # another e0: names are unique only within a round
    assert seen(memory, 3, y, new, x) == [(0, 1, 1, 0, 0.5), (0, 2, 0, 4, 1.0), (2, 0, 0, 1, 0.5), (2, 1, 2, 3, 0.5)]
    assert memory.rows([new]).tolist() == [NOT_REMEMBERED]
    assert seen(memory, 3, new) == []


def test_equal_states_of_different_tasks_are_different() -> None:
    memory = StateMemory(0.9, 10)
    remember(memory, 1, group("x", ("e", 1, 0), task="t"), group("x", ("f", 0, 1), task="u"))
    assert [line[2:4] for line in seen(memory, 2, group("x", task="u"))] == [(0, 1)]


def test_the_longest_unseen_states_go_first() -> None:
    memory = StateMemory(0.9, 3)
    remember(memory, 1, *(group(state, (state, 1, 0)) for state in "abc"))
    remember(memory, 2, group("a", ("later", 0, 1)))
    remember(memory, 3, group("d", ("d", 1, 0)))
    assert len(memory) == 3
    rows = memory.rows([group(state) for state in "abcd"])
    assert (rows == NOT_REMEMBERED).tolist() == [False, True, False, False]
    assert len(seen(memory, 4, group("a"))) == 2
    assert [line[2:4] for line in seen(memory, 4, group("d"))] == [(1, 0)]  # nothing of b, whose row it took


def test_more_states_than_fit_in_one_round() -> None:
    memory = StateMemory(0.9, 2)
    remember(memory, 1, *(group(state, (state, 1, 0)) for state in "abc"))
    remember(memory, 2, *(group(state, (state, 1, 0)) for state in "cde"))
    assert len(memory) == 2
    assert (memory.rows([group(state) for state in "abcde"]) >= 0).tolist() == [False, False, True, True, False]


def test_outcomes_of_negligible_weight_are_dropped() -> None:
    memory = StateMemory(0.1, 10)
    for round_ in range(1, 30):
        remember(memory, round_, group("x", ("e", 1, 0)))
    weights = [line[4] for line in seen(memory, 30, group("x"))]
    assert len(weights) == 10
    assert min(weights) == pytest.approx(1e-9)


def test_never_fading_outcomes_are_kept() -> None:
    memory = StateMemory(1.0, 10)
    for round_ in range(1, 30):
        remember(memory, round_, group("x", ("e", 1, 0)))
    assert len(seen(memory, 30, group("x"))) == 29


def test_memory_stays_bounded_over_many_rounds() -> None:
    memory = StateMemory(0.5, 50)
    rng = np.random.default_rng(0)
    for round_ in range(1, 120):
        remember(memory, round_, *(group(f"s{n}", ("e", 1, 0)) for n in rng.choice(400, 20, replace=False)))
        _, arrays = memory.state()
        assert len(memory) == int((arrays["depth"] >= 0).sum()) <= 50
        assert len(arrays["lines"]) <= 20 * 31  # 0.5^30 is the last weight above 1e-9
        assert set(arrays["lines"][:, 0].tolist()) <= set(np.flatnonzero(arrays["depth"] >= 0).tolist())


def test_state_memory_goes_on_with_equal_bits() -> None:
    rng = np.random.default_rng(1)

    def some(round_: int) -> list[StateGroup]:
        return [
            group(f"s{n}", (f"e{round_}", int(rng.integers(3)), 1), depth=int(n) % 4)
            for n in rng.choice(60, 12, replace=False)
        ]

    memory, copy = StateMemory(0.9, 30), StateMemory(0.9, 30)
    rounds = [some(round_) for round_ in range(1, 13)]
    vectors = [rng.standard_normal((12, 5)).astype(np.float32) for _ in rounds]
    for round_ in range(1, 7):
        memory.remember(round_, rounds[round_ - 1], [0] * 12, vectors[round_ - 1])
    copy.load(*memory.state())
    for round_ in range(7, 13):
        for held in (memory, copy):
            held.remember(round_, rounds[round_ - 1], [0] * 12, vectors[round_ - 1])
    (values, arrays), (copied, copied_arrays) = memory.state(), copy.state()
    assert values == copied
    assert {key: array.tobytes() for key, array in arrays.items()} == {
        key: array.tobytes() for key, array in copied_arrays.items()
    }
    assert memory.rows_at(2, 50).tolist() == copy.rows_at(2, 50).tolist() != []
