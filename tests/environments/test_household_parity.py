"""The household equals the reference engine, text for text: recorded transcripts, and a live comparison."""

from __future__ import annotations

import gzip
import importlib.util
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from environments.textworld_reference import TextWorldEngine, mixed_commands
from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.generator import generate
from stepcredit.environments.household.problem import parse_problem
from stepcredit.environments.household.rules import _EXECUTE
from stepcredit.environments.household.suite import HouseholdSuite
from stepcredit.environments.protocol import Task
from stepcredit.environments.replay import first_divergence, replay

GOLDEN = Path(__file__).parent / "household_golden.jsonl.gz"


def read(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def environment(problem: str, task: str) -> HouseholdEnvironment:
    return HouseholdEnvironment(Task("game", "", task), parse_problem(problem, task), show_help=True)


def assert_equal(played: HouseholdEnvironment, recorded: list[dict[str, Any]]) -> None:
    commands = [step["command"] for step in recorded[1:]]
    assert first_divergence(recorded, replay(played, commands)) is None


def test_all_recorded_official_transcripts_are_reproduced(shared_data: Path) -> None:
    suite = HouseholdSuite(games=str(shared_data / "alfworld" / "games.jsonl.gz"))
    transcripts = read(shared_data / "alfworld" / "transcripts.jsonl.gz")
    assert len(transcripts) == 30
    for transcript in transcripts:
        played = suite.make(suite.find(transcript["id"]), show_help=True)
        first = {"command": None, "feedback": transcript["first"], "admissible": transcript["admissible"]}
        assert_equal(played, [first, *transcript["steps"]])


def test_recorded_transcripts_of_generated_games_are_reproduced() -> None:
    """Recorded from the reference engine by ``textworld_reference.py``; small, medium and large rooms, all families."""
    games = read(GOLDEN)
    assert len(games) == 36
    for game in games:
        assert_equal(environment(game["problem"], game["task"]), game["steps"])


def test_recordings_exercise_every_verb_and_a_win() -> None:
    steps = [step for game in read(GOLDEN) for step in game["steps"][1:] if step["feedback"] != "Nothing happens."]
    verbs = {step["command"].split()[0] for step in steps}
    assert verbs == set(_EXECUTE)
    assert any(step["won"] for step in steps)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("textworld", "fast_downward", "alfworld")),
    reason="textworld, fast-downward-textworld and alfworld are not installed",
)
@pytest.mark.parametrize("number", range(3))
def test_live_engine_agrees(number: int) -> None:
    family = ("heat", "look", "pick2")[number]
    problem, task = generate(31, "medium", "train", family, number)
    played = environment(problem, task)
    commands = mixed_commands(played, random.Random(f"live {number}"), 20)
    engine = TextWorldEngine(problem, task)
    assert_equal(played, [engine.reset(), *(engine.step(command) for command in commands)])
