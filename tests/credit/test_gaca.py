"""gaca: against plain loops, the gate, its controls, the singleton fallback and other step terms."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from reference.batches import batch, chain, random_chains
from reference.compare import assert_matches_reference
from reference.gaca import gaca as reference
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import InputError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign
from stepcredit.credit.episode_level import grpo
from stepcredit.credit.mixture import gaca

OPTIONS = [
    {"lambda0": lambda0, "alpha": alpha, "normalize": normalize, "penalty_in_step": penalty}
    for lambda0, alpha, normalize, penalty in itertools.product(
        (0, 0.5, 0.9), (0, 0.5, 3), ("mean", "mean_std"), (True, False)
    )
]
FUSED = [{"score": "nll+return", "fusion_share": share} for share in (0.0, 0.3, 1.0)]


@pytest.mark.parametrize("block", range(4))
def test_equals_the_slow_reference(block: int) -> None:
    assert_matches_reference("gaca", reference, [{}, *OPTIONS, *FUSED], range(block * 100, block * 100 + 100))


def surprising() -> Turns:
    """A wins with nll 1, 2, 3; B loses with nll 0, 0."""
    return Turns.from_episodes(
        [
            chain("t", "A", ["o1", "o2", "o3"], rewards=[0, 0, 10], nll=[1, 2, 3]),
            chain("t", "B", ["o1", "o3"], nll=[0, 0]),
        ]
    )


def test_weight_grows_with_surprise_relative_to_the_episode() -> None:
    credit = gaca(surprising())
    # c = 1/2, 1, 3/2 for A; 1 for B, whose mean is 0. λ = (1 + c/2)/2.
    np.testing.assert_allclose(credit.components["weight"], [0.625, 0.75, 0.875, 0.75, 0.75])
    episode, step, weight = (credit.components[name] for name in ("episode", "step", "weight"))
    np.testing.assert_allclose(credit.advantage, (1 - weight) * episode + weight * step)
    assert credit.diagnostics["weight"]["mean"] == pytest.approx(0.75)


def test_weight_is_linear_in_criticality_up_to_one() -> None:
    reference_weight, slope = 0.5 * (1 + 0.5), 0.5 * 0.5
    criticality = np.array([0.5, 1, 1.5, 1, 1])
    np.testing.assert_allclose(gaca(surprising()).components["weight"], reference_weight + slope * (criticality - 1))
    clipped = gaca(surprising(), lambda0=0.9, alpha=0.5)
    assert clipped.components["weight"].tolist() == [1.0, 1.0, 1.0, 1.0, 1.0]
    assert clipped.diagnostics["weight"]["at_one"] == 1.0


def test_a_state_seen_once_is_compared_with_its_whole_task_group() -> None:
    turns = surprising()
    step = gaca(turns, normalize="mean").components["step"]
    returns = np.array([9.025, 9.5, 10, 0, 0])
    np.testing.assert_allclose(step, [4.5125, 9.5 - returns.mean(), 5, -4.5125, -5])
    normal = gaca(turns).components["step"][1]
    assert normal == pytest.approx((9.5 - returns.mean()) / (returns.std(ddof=1) + 1e-6), abs=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_a_fixed_weight_of_zero_or_one_is_pure_episode_or_step_credit(seed: int) -> None:
    turns = Turns.from_episodes(batch(seed))
    np.testing.assert_array_equal(gaca(turns, alpha=0, lambda0=0).advantage, grpo(turns).advantage)
    pure = gaca(turns, alpha=0, lambda0=1)
    np.testing.assert_array_equal(pure.advantage, pure.components["step"])


def test_a_fixed_weight_needs_no_nll_and_a_gate_does() -> None:
    episode = chain("t", "A", ["s", "u"])
    bare = dataclasses.replace(episode, turns=tuple(dataclasses.replace(turn, nll=None) for turn in episode.turns))
    turns = Turns.from_episodes([bare])
    assert gaca(turns, alpha=0, lambda0=0.3).components["weight"].tolist() == [0.3, 0.3]
    assert gaca(turns, score="nll+return", fusion_share=0).advantage.tolist() == [0, 0]
    with pytest.raises(
        InputError, match=r"^Method 'gaca' needs 'nll' on every turn, but turn 0 of episode 'A' has none"
    ):
        gaca(turns)


def test_shuffling_permutes_scores_within_each_episode() -> None:
    episodes = [chain("t", f"{i}", ["s"] * 9, nll=list(range(9)), rewards=[0] * 8 + [i]) for i in range(4)]
    turns = Turns.from_episodes(episodes)
    plain = gaca(turns).components["weight"].reshape(4, 9)
    mixed = gaca(turns, shuffle_scores=1).components["weight"].reshape(4, 9)
    np.testing.assert_allclose(np.sort(mixed, axis=1), np.sort(plain, axis=1))
    assert (mixed != plain).any(axis=1).all()
    np.testing.assert_array_equal(gaca(turns, shuffle_scores=1).components["weight"].reshape(4, 9), mixed)
    assert (gaca(turns, shuffle_scores=2).components["weight"].reshape(4, 9) != mixed).any()


def test_shuffling_an_episode_depends_on_nothing_around_it() -> None:
    episodes = [chain("t", f"{i}", ["s"] * 9, nll=list(range(9))) for i in range(3)]
    together = gaca(Turns.from_episodes(episodes), shuffle_scores=7).components["weight"]
    alone = gaca(Turns.from_episodes(episodes[2:]), shuffle_scores=7).components["weight"]
    np.testing.assert_array_equal(together[18:], alone)


def test_a_branchs_mean_runs_over_its_whole_path() -> None:
    turns = Turns.from_episodes(
        [chain("t", "A", ["s", "u"], nll=[3, 1]), chain("t", "B", ["u"], nll=[6], parent=Parent("A", 1))]
    )
    # B's path has nll 3 and 6: its own turn's c is 6/4.5.
    np.testing.assert_allclose(gaca(turns, alpha=0.1).components["weight"], [0.575, 0.525, 0.5 + 0.05 * 4 / 3])


def test_fused_score_adds_the_change_of_return() -> None:
    turns = Turns.from_episodes([chain("t", "A", ["s", "u"], rewards=[0, 1], nll=[1, 1])])
    weight = gaca(turns, score="nll+return", fusion_share=0.5, gamma=0.5).components["weight"]
    # |Δĝ| = 0.5 and 1, over their mean 0.75; c(nll) = 1.
    np.testing.assert_allclose(weight, 0.5 * (1 + 0.5 * np.array([0.5 + 0.5 * 2 / 3, 0.5 + 0.5 * 4 / 3])))


STEP_METHODS = ["rtmc", "gigpo", "bipace", "hgpo", "graft", "graphgpo", "rewardflow", "salt", "tsbpo"]


@pytest.mark.parametrize("step", STEP_METHODS)
def test_any_step_term_fits_in(step: str) -> None:
    for seed in range(20):
        episodes = batch(seed)
        turns = Turns.from_episodes(episodes)
        inner = assign(turns, step).components["step"]
        np.testing.assert_allclose(
            gaca(turns, step=step).advantage, reference(episodes, step=inner), rtol=1e-9, atol=1e-9
        )


def test_options_of_a_step_term_stand_behind_a_colon() -> None:
    turns = Turns.from_episodes(random_chains(3))
    credit = gaca(turns, step="rtmc:gamma=1.0,shrinkage=2")
    inner = assign(turns, "rtmc", gamma=1.0, shrinkage=2.0).components["step"]
    np.testing.assert_array_equal(credit.components["step"], inner)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("rmtc", "Unknown value for option 'step': 'rmtc'. Did you mean 'rtmc'?"),
        ("grpo", "Option 'step': method 'grpo' has no step term; expected state_groups or a step method."),
        ("rtmc:gama=1", "Unknown option of method 'rtmc': 'gama'. Did you mean 'gamma'?"),
        ("rtmc:gamma", "Option 'step': got 'gamma', expected name=value, as in 'graft:lam=0.8'."),
    ],
)
def test_a_wrong_step_term_is_one_sentence(step: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        gaca(Turns.from_episodes(random_chains(1)), step=step)
    assert str(caught.value) == message


def test_every_method_that_claims_a_step_term_is_tried() -> None:
    turns = Turns.from_episodes(random_chains(2))
    has_step = [
        name
        for name, method in METHODS.items()
        if name != "gaca"
        and not {"values", "hindsight"} & set(method.needs)
        and method.family != "contrib"
        and "step" in assign(turns, name).components
    ]
    assert sorted(has_step) == sorted(STEP_METHODS)
