"""Generated games: solvable, balanced, the same everywhere, and no room and task in two splits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from stepcredit.environments.household.expert import plan
from stepcredit.environments.household.generator import SPLITS, generate
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.names import known_names
from stepcredit.environments.household.rooms import CONTAINMENT, ROOMS, SIZES
from stepcredit.environments.household.suite import HouseholdSuite

PLAN_LENGTHS = {"pick": (3, 6), "look": (2, 5), "clean": (4, 8), "heat": (5, 8), "cool": (5, 8), "pick2": (5, 12)}


@pytest.mark.parametrize("room", SIZES)
def test_the_expert_wins_600_generated_games(room: str) -> None:
    """200 games a size; every one is won, by no more commands than its family can need."""
    suite = HouseholdSuite(room=room, train=100, valid_seen=50, valid_unseen=50, seed=9)
    for split in suite.splits():
        for task in suite.tasks(split):
            environment = suite.make(task)
            expert = suite.expert(environment)
            _, info = environment.reset()
            turns = 0
            while not info["won"]:
                command = expert.act()
                assert command in info["admissible"], task.id
                info = environment.step(command)[4]
                turns += 1
            shortest, longest = PLAN_LENGTHS[task.family]
            assert shortest <= turns <= longest, task.id
            assert expert.act() is None


def test_families_alternate_and_identifiers_are_distinct() -> None:
    suite = HouseholdSuite(train=24, valid_seen=12, valid_unseen=12)
    tasks = {split: suite.tasks(split) for split in suite.splits()}
    assert tuple(tasks) == SPLITS
    assert [task.family for task in tasks["train"]] == [*FAMILIES] * 4
    assert tasks["train"][7].id == "generated-0/small/train/look/1"
    assert len({task.id for split in tasks.values() for task in split}) == 48


def test_a_choice_of_families_takes_the_same_games() -> None:
    everything = HouseholdSuite(train=24).tasks("train")
    some = HouseholdSuite(train=8, families=["heat", "clean"]).tasks("train")
    assert [task.family for task in some] == ["heat", "clean"] * 4
    assert set(some) <= set(everything)


def test_no_layout_and_task_occurs_in_two_splits() -> None:
    """The first text shows layout and task; it never recurs in another split, nor a held-out layout in training."""
    firsts: dict[str, set[tuple[str, str, str]]] = {}
    for seed in range(2):
        suite = HouseholdSuite(train=300, valid_seen=150, valid_unseen=150, seed=seed)
        for split in suite.splits():
            for task in suite.tasks(split):
                game = suite.make(task).game
                rooms = " ".join(sorted(game.receptacles))
                target = next(word for word in game.task.split() if any(o.startswith(f"{word} ") for o in game.objects))
                firsts.setdefault(split, set()).add((rooms, task.family, target + game.task.split()[-1]))
    train, seen, unseen = (firsts[split] for split in SPLITS)
    assert not train & seen
    assert not {rooms for rooms, *_ in train | seen} & {rooms for rooms, *_ in unseen}
    assert {rooms for rooms, *_ in train} & {rooms for rooms, *_ in seen}


def test_room_sizes_keep_their_bounds() -> None:
    for room, size in SIZES.items():
        suite = HouseholdSuite(room=room, train=30)
        for task in suite.tasks("train"):
            game = suite.make(task).game
            assert size.receptacles[0] <= len(game.receptacles) <= size.receptacles[1]
            assert len(game.objects) <= size.objects[1] + 4


def test_every_name_of_a_generated_game_is_known() -> None:
    known = set(known_names())
    for room in SIZES:
        suite = HouseholdSuite(room=room, train=120)
        for task in suite.tasks("train"):
            game = suite.make(task).game
            assert {*game.objects, *game.receptacles} <= known


def test_whatever_is_taken_can_be_put_back_somewhere() -> None:
    """No object of a generated game leads into a dead end."""
    suite = HouseholdSuite(room="large", train=30)
    for task in suite.tasks("train"):
        game = suite.make(task).game
        accepted = 0
        for mask in game.accepts:
            accepted |= mask
        assert not game.traits.pickupable & ~accepted


def test_tables_agree_with_each_other() -> None:
    for room in ROOMS.values():
        classes = {*room.always, *room.furniture}
        assert classes <= set(CONTAINMENT)
        holdable = {thing for kind in classes for thing in CONTAINMENT[kind]}
        assert set(room.things) <= holdable


def test_targets_do_not_start_where_they_should_go() -> None:
    for family in FAMILIES:
        for number in range(10):
            suite = HouseholdSuite(train=1)
            game = suite.make(suite.find(f"generated-5/medium/train/{family}/{number}")).game
            assert not game.won(game.start)
            if family != "look":
                assert not any(game.start.contents[r] & game.goal.targets for r in game.goal.destinations)


def test_the_same_seed_gives_the_same_texts_whatever_the_hash_seed() -> None:
    """Games, first texts and the answers to an expert's play, in processes of their own."""
    program = """
import hashlib
from stepcredit.environments.catalogue import make_suite
suite, digest = make_suite("household", room="medium", train=24, valid_seen=6, valid_unseen=6, seed=5), hashlib.sha256()
for split in suite.splits():
    for task in suite.tasks(split):
        environment = suite.make(task)
        expert = suite.expert(environment)
        answer = environment.reset()
        digest.update(repr((task, answer)).encode())
        while (command := expert.act()) is not None:
            digest.update(repr(environment.step(command)).encode())
digest.update(repr(suite.entities()).encode())
print(digest.hexdigest())
"""
    digests = Counter(
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    )
    assert len(digests) == 1


def test_another_seed_gives_other_games() -> None:
    assert generate(0, "small", "train", "heat", 0) != generate(1, "small", "train", "heat", 0)
    assert generate(0, "small", "train", "heat", 0) != generate(0, "small", "train", "heat", 1)
    assert generate(0, "small", "train", "heat", 0) == generate(0, "small", "train", "heat", 0)


def test_a_game_that_holds_already_needs_no_plan() -> None:
    suite = HouseholdSuite(train=6)
    environment = suite.make(suite.tasks("train")[0])
    while (command := suite.expert(environment).act()) is not None:
        environment.step(command)
    assert plan(environment.game, environment.state) == ()
