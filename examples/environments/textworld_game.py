"""Branches of a TextWorld game, from copies of its engine: no replay, no second start.

    pip install textworld; python examples/environments/textworld_game.py

The game is made here; ``tw-make`` makes the same from a shell.
"""

import tempfile
from pathlib import Path

import textworld
import textworld.generator

from stepcredit import Turns, assign
from stepcredit.integrations.environments.textworld_games import TextworldSuite
from stepcredit.policy.linear import LinearPolicy
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect

with tempfile.TemporaryDirectory() as folder:
    options = textworld.GameOptions()
    options.seeds = 3
    options.nb_rooms, options.nb_objects, options.quest_length = 1, 3, 1
    Path(folder, "train").mkdir()
    textworld.generator.make_game(options).save(str(Path(folder, "train", "game.json")))
    suite = TextworldSuite(games=folder, horizon=12)
    print(suite.tasks("train")[0].goal)
    roots = collect(LinearPolicy(), suite, suite.tasks("train"), group_size=4, horizon=12, seed=[0], keep_places=True)
    first = roots.rollouts[0]
    grown = branch(LinearPolicy(), suite, [Opening(first, turn=2, count=4)], horizon=12, seed=[1], kept=roots.kept)
    roots.close()
episodes = [rollout.episode for rollout in (*roots.rollouts, *grown.rollouts)]
turns = Turns.from_episodes(episodes)
print(f"{len(roots.rollouts)} roots, {len(grown.rollouts)} branches, {sum(one.success for one in episodes)} won")
print("mean |advantage|", round(float(abs(assign(turns, "treepo").advantage).mean()), 3))
