"""The household's surprising rules, one by one, on a small problem written by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.core.errors import InputError
from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.game import members
from stepcredit.environments.household.generator import generate
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.problem import parse_problem
from stepcredit.environments.household.texts import examine_object
from stepcredit.environments.protocol import Task

# The desk and the drawer share a location. Apple 1 lies in the drawer and, at once, in the fridge.
PROBLEM = """
(define (problem kitchen) (:domain alfred)
(:objects
  agent1 - agent  l0 l1 l2 l3 l4 l5 - location
  Desk_bar_1 Drawer_bar_1 Fridge_bar_1 Microwave_bar_1 Sink_bar_1_bar_SinkBasin Shelf_bar_1 - receptacle
  Apple_bar_1 Apple_bar_2 Knife_bar_1 Mug_bar_1 Pen_bar_1 DeskLamp_bar_1 Window_bar_1 - object
  DeskType DrawerType FridgeType MicrowaveType SinkBasinType - rtype
  AppleType KnifeType MugType PenType DeskLampType - otype)
(:init
  (atLocation agent1 l0)  ; nothing stands here
  (receptacleType Desk_bar_1 DeskType) (receptacleAtLocation Desk_bar_1 l1)
  (receptacleType Drawer_bar_1 DrawerType) (receptacleAtLocation Drawer_bar_1 l1) (openable Drawer_bar_1)
  (receptacleType Fridge_bar_1 FridgeType) (receptacleAtLocation Fridge_bar_1 l2) (openable Fridge_bar_1)
  (receptacleType Microwave_bar_1 MicrowaveType) (receptacleAtLocation Microwave_bar_1 l3) (openable Microwave_bar_1)
  (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType) (receptacleAtLocation Sink_bar_1_bar_SinkBasin l4)
  (openable Shelf_bar_1)
  (objectType Apple_bar_1 AppleType) (objectType Apple_bar_2 AppleType) (objectType Knife_bar_1 KnifeType)
  (objectType Mug_bar_1 MugType) (objectType Pen_bar_1 PenType) (objectType DeskLamp_bar_1 DeskLampType)
  (inReceptacle Apple_bar_1 Drawer_bar_1) (inReceptacle Apple_bar_1 Fridge_bar_1) (objectAtLocation Apple_bar_1 l2)
  (inReceptacle Apple_bar_2 Drawer_bar_1) (objectAtLocation Apple_bar_2 l1)
  (inReceptacle Knife_bar_1 Desk_bar_1) (objectAtLocation Knife_bar_1 l1)
  (inReceptacle Mug_bar_1 Desk_bar_1) (objectAtLocation Mug_bar_1 l1)
  (inReceptacle DeskLamp_bar_1 Drawer_bar_1) (objectAtLocation DeskLamp_bar_1 l1)
  (inReceptacleObject Pen_bar_1 Mug_bar_1) (isReceptacleObject Mug_bar_1)
  (pickupable Apple_bar_1) (pickupable Apple_bar_2) (pickupable Knife_bar_1) (pickupable Mug_bar_1)
  (cleanable Apple_bar_1) (cleanable Apple_bar_2) (heatable Apple_bar_1) (heatable Apple_bar_2)
  (coolable Apple_bar_1) (coolable Apple_bar_2) (sliceable Apple_bar_1) (sliceable Apple_bar_2)
  (toggleable DeskLamp_bar_1)
  (canContain DeskType AppleType) (canContain DrawerType AppleType) (canContain DeskType MugType)
  (canContain DeskType KnifeType) (canContain FridgeType AppleType) (canContain MicrowaveType AppleType))
(:goal (and (exists (?r - receptacle) (exists (?o - object)
  (and (inReceptacle ?o ?r) (objectType ?o AppleType) (receptacleType ?r DeskType)))))))
"""


class Play:
    """Plays commands and remembers the last answer."""

    def __init__(self, problem: str = PROBLEM) -> None:
        game = parse_problem(problem, "put a apple in desk.")
        self.environment = HouseholdEnvironment(Task("kitchen", "pick", "put a apple in desk."), game)
        self.text, self.info = self.environment.reset()
        self.reward = 0.0

    def __call__(self, *commands: str) -> str:
        for command in commands:
            self.text, self.reward, _, _, self.info = self.environment.step(command)
        return self.text

    def offers(self, verb: str) -> list[str]:
        return [command for command in self.info["admissible"] if command.split()[0] == verb]


def test_first_text_lists_reachable_receptacles_in_order_of_identifiers_and_the_task() -> None:
    assert Play().text == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 1, a fridge 1, "
        "a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a apple in desk."
    )


def test_admissible_commands_are_sorted_and_hide_help() -> None:
    play = Play()
    assert play.info["admissible"] == (
        "go to desk 1",
        "go to drawer 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to sinkbasin 1",
        "inventory",
        "look",
    )
    assert play("help").startswith("Available commands:\n  look: ")


def test_look_before_the_first_move_sees_nothing() -> None:
    assert Play()("look") == "You are in the middle of a room. Looking quickly around you, you see nothing."


def test_numbers_fall_in_the_order_of_identifiers() -> None:
    play = Play()
    assert play("go to drawer 1", "open drawer 1") == (
        "You open the drawer 1. The drawer 1 is open. In it, you see a apple 2, a apple 1, and a desklamp 1."
    )


def test_everything_at_the_location_is_in_reach_and_no_longer_a_destination() -> None:
    play = Play()
    assert play("go to desk 1") == "You arrive at desk 1. On the desk 1, you see a knife 1, and a mug 1."
    assert play.offers("go") == ["go to fridge 1", "go to microwave 1", "go to sinkbasin 1"]
    assert play.offers("examine") == ["examine desk 1", "examine drawer 1"]
    assert play.offers("open") == ["open drawer 1"]
    assert play("look") == "You are facing the desk 1, and drawer 1. Next to it, you see nothing."


def test_a_lamp_shines_out_of_a_closed_drawer_and_never_goes_off() -> None:
    play = Play()
    assert play("go to desk 1", "use desklamp 1") == "You turn on the desklamp 1."
    assert play("use desklamp 1") == "You turn on the desklamp 1."
    assert members(play.environment.state.toggled) == (2,)


def test_taking_from_one_receptacle_leaves_the_other() -> None:
    play = Play()
    play("go to drawer 1", "open drawer 1")
    assert play("take apple 2 from drawer 1") == "You pick up the apple 2 from the drawer 1."
    assert play("go to fridge 1", "open fridge 1").endswith("In it, you see a apple 2.")
    assert play.offers("take") == []
    assert play("inventory") == "You are carrying: a apple 2."


def test_look_lists_what_was_taken_from_a_receptacle_and_lies_beside_it() -> None:
    play = Play()
    play("go to drawer 1", "open drawer 1", "take apple 1 from drawer 1", "move apple 1 to desk 1")
    assert play("look") == "You are facing the desk 1, and drawer 1. Next to it, you see a apple 1."
    play("take apple 1 from desk 1", "move apple 1 to drawer 1")
    assert play("look") == "You are facing the desk 1, and drawer 1. Next to it, you see a apple 1."
    assert play.environment.state.taken == ((1, 0),)


def test_only_what_is_in_hand_can_be_examined() -> None:
    play = Play()
    play("go to desk 1")
    assert play("examine mug 1") == "Nothing happens."
    play("take mug 1 from desk 1")
    assert play("examine mug 1") == "This is a normal mug 1. In it, you see a pen 1."


def test_heat_drives_out_cold_and_texts_name_each_condition() -> None:
    play = Play()
    play("go to drawer 1", "open drawer 1", "take apple 1 from drawer 1")
    assert play("examine apple 1") == "There's nothing special about apple 1."
    assert play("go to fridge 1", "cool apple 1 with fridge 1") == "You cool the apple 1 using the fridge 1."
    assert play("examine apple 1") == "This is a cold apple 1."
    play("go to microwave 1", "heat apple 1 with microwave 1")
    assert play("examine apple 1") == "This is a hot apple 1."
    play("go to sinkbasin 1", "clean apple 1 with sinkbasin 1")
    assert play("examine apple 1") == "This is a hot and clean apple 1."
    play("go to fridge 1", "cool apple 1 with fridge 1")
    assert play("examine apple 1") == "This is a cool and clean apple 1."


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ("", "There's nothing special about apple 1."),
        ("hot", "This is a hot apple 1."),
        ("clean", "This is a clean apple 1."),
        ("cool", "This is a cold apple 1."),
        ("hot clean", "This is a hot and clean apple 1."),
        ("cool clean", "This is a cool and clean apple 1."),
        ("sliced", "This is a sliced apple 1."),
        ("hot sliced", "This is a hot sliced apple 1."),
        ("cool sliced", "This is a cool sliced apple 1."),
        ("clean sliced", "This is a clean sliced apple 1."),
        ("hot clean sliced", "This is a hot and clean sliced apple 1."),
        ("cool clean sliced", "This is a cool and clean sliced apple 1."),
        ("hot cool", "This is a hot apple 1."),
    ],
)
def test_an_examined_object_shows_its_condition(conditions: str, text: str) -> None:
    game = parse_problem(PROBLEM, "task")
    apple = game.object_numbers["apple 1"]
    state = game.start._replace(**dict.fromkeys(conditions.split(), 1 << apple))
    assert examine_object(game, state, apple) == text


def test_examined_lamps_and_things_that_cannot_be_sliced() -> None:
    game = parse_problem(PROBLEM, "task")
    lamp, knife = game.object_numbers["desklamp 1"], game.object_numbers["knife 1"]
    assert examine_object(game, game.start, lamp) == "There's nothing special about desklamp 1."
    assert examine_object(game, game.start._replace(toggled=1 << lamp), lamp) == "This desklamp 1 is on."
    assert (
        examine_object(game, game.start._replace(sliced=1 << knife), knife) == "There's nothing special about knife 1."
    )


def test_a_knife_reaches_into_closed_receptacles_but_not_to_other_locations() -> None:
    play = Play()
    play("go to desk 1", "take knife 1 from desk 1")
    assert play.offers("slice") == ["slice apple 1 with knife 1"]
    assert play("slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
    play("move knife 1 to desk 1", "open drawer 1", "take apple 1 from drawer 1")
    assert play("examine apple 1") == "This is a sliced apple 1."


def test_reward_is_paid_while_the_goal_holds_and_may_be_lost_again() -> None:
    play = Play()
    play("go to drawer 1", "open drawer 1", "take apple 1 from drawer 1")
    play("move apple 1 to desk 1")
    assert (play.reward, play.info["won"]) == (1.0, True)
    play("inventory")
    assert (play.reward, play.info["won"]) == (1.0, True)
    play("take apple 1 from desk 1")
    assert (play.reward, play.info["won"]) == (0.0, False)


@pytest.mark.parametrize("command", ["", "dance", "LOOK", "go to  desk 1", "open drawer 1", "go to shelf 1", "take"])
def test_what_is_not_admissible_changes_nothing(command: str) -> None:
    play = Play()
    before, admissible = play.environment.state, play.info["admissible"]
    assert play(command) == "Nothing happens."
    assert play.environment.state == before
    assert play.info["admissible"] == admissible


def test_spaces_around_a_command_do_not_matter() -> None:
    assert Play()("  go to desk 1\n").startswith("You arrive at desk 1.")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(:goal", "(:gaol", "expected the sections"),
        (" - otype)", ")", "'appletype' is declared without a type"),
        ("(openable Shelf_bar_1)", "(openable Shelf_bar_9)", "fact (openable shelf_bar_9)"),
        ("(openable Shelf_bar_1)", "(openable Apple_bar_1)", "expected declared objects of type receptacle"),
        ("(openable Shelf_bar_1)", "(sparkles Shelf_bar_1)", "unknown predicate"),
        ("(openable Shelf_bar_1)", "(receptacleAtLocation Desk_bar_1 l5)", "is at two locations"),
        ("(atLocation agent1 l0)", "", "the agent is at 0 locations"),
        ("Window_bar_1", "Window-1", None),
        ("Mug_bar_1", "Mug1", "does not have the form CLASS_bar_"),
        ("(inReceptacle ?o ?r)", "(isSliced ?o)", "none of the six"),
        ("(receptacleType ?r DeskType)))))))", "", "is not closed"),
    ],
)
def test_broken_problems_are_refused_with_the_reason(old: str, new: str, message: str | None) -> None:
    broken = PROBLEM.replace(old, new)
    assert broken != PROBLEM
    if message is None:
        parse_problem(broken, "task")
        return
    with pytest.raises(InputError, match=message.replace("(", r"\(").replace(")", r"\)")):
        parse_problem(broken, "task")


@given(st.sampled_from(FAMILIES), st.integers(0, 5), st.randoms(use_true_random=False))
def test_snapshots_restore_every_answer(family: str, number: int, rng: random.Random) -> None:
    problem, task = generate(3, "small", "train", family, number)
    environment = HouseholdEnvironment(Task("game", family, task), parse_problem(problem, task))
    _, info = environment.reset()
    for _ in range(rng.randrange(12)):
        info = environment.step(rng.choice(info["admissible"]))[4]
    snapshot = environment.snapshot()
    commands = [rng.choice(info["admissible"])]
    answers = [environment.step(commands[0])]
    for _ in range(8):
        commands.append(rng.choice(answers[-1][4]["admissible"]))
        answers.append(environment.step(commands[-1]))
    for other in (environment, HouseholdEnvironment(environment.task, environment.game)):
        other.restore(snapshot)
        assert [other.step(command) for command in commands] == answers


@given(st.sampled_from(FAMILIES), st.integers(0, 5), st.randoms(use_true_random=False))
def test_every_admissible_command_does_something(family: str, number: int, rng: random.Random) -> None:
    problem, task = generate(4, "small", "train", family, number)
    environment = HouseholdEnvironment(Task("game", family, task), parse_problem(problem, task))
    _, info = environment.reset()
    for _ in range(10):
        admissible = info["admissible"]
        assert list(admissible) == sorted(set(admissible))
        here = environment.snapshot()
        for command in admissible:
            assert environment.step(command)[0] != "Nothing happens."
            environment.restore(here)
        info = environment.step(rng.choice(admissible))[4]


def test_a_foreign_snapshot_is_refused() -> None:
    with pytest.raises(TypeError, match="Cannot restore a int"):
        Play().environment.restore(3)
