"""The expert: solves official games, recovers from detours, and its plans are minimal."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.expert import plan
from stepcredit.environments.household.game import NOTHING, Game, State
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.rules import commands, execute
from stepcredit.environments.household.suite import HouseholdSuite
from stepcredit.environments.protocol import Task


def test_solves_the_official_games_within_fifty_turns(shared_data: Path) -> None:
    suite = HouseholdSuite(games=str(shared_data / "alfworld" / "games.jsonl.gz"))
    won = total = 0
    for split in suite.splits():
        for task in suite.tasks(split):
            environment = suite.make(task)
            expert = suite.expert(environment)
            _, info = environment.reset()
            for _ in range(50):
                command = expert.act()
                if command is None:
                    break
                info = environment.step(command)[4]
            won += info["won"]
            total += 1
    assert total == 394
    assert won >= 0.99 * total


@pytest.mark.parametrize("family", FAMILIES)
def test_recovers_from_detours(family: str) -> None:
    """Every third command is a random one; the expert goes on from wherever that leads."""
    suite = HouseholdSuite(room="medium", train=20, families=[family])
    for task in suite.tasks("train"):
        environment = suite.make(task)
        expert = suite.expert(environment)
        rng = random.Random(task.id)
        _, info = environment.reset()
        for turn in range(60):
            if info["won"]:
                break
            command = expert.act()
            assert command in info["admissible"]
            info = environment.step(rng.choice(info["admissible"]) if turn % 3 == 2 else command)[4]
        assert info["won"], task.id


def shortest(game: Game) -> int:
    """Length of the shortest win, by breadth-first search over states."""
    seen = {game.start}
    queue: deque[tuple[State, int]] = deque([(game.start, 0)])
    while queue:
        state, depth = queue.popleft()
        for command in commands(game, state):
            if command.split()[0] in ("look", "inventory", "examine", "close"):
                continue
            after = execute(game, state, command)[0]
            if game.won(after):
                return depth + 1
            if after not in seen:
                seen.add(after)
                queue.append((after, depth + 1))
    raise AssertionError("no way")


@pytest.mark.parametrize("family", ["pick", "look", "clean", "heat", "cool"])
def test_plans_are_the_shortest_there_are(family: str) -> None:
    suite = HouseholdSuite(train=3, families=[family])
    for task in suite.tasks("train"):
        game = suite.make(task).game
        way = plan(game, game.start)
        assert way is not None
        if len(way) <= 5:
            assert len(way) == shortest(game)


def test_no_plan_where_what_is_in_hand_can_be_put_nowhere() -> None:
    suite = HouseholdSuite(train=1, families=["heat"])
    game = suite.make(suite.tasks("train")[0]).game
    useless = next(
        number
        for number in range(len(game.objects))
        if not game.goal.targets >> number & 1 and game.traits.pickupable >> number & 1
    )
    stuck = Game(**{name: getattr(game, name) for name in Game.__slots__} | {"accepts": (0,) * len(game.accepts)})
    assert plan(stuck, game.start._replace(held=useless)) is None
    assert plan(game, game.start._replace(held=useless)) is not None
    assert game.start.held == NOTHING


def test_other_environments_are_refused() -> None:
    class Other:
        task = Task("x", "y", "z")

    suite = HouseholdSuite(train=1)
    with pytest.raises(OptionError, match="cannot play a Other"):
        suite.expert(Other())  # type: ignore[arg-type]
    assert isinstance(suite.make(suite.tasks("train")[0]), HouseholdEnvironment)
