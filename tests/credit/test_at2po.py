"""at2po (contrib): against plain loops, entropy weights by hand, chains."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reference.at2po import at2po as reference
from reference.batches import chain, random_chains
from reference.compare import assert_matches_reference
from stepcredit.core.episodes import Parent
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign


@pytest.mark.parametrize("block", range(3))
def test_equals_the_slow_reference(block: int) -> None:
    options = [{}, {"temperature": 0.1, "normalize": "mean"}, {"temperature": 30.0}]
    assert_matches_reference("at2po", reference, options, range(block * 150, block * 150 + 150))


def test_unsure_siblings_weigh_more() -> None:
    episodes = [
        chain("t", "A", ["s", "h"], rewards=[0, 1]),
        chain("t", "B", ["h"], rewards=[0], parent=Parent("A", 1)),
    ]
    turns = dataclasses.replace(Turns.from_episodes(episodes), entropy=np.array([0.0, np.log(3), 0.0]))
    np.testing.assert_allclose(assign(turns, "at2po").components["value"], [0.75, 1, 0])
    np.testing.assert_allclose(assign(turns, "at2po", temperature=1e9).components["value"], [0.5, 1, 0], atol=1e-8)


def test_a_low_temperature_does_not_overflow() -> None:
    turns = Turns.from_episodes(
        [chain("t", "A", ["h"], rewards=[1]), chain("t", "B", ["h"], rewards=[0], parent=Parent("A", 0))]
    )
    sure = dataclasses.replace(turns, entropy=np.array([5.0, 1.0]))
    np.testing.assert_allclose(assign(sure, "at2po", temperature=1e-300, normalize="mean").advantage, [0.5, -0.5])


def test_on_chains_it_is_grpo_without_penalties() -> None:
    for seed in range(50):
        turns = Turns.from_episodes(random_chains(seed))
        unpunished = dataclasses.replace(turns, penalty=np.zeros(len(turns)))
        np.testing.assert_allclose(assign(turns, "at2po").advantage, assign(unpunished, "grpo").advantage, atol=1e-9)
