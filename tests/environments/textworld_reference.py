"""ALFWorld's own text engine, where it is installed: the oracle of the household's tests.

``pip install textworld==1.7.0 fast-downward-textworld==20.6.4 alfworld==0.4.2`` (a source build of some minutes) in an
environment of its own; none of it is needed otherwise. Run as a script it records the golden transcripts:

    PYTHONPATH=tests python -m environments.textworld_reference tests/environments/household_golden.jsonl.gz
"""

from __future__ import annotations

import gzip
import random
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.expert import HouseholdExpert
from stepcredit.environments.household.generator import SPLITS, generate
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.problem import parse_problem
from stepcredit.environments.household.rooms import SIZES
from stepcredit.environments.protocol import Task

WEIGHTS = {"go": 1, "examine": 1, "inventory": 1, "help": 1, "close": 2, "look": 3, "open": 6, "use": 6, "slice": 40}
"""How often a random walk tries a verb, relative to one ``go to``; 12 for the others."""

NONSENSE = ("dance", "go to nowhere 1", "LOOK", "take", "", "go to fridge 1", "use desklamp 1", " look ")


class TextWorldEngine:
    """The reference engine on one problem."""

    def __init__(self, problem: str, task: str) -> None:
        from alfworld.agents.utils.misc import Demangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv

        data = files("alfworld") / "data"
        self._engine: Any = PddlEnv(EnvInfos(won=True, admissible_commands=True))
        self._engine.load(
            {
                "pddl_domain": (data / "alfred.pddl").read_text(),
                "grammar": (data / "alfred.twl2").read_text().replace("UNKNOWN GOAL.", task),
                "pddl_problem": problem,
            }
        )
        entities = self._engine._entity_infos.values()
        demangler = Demangler(game_infos=self._engine._entity_infos)
        for entity in entities:
            entity.name = demangler.demangle_alfred_name(entity.id)

    def reset(self) -> dict[str, Any]:
        """The answer to the reset."""
        return _answer(None, self._engine.reset(), 0)

    def step(self, command: str) -> dict[str, Any]:
        """The answer to one command."""
        state, reward, _ = self._engine.step(command)
        return _answer(command, state, reward)


def _answer(command: str | None, state: Any, reward: int) -> dict[str, Any]:
    return {
        "command": command,
        "feedback": state.feedback,
        "admissible": list(state["admissible_commands"]),
        "reward": reward,
        "won": state["won"],
    }


def mixed_commands(environment: HouseholdEnvironment, rng: random.Random, steps: int) -> list[str]:
    """Commands of expert moves, random moves and nonsense, from the start of a game."""
    _, info = environment.reset()
    expert = HouseholdExpert(environment)
    commands = []
    for _ in range(steps):
        draw = rng.random()
        if draw < 0.3:
            command = expert.act() or "look"
        elif draw < 0.37:
            command = rng.choice(NONSENSE)
        else:
            offered = [*info["admissible"], "help"]
            command = rng.choices(offered, [WEIGHTS.get(one.split()[0], 12) for one in offered])[0]
        commands.append(command)
        info = environment.step(command)[4]
    return commands


def record(path: Path, games: int = 36, steps: int = 30) -> None:
    """Write what the reference engine answers on generated games, one game a line."""
    lines = []
    for number in range(games):
        arguments = (20, list(SIZES)[number // 6 % 3], SPLITS[number % 3], FAMILIES[number % 6], number)
        problem, task = generate(*arguments)
        environment = HouseholdEnvironment(Task(str(number), "", task), parse_problem(problem, task))
        commands = mixed_commands(environment, random.Random(f"golden {number}"), steps)
        engine = TextWorldEngine(problem, task)
        answers = [engine.reset(), *(engine.step(command) for command in commands)]
        lines.append(orjson.dumps({"problem": problem, "task": task, "steps": answers}))
    path.write_bytes(gzip.compress(b"\n".join(lines), mtime=0))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
