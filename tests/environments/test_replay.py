"""Replays and the first divergence between two of them."""

from __future__ import annotations

from stepcredit.environments.household.suite import HouseholdSuite
from stepcredit.environments.replay import first_divergence, replay

COMMANDS = ("look", "go to fridge 1", "open fridge 1", "dance")


def steps() -> list[dict[str, object]]:
    suite = HouseholdSuite(train=5)
    return [step.as_json() for step in replay(suite.make(suite.tasks("train")[3]), COMMANDS)]


def again(commands: tuple[str, ...] = COMMANDS) -> list[object]:
    suite = HouseholdSuite(train=5)
    return list(replay(suite.make(suite.tasks("train")[3]), commands))


def test_a_replay_starts_with_the_reset_and_answers_every_command() -> None:
    recorded = steps()
    assert [step["command"] for step in recorded] == [None, *COMMANDS]
    assert str(recorded[0]["feedback"]).startswith("-= Welcome")
    assert recorded[4]["feedback"] == "Nothing happens."
    assert all(step["reward"] == 0 and isinstance(step["reward"], int) for step in recorded)


def test_equal_replays_do_not_diverge() -> None:
    assert first_divergence(steps(), again()) is None
    assert first_divergence([{"command": step["command"]} for step in steps()], again()) is None


def test_the_first_divergence_is_named() -> None:
    recorded = steps()
    recorded[2]["feedback"] = "You arrive at fridge 2."
    recorded[3]["won"] = True
    found = first_divergence(recorded, again())
    assert found is not None
    assert found.startswith("Step 2 ('go to fridge 1') diverges in 'feedback': got 'You arrive at fridge 1.")


def test_missing_steps_are_a_divergence() -> None:
    assert first_divergence(steps()[:-1], again()) == "Step 4 is missing in the record."
    assert first_divergence(steps(), again(COMMANDS[:-1])) == "Step 4 is missing in the replay."
