"""The fitted mixture against a slow loop; decay, exclusion, special cases, and state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from reference import allocation_mixture as reference
from stepcredit.allocation.grid import Evidence, mixture_grid
from stepcredit.allocation.mixture import Group, Mixture, MixtureFit

PastGroup = reference.PastGroup


def history(
    seed: int, *, tasks: int, rounds: int, with_history: bool = True, with_semantic: bool = True
) -> list[PastGroup]:
    """Random complete groups, one to three a task and round; every third round is empty."""
    rng = np.random.default_rng(seed)
    groups = []
    for round_ in range(1, rounds + 1):
        if round_ % 3 == 0:
            continue
        for task in rng.permutation(tasks)[: max(2, tasks // 2)]:
            for _ in range(rng.integers(1, 4)):
                past = rng.random(2) * 4 * with_history * (rng.random() < 0.7)
                lent = rng.random(2) * 2 * with_semantic * (rng.random() < 0.7)
                evidence = (*past.tolist(), 0.0, float(rng.integers(0, 3)), *lent.tolist())
                successes, failures = rng.integers(0, 7, 2).tolist()
                groups.append(PastGroup(f"task {task}", round_, evidence, successes, failures))
    return groups


def fit_of(groups: Sequence[PastGroup], *, decay: float, shelves: int) -> MixtureFit:
    fit = MixtureFit(mixture_grid(), decay, shelves)
    for round_ in sorted({group.round for group in groups}):
        fit.observe(
            round_,
            [
                Group(group.task, Evidence(*group.evidence), group.successes, group.failures)
                for group in groups
                if group.round == round_
            ],
        )
    return fit


def dense(mixture: Mixture) -> np.ndarray:
    """Weights on the whole grid, ravelled, zero where the mixture was narrowed."""
    grid = mixture_grid()
    whole = np.zeros(grid.shape)
    wanted = [
        None if values.shape[axis] > 1 else float(values.item())
        for axis, values in ((2, mixture.grid.history_trust), (3, mixture.grid.semantic_trust))
    ]
    whole[grid.narrowed(history_trust=wanted[0], semantic_trust=wanted[1])[1]] = mixture.weight
    return whole.ravel()


@pytest.mark.parametrize("shelves", [3, 64])
@pytest.mark.parametrize("decay", [0.9, 1.0])
def test_weights_equal_the_slow_reference(shelves: int, decay: float) -> None:
    groups = history(seed=1, tasks=8, rounds=7)
    fit = fit_of(groups, decay=decay, shelves=shelves)
    names = ["task 0", "task 3", "task 7", "never seen"]
    for name, mixture in zip(names, fit.mixtures(10, names), strict=True):
        _, expected = reference.weights(groups, name, 10, decay)
        np.testing.assert_allclose(dense(mixture), expected, rtol=1e-9, atol=1e-12)
        assert mixture.weight.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("with_history", "with_semantic", "shape"),
    [
        (True, True, (25, 31, 5, 5)),
        (False, True, (25, 31, 1, 5)),
        (True, False, (25, 31, 5, 1)),
        (False, False, (25, 31, 1, 1)),
    ],
)
def test_trust_without_evidence_is_not_fitted(with_history: bool, with_semantic: bool, shape: tuple[int, ...]) -> None:
    groups = history(seed=2, tasks=5, rounds=4, with_history=with_history, with_semantic=with_semantic)
    (mixture,) = fit_of(groups, decay=0.9, shelves=8).mixtures(5, ["task 0"])
    assert mixture.weight.shape == shape
    _, expected = reference.weights(groups, "task 0", 5, 0.9)
    np.testing.assert_allclose(dense(mixture), expected, rtol=1e-9, atol=1e-12)


def test_evidence_of_the_excluded_task_alone_does_not_open_an_axis() -> None:
    groups = [
        PastGroup("own", 1, (2.0, 1.0, 0, 0, 1.0, 0.5), 3, 1),
        PastGroup("first", 1, (0, 0, 0, 0, 0, 0), 2, 2),
        PastGroup("second", 1, (0, 0, 0, 0, 0, 0), 0, 4),
    ]
    own, other = fit_of(groups, decay=0.9, shelves=8).mixtures(2, ["own", "first"])
    assert own.weight.shape == (25, 31, 1, 1)
    assert other.weight.shape == (25, 31, 5, 5)


@pytest.mark.parametrize("tasks", [0, 1, 2])
def test_fewer_than_two_other_tasks_give_the_single_component(tasks: int) -> None:
    groups = [PastGroup(f"task {task}", 1, (1.0, 0, 0, 0, 0, 0), 2, 2) for task in range(tasks)]
    (mixture,) = fit_of(groups, decay=0.9, shelves=8).mixtures(2, ["task 0"])
    a, b, _ = mixture.grid.posterior(Evidence(2.0, 1.0, 0, 1, 5.0, 5.0))
    assert (a.item(), b.item(), mixture.weight.item()) == (2.5, 2.5, 1)


@pytest.mark.parametrize("shelves", [1, 3, 64])
def test_changing_an_excluded_tasks_counts_changes_no_bit(shelves: int) -> None:
    groups = history(seed=3, tasks=7, rounds=8)
    changed = [
        PastGroup(
            group.task, group.round, tuple(7 * x for x in group.evidence), group.failures + 9, 2 * group.successes
        )
        if group.task == "task 2"
        else group
        for group in groups
    ]
    (before,) = fit_of(groups, decay=0.9, shelves=shelves).mixtures(9, ["task 2"])
    (after,) = fit_of(changed, decay=0.9, shelves=shelves).mixtures(9, ["task 2"])
    assert before.weight.tobytes() == after.weight.tobytes()
    (other,) = fit_of(groups, decay=0.9, shelves=shelves).mixtures(9, ["task 1"])
    (moved,) = fit_of(changed, decay=0.9, shelves=shelves).mixtures(9, ["task 1"])
    assert other.weight.tobytes() != moved.weight.tobytes()


def test_excluding_does_not_disturb_what_the_others_see() -> None:
    fit = fit_of(history(seed=4, tasks=6, rounds=5), decay=0.95, shelves=4)
    names = [f"task {task}" for task in range(6)]
    alone = [next(iter(fit.mixtures(6, [name]))).weight.tobytes() for name in names]
    together = [mixture.weight.tobytes() for mixture in fit.mixtures(6, names)]
    backwards = [mixture.weight.tobytes() for mixture in fit.mixtures(6, names[::-1])]
    assert alone == together == backwards[::-1]


def test_old_groups_count_less_and_finally_not() -> None:
    groups = history(seed=5, tasks=5, rounds=2)
    fit = fit_of(groups, decay=0.9, shelves=8)
    spread = []
    for now in (3, 10, 40, 400):
        (mixture,) = fit.mixtures(now, ["task 0"])
        spread.append(float(mixture.weight.max() / mixture.weight.min()))
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] == pytest.approx(1, abs=1e-9)


def test_negligible_groups_are_no_longer_recomputed() -> None:
    fit = MixtureFit(mixture_grid(semantic=False), 0.5, 2)
    for round_ in range(1, 200):
        fit.observe(round_, [Group(f"task {round_ % 5}", Evidence(), 2, 2)])
    _, arrays = fit.state()
    assert len(arrays["records"]) == 40  # 0.5^39 is the last weight above 1e-12
    mixtures = list(fit.mixtures(200, ["task 1"]))
    groups = [PastGroup(f"task {r % 5}", r, (0, 0, 0, 0, 0, 0), 2, 2) for r in range(1, 200)]
    _, expected = reference.weights(groups, "task 1", 200, 0.5)
    np.testing.assert_allclose(dense(mixtures[0]), expected, rtol=1e-9, atol=1e-12)


def test_state_goes_on_with_equal_bits() -> None:
    groups = history(seed=6, tasks=9, rounds=8)
    first, rest = [g for g in groups if g.round <= 4], [g for g in groups if g.round > 4]
    fit = fit_of(first, decay=0.9, shelves=4)
    resumed = MixtureFit(mixture_grid(), 0.9, 4)
    resumed.observe(1, [Group("something else", Evidence(), 1, 1)])
    resumed.load(*fit.state())
    for part in (fit, resumed):
        for round_ in sorted({group.round for group in rest}):
            part.observe(
                round_,
                [Group(g.task, Evidence(*g.evidence), g.successes, g.failures) for g in rest if g.round == round_],
            )
    names = [f"task {task}" for task in range(9)]
    for left, right in zip(fit.mixtures(9, names), resumed.mixtures(9, names), strict=True):
        assert left.weight.tobytes() == right.weight.tobytes()
