"""ALFWorld's own engine beside ours on the same game: the same texts, turn for turn.

    pip install alfworld; python examples/environments/alfworld_game.py

The game is one of our generator's, written as ``alfworld`` stores games.
"""

import json
import tempfile
from importlib.resources import files
from pathlib import Path

from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.expert import HouseholdExpert
from stepcredit.environments.household.generator import generate
from stepcredit.environments.household.problem import parse_problem
from stepcredit.integrations.environments.alfworld_games import AlfworldSuite

problem, goal = generate(0, "small", "train", "clean", 0)
data = files("alfworld") / "data"
game = {
    "pddl_domain": (data / "alfred.pddl").read_text(),
    "grammar": (data / "alfred.twl2").read_text().replace("UNKNOWN GOAL.", goal),
    "pddl_problem": problem,
    "solvable": True,
}
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "train", "pick_clean_then_place_in_recep-0", "trial_0", "game.tw-pddl")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(game))
    suite = AlfworldSuite(games=folder)
    (task,) = suite.tasks("train")
    print(task)
    theirs, ours = suite.make(task), HouseholdEnvironment(task, parse_problem(problem, goal))
    expert = HouseholdExpert(ours)
    observation, info = theirs.reset()
    same = observation == ours.reset()[0]
    turns = 0
    while (command := expert.act()) is not None:
        turns += 1
        observation, reward, terminated, _, info = theirs.step(command)
        same = same and observation == ours.step(command)[0]
        print(f"{turns:2} {command:40} {observation.splitlines()[0][:60]}")
    print("won" if info["won"] else "not won", "with the same texts" if same else "with different texts")
    theirs.close()
