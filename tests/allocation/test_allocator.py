"""Whole rounds of the allocator: budgets, determinism, resume, special cases, controls, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allocation.world import HORIZON, SMALL, TASKS, NearEncoder, play, play_round
from reference import allocation_mixture, allocation_semantic
from stepcredit.allocation import (
    AllocationSettings,
    Allocator,
    RootOutcome,
    StateGroup,
    SuffixOutcome,
    Visits,
)
from stepcredit.allocation.allocator import AllocatorState
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import CheckpointError, InputError, OptionError


@pytest.mark.parametrize("semantic", [False, True])
@pytest.mark.parametrize(("root", "branch"), [("fitted", "fitted"), ("uniform", "random")])
def test_quotas_and_suffixes_respect_every_limit(semantic: bool, root: str, branch: str) -> None:
    settings = replace(SMALL, root=root, branch=branch)
    allocator = Allocator(settings, seed=1, encoder=NearEncoder() if semantic else None)
    for played in play(allocator, range(1, 9)):
        assert len({task for task, _ in played.quotas}) == 5
        assert sum(rollouts for _, rollouts in played.quotas) == 20
        assert min(rollouts for _, rollouts in played.quotas) >= 2
        candidates = {group.occurrence for group in played.visited if group.branchable}
        assert {occurrence for occurrence, _ in played.suffixes} <= candidates
        assert len(played.suffixes) == len({occurrence for occurrence, _ in played.suffixes})
        assert all(4 <= quota <= 8 for _, quota in played.suffixes)
        assert sum(quota for _, quota in played.suffixes) == min(24, 8 * len(candidates))
    diagnostics = allocator.diagnostics()
    assert diagnostics["round"] == 8
    assert diagnostics["root"]["count"] == 40
    assert diagnostics["branch"]["count"] > 8
    assert 0 < diagnostics["memory"]["states"] <= 200


def test_root_probabilities_equal_the_slow_reference() -> None:
    """The pool of every round is all tasks, so that the mean of U over it can be recomputed from what was observed."""
    tasks = TASKS[:12]
    allocator = Allocator(SMALL, seed=3, encoder=NearEncoder())
    vectors = NearEncoder().encode([task.goal for task in tasks]).astype(np.float64)
    cosines = (vectors @ vectors.T).tolist()
    outcomes: list[tuple[str, int, int, int]] = []
    groups: list[allocation_mixture.PastGroup] = []
    names = [task.id for task in tasks]
    for now in range(1, 4):
        history = [
            tuple(sum(0.95 ** (now - 1 - r) * n[side] for name, r, *n in outcomes if name == task) for side in (0, 1))
            for task in names
        ]
        evidence = {}
        expected = []
        for index, task in enumerate(names):
            masses = allocation_semantic.root_masses(cosines[index], history, index)
            evidence[task] = (*history[index], 0.0, 0.0, *masses)
            columns, weight = allocation_mixture.weights(groups, task, now, 0.95)
            a, b = allocation_mixture.posterior(columns, evidence[task])
            expected.append(float((weight * allocation_mixture.mixed(a, b, 6)).sum()))
        played = play_round(allocator, now, tasks)
        got = allocator.diagnostics()["root"]["probability"]
        chosen = [names.index(task) for task, _ in played.quotas]
        assert got["pool"] == pytest.approx(np.mean(expected), abs=1e-6)  # cosines are single precision
        assert got["selected"] == pytest.approx(np.mean([expected[task] for task in chosen]), abs=1e-6)
        for task, successes, failures in played.roots:
            outcomes.append((task, now, successes, failures))
            groups.append(allocation_mixture.PastGroup(task, now, evidence[task], successes, failures))


def test_branch_probabilities_equal_the_closed_form() -> None:
    """E[F(4)] over the candidates from exact Beta moments, against the particles' estimate."""
    allocator = Allocator(replace(SMALL, particles=8000), seed=3)
    outcomes: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    groups: list[allocation_mixture.PastGroup] = []
    for now in range(1, 5):
        played = play_round(allocator, now)
        expected, evidence, task_at, weights = [], {}, {}, {}
        for group in (group for group in played.visited if group.branchable):
            past = outcomes.get((group.task, group.state), [])
            history = [sum(0.9 ** (now - 1 - r) * n[side] for r, *n in past) for side in (0, 1)]
            seen = (*history, float(group.successes), float(group.failures), 0.0, 0.0)
            evidence[group.occurrence], task_at[group.occurrence] = seen, group.task
            if group.task not in weights:
                weights[group.task] = allocation_mixture.weights(groups, group.task, now, 0.9)
            columns, weight = weights[group.task]
            a, b = allocation_mixture.posterior(columns, seen)
            same, other = (a, b) if group.successes else (b, a)
            stay = np.exp(sum(np.log(same + i) - np.log(same + other + i) for i in range(4)))
            expected.append(1 - float((weight * stay).sum()))
        got = allocator.diagnostics()["branch"]["probability"]["candidates"]
        assert got == pytest.approx(np.mean(expected), abs=0.01)
        for occurrence, successes, failures in played.branches:
            past_group = (task_at[occurrence], now, evidence[occurrence], successes, failures)
            groups.append(allocation_mixture.PastGroup(*past_group))
        for group in played.visited:
            outcomes.setdefault((group.task, group.state), []).append((now, group.successes, group.failures))


@pytest.mark.parametrize("semantic", [False, True])
def test_same_seed_same_choices_other_seed_other_choices(semantic: bool) -> None:
    encoder = NearEncoder() if semantic else None
    first, again, other = (play(Allocator(SMALL, seed, encoder), range(1, 6)) for seed in (5, 5, 6))
    assert first == again
    assert first[0].quotas != other[0].quotas


def test_choices_do_not_depend_on_the_order_of_groups() -> None:
    allocators = [Allocator(SMALL, 2), Allocator(SMALL, 2)]
    for allocator in allocators:
        play(allocator, range(1, 4))
        allocator.choose_roots(TASKS, 20)
    visited = play_round(Allocator(SMALL, 7), 1).visited
    assert allocators[0].choose_branches(visited, 24) == allocators[1].choose_branches(visited[::-1], 24) != []


def test_hash_seed_does_not_matter() -> None:
    code = (
        "from allocation.world import SMALL, NearEncoder, play;"
        "from stepcredit.allocation import Allocator;"
        "print([(r.quotas, r.suffixes) for r in play(Allocator(SMALL, 4, NearEncoder()), range(1, 5))])"
    )
    printed = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        printed.add(done.stdout)
    assert len(printed) == 1
    assert "Quota" in printed.pop()


@pytest.mark.parametrize("semantic", [False, True])
def test_resume_is_bit_equal(semantic: bool) -> None:
    encoder = NearEncoder() if semantic else None
    allocator = Allocator(SMALL, 8, encoder)
    play(allocator, range(1, 6))
    values, arrays = allocator.state_dict()
    resumed = Allocator(SMALL, 8, encoder)
    play(resumed, range(11, 13))  # what it knew before is replaced
    resumed.load_state_dict(AllocatorState(json.loads(json.dumps(values)), arrays))
    assert play(allocator, range(6, 11)) == play(resumed, range(6, 11))
    (left, left_arrays), (right, right_arrays) = allocator.state_dict(), resumed.state_dict()
    assert left == right
    assert left_arrays.keys() == right_arrays.keys()
    for name, array in left_arrays.items():
        assert array.tobytes() == right_arrays[name].tobytes(), name
    assert allocator.diagnostics() == resumed.diagnostics()


def test_a_round_that_is_not_observed_cannot_be_saved() -> None:
    allocator = Allocator(SMALL, 0)
    allocator.choose_roots(TASKS, 20)
    with pytest.raises(CheckpointError, match="Round 1 of the allocator is not observed"):
        allocator.state_dict()
    allocator.observe_roots([])
    assert allocator.state_dict().values["round"] == 1


def test_state_of_other_settings_is_refused() -> None:
    state = Allocator(SMALL, 0).state_dict()
    with pytest.raises(CheckpointError, match=r"has branch_decay = 0\.9, this one 0\.8"):
        Allocator(replace(SMALL, branch_decay=0.8), 0).load_state_dict(state)
    with pytest.raises(CheckpointError, match="has semantic = False, this one True"):
        Allocator(SMALL, 0, NearEncoder()).load_state_dict(state)
    with pytest.raises(CheckpointError, match="has seed = 0, this one 1"):
        Allocator(SMALL, 1).load_state_dict(state)


def test_without_history_every_task_is_alike() -> None:
    allocator = Allocator(SMALL, 0)
    quotas = allocator.choose_roots(TASKS, 22)
    assert sorted(rollouts for _, rollouts in quotas) == [4, 4, 4, 5, 5]
    # Beta(½, ½): U(6) = 1 − 2·(½·3/2·…·11/2)/(1·2·…·6)
    assert allocator.diagnostics()["root"]["probability"]["pool"] == pytest.approx(1 - 2 * 10395 / 64 / 720)


@pytest.mark.parametrize("tasks", [1, 2])
def test_fewer_than_two_other_tasks(tasks: int) -> None:
    allocator = Allocator(replace(SMALL, tasks=1, pool=2), 0)
    for _ in range(4):
        quotas = allocator.choose_roots(TASKS[:tasks], 6)
        assert [rollouts for _, rollouts in quotas] == [6]
        allocator.observe_roots([RootOutcome(quotas[0].task, 3, 3)])
    if tasks == 1:
        # Beta(½ + h, ½ + h) with h = 3·(1 + .95 + .9025) at the last choice
        h = 3 * (1 + 0.95 + 0.9025)
        expected = float(allocation_mixture.mixed(np.array(0.5 + h), np.array(0.5 + h), 6))
        assert allocator.diagnostics()["root"]["probability"]["pool"] == pytest.approx(expected, abs=1e-12)


def test_all_tasks_solved() -> None:
    allocator = Allocator(replace(SMALL, tasks=5, pool=10), 0)
    for number in range(12):
        quotas = allocator.choose_roots(TASKS[:10], 20)
        assert sum(rollouts for _, rollouts in quotas) == 20
        allocator.observe_roots([RootOutcome(task, rollouts, 0) for task, rollouts in quotas])
        group = StateGroup(quotas[0].task, "s", 0, HORIZON, Parent(f"e{number}", 0), (Visits(f"e{number}", 4, 0),))
        suffixes = allocator.choose_branches([group], 24)
        assert suffixes == [(Parent(f"e{number}", 0), 8)]
        allocator.observe_branches([SuffixOutcome(suffixes[0].occurrence, 8, 0)], [group])
    assert allocator.diagnostics()["root"]["probability"]["pool"] < 0.1
    assert allocator.diagnostics()["branch"]["probability"]["candidates"] < 0.1


@pytest.mark.parametrize("mode", ["fitted", "random"])
def test_nothing_branchable(mode: str) -> None:
    allocator = Allocator(replace(SMALL, branch=mode), 0)
    quotas = allocator.choose_roots(TASKS, 20)
    task = quotas[0].task
    mixed = StateGroup(task, "mixed", 0, HORIZON, Parent("e", 0), (Visits("e", 1, 0), Visits("f", 0, 1)))
    lost = StateGroup(task, "lost", 1, HORIZON, None, (Visits("e", 1, 0),))
    late = StateGroup(task, "late", HORIZON, HORIZON, Parent("e", HORIZON), (Visits("e", 1, 0),))
    crowded = StateGroup(task, "crowded", 2, HORIZON, Parent("e", 2), (Visits("e", 1, 0),), capacity=3)
    fine = StateGroup(task, "fine", 3, HORIZON, Parent("e", 3), (Visits("e", 1, 0),), capacity=5)
    assert allocator.choose_branches([], 24) == []
    assert allocator.choose_branches([mixed, lost, late, crowded], 24) == []
    assert allocator.choose_branches([fine], 3) == []
    assert allocator.choose_branches([mixed, lost, late, crowded, fine], 24) == [(Parent("e", 3), 5)]


def test_branching_can_be_switched_off() -> None:
    allocator = Allocator(replace(SMALL, branch="none"), 0)
    played = play(allocator, range(1, 4))
    assert [round_.suffixes for round_ in played] == [[], [], []]
    assert allocator.diagnostics()["branch"]["count"] == 0
    assert allocator.diagnostics()["memory"]["states"] > 0


def test_small_budgets_choose_fewer_tasks() -> None:
    allocator = Allocator(SMALL, 0)
    assert [rollouts for _, rollouts in allocator.choose_roots(TASKS, 7)] == [3, 2, 2]
    assert allocator.choose_roots(TASKS, 1) == []
    assert allocator.choose_roots([], 20) == []


@pytest.mark.parametrize(("root", "low", "high"), [("fitted", 2, 9), ("uniform", 0.8, 1.25)])
def test_only_the_fitted_root_prefers_tasks_that_disagree(root: str, low: float, high: float) -> None:
    allocator = Allocator(replace(SMALL, pool=12, tasks=4, exploration=0.1, root=root), 0)
    chosen: dict[str, int] = {}
    for _ in range(60):
        quotas = allocator.choose_roots(TASKS[:12], 18)
        if root == "uniform":
            assert [rollouts for _, rollouts in quotas] == [5, 5, 4, 4]
        outcomes = []
        for task, rollouts in quotas:
            successes = rollouts // 2 if int(task.split()[1]) < 4 else 0
            outcomes.append(RootOutcome(task, successes, rollouts - successes))
            chosen[task] = chosen.get(task, 0) + 1
        allocator.observe_roots(outcomes)
    mixed = sum(chosen.get(f"task {number}", 0) for number in range(4)) / 4
    failing = sum(chosen.get(f"task {number}", 0) for number in range(4, 12)) / 8
    assert low < mixed / failing < high


def test_incomplete_groups_teach_nothing() -> None:
    taught, untaught = Allocator(SMALL, 1), Allocator(SMALL, 1)
    for allocator in (taught, untaught):
        play(allocator, range(1, 3))
        quotas = allocator.choose_roots(TASKS, 20)
    taught.observe_roots([RootOutcome(task, 1, 0) for task, _ in quotas])
    untaught.observe_roots([])
    left, right = taught.state_dict(), untaught.state_dict()
    assert left.values == right.values
    assert all(array.tobytes() == right.arrays[name].tobytes() for name, array in left.arrays.items())


def test_evidence_decays_back_to_the_prior() -> None:
    allocator = Allocator(replace(SMALL, root_decay=0.5), 2)
    for number in range(1, 5):
        play_round(allocator, number, TASKS[:12])
    probability = []
    for _ in range(50):
        allocator.choose_roots(TASKS[:12], 20)
        allocator.observe_roots([])
        probability.append(allocator.diagnostics()["root"]["probability"]["pool"])
    # with all evidence gone, every component weighs the same and no task has a history
    columns = tuple(np.array(column) for column in zip(*allocation_mixture.components(), strict=True))
    prior = float(allocation_mixture.mixed(columns[0], columns[1], 6).mean())
    assert abs(probability[0] - prior) > 0.01
    assert probability[-1] == pytest.approx(prior, abs=1e-9)


def test_misreported_outcomes_are_refused() -> None:
    allocator = Allocator(SMALL, 0)
    quotas = allocator.choose_roots(TASKS, 20)
    with pytest.raises(InputError, match="'task 99', which has no quota"):
        allocator.observe_roots([RootOutcome("task 99", 1, 1)])
    with pytest.raises(InputError, match="reported before"):
        allocator.observe_roots([RootOutcome(quotas[0].task, 2, 2)] * 2)
    with pytest.raises(InputError, match="turn 3 of 'e', which was not chosen"):
        allocator.observe_branches([SuffixOutcome(Parent("e", 3), 1, 1)], [])
    stranger = StateGroup("task 99", "s", 0, HORIZON, Parent("e", 0), (Visits("e", 1, 0),))
    with pytest.raises(InputError, match="'task 99', which choose_roots never considered"):
        allocator.observe_branches([], [stranger])


def test_tasks_need_distinct_ids() -> None:
    with pytest.raises(InputError, match="same id"):
        Allocator(SMALL, 0).choose_roots([TASKS[0], TASKS[0]], 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"root": "fited"}, "Unknown root allocation 'fited'. Did you mean 'fitted'?"),
        ({"branch": "randm"}, "Unknown branch allocation 'randm'. Did you mean 'random'?"),
        ({"tasks": 0}, "tasks = 0; expected at least 1."),
        ({"pool": 14}, "pool = 14; expected at least tasks = 15."),
        ({"exploration": 1.5}, "exploration = 1.5; expected 0 to 1."),
        ({"temperature": 0.0}, "temperature = 0.0; expected more than 0."),
        ({"reference_rollouts": 1}, "reference_rollouts = 1; expected at least 2."),
        ({"root_decay": 0.0}, "root_decay = 0.0; expected more than 0, at most 1."),
        ({"branch_decay": 1.1}, "branch_decay = 1.1; expected more than 0, at most 1."),
        ({"particles": 0}, "particles = 0; expected at least 1."),
        ({"opening": 0}, "opening = 0; expected at least 1."),
        ({"max_suffixes": 3}, "max_suffixes = 3; expected opening = 4 or more."),
        ({"memory": 0}, "memory = 0; expected at least 1."),
    ],
)
def test_settings_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as error:
        AllocationSettings(**options)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_seeds_are_not_negative() -> None:
    with pytest.raises(OptionError, match="seed = -1; expected 0 or more"):
        Allocator(SMALL, -1)
