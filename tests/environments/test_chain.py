"""Chain: its rules, its seeds, and its closed form against exhaustive enumeration."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.environments.chain import ChainSuite, success_probability
from stepcredit.environments.protocol import Snapshots


def test_the_right_door_leads_on_and_the_last_one_wins():
    suite = ChainSuite(length=2)
    environment = suite.make(suite.tasks("train")[0])
    expert = suite.expert(environment)
    observation, info = environment.reset()
    assert observation.startswith("Place 1 of 2.")
    assert info == {"admissible": ("open blue door", "open red door"), "won": False}
    command = expert.act()
    assert command is not None
    observation, reward, terminated, truncated, _ = environment.step(command)
    assert (observation[:13], reward, terminated, truncated) == ("Place 2 of 2.", 0.0, False, False)
    command = expert.act()
    assert command is not None
    won = ("You are outside.", 1.0, True, False, {"admissible": (), "won": True})
    assert environment.step(command) == won
    assert expert.act() is None
    assert environment.step(command) == ("You are outside.", 0.0, True, False, won[4])


@pytest.mark.parametrize(("mistake", "ended"), [("stay", False), ("fall", True)])
def test_a_wrong_door(mistake: Any, ended: bool):
    suite = ChainSuite(mistake=mistake)
    environment = suite.make(suite.tasks("test")[3])
    before, info = environment.reset()
    wrong = next(command for command in info["admissible"] if command != environment.right_command)
    observation, reward, terminated, _, info = environment.step(wrong)
    assert (reward, terminated, info["won"]) == (0.0, ended, False)
    assert observation == ("You fall." if ended else before)
    environment.reset()
    assert environment.step("jump")[0] == before


@pytest.mark.parametrize("mistake", ["stay", "fall"])
@pytest.mark.parametrize(
    ("places", "turns", "right"), [(2, 4, 0.3), (3, 5, 0.5), (3, 3, 0.9), (4, 3, 0.9), (0, 2, 0.1)]
)
def test_the_closed_form_equals_the_sum_over_all_outcomes(places: int, turns: int, right: float, mistake: Any):
    total = 0.0
    for outcome in itertools.product((True, False), repeat=turns):
        probability = 1.0
        for good in outcome:
            probability *= right if good else 1.0 - right
        first_wrong = outcome.index(False) if False in outcome else turns
        total += probability * (sum(outcome) >= places if mistake == "stay" else first_wrong >= places)
    exact = success_probability(places=places, turns=turns, right=right, mistake=mistake)
    assert exact == pytest.approx(total, abs=1e-12)


def test_snapshots_return_to_a_state_and_are_optional():
    suite = ChainSuite(length=3)
    environment: Any = suite.make(suite.tasks("train")[0])
    environment.reset()
    environment.step(environment.right_command)
    snapshot = environment.snapshot()
    expected = environment.step(environment.right_command)
    for _ in range(2):
        environment.restore(snapshot)
        assert environment.step(environment.right_command) == expected
    assert not isinstance(ChainSuite(snapshots=False).make(suite.tasks("train")[0]), Snapshots)


def test_tasks_are_seeded_and_differ():
    suite = ChainSuite(length=6, doors=3)
    paths = []
    for task in suite.tasks("train")[:20]:
        environment = suite.make(task)
        path = []
        while environment.right_command is not None:
            path.append(environment.right_command)
            environment.step(environment.right_command)
        paths.append(tuple(path))
    assert len(set(paths)) > 15
    assert paths[0] == tuple(f"open {colour} door" for colour in ("red", "green", "red", "red", "red", "red"))


def test_unknown_splits_and_foreign_environments_are_refused():
    suite = ChainSuite()
    with pytest.raises(OptionError, match="Did you mean 'train'"):
        suite.tasks("trian")
    foreign: Any = object()
    with pytest.raises(OptionError, match="cannot play a object"):
        suite.expert(foreign)
