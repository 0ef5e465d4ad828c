"""Step-level credit on somebody's Gymnasium environment: the frozen lake, told in words.

    pip install 'stepcredit[gymnasium]'; python examples/environments/gymnasium_text.py

``from_gymnasium`` takes any environment with a text action space, or a ``Discrete`` one and names for its actions.
Four of the lake's sixteen cells are holes, and only the last one pays.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from stepcredit import Turns, assign
from stepcredit.integrations.environments.gymnasium_text import from_gymnasium
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.settings import UpdateSettings
from stepcredit.rollouts.collect import collect

ROWS, COLUMNS = ("northern", "second", "third", "southern"), ("western", "left", "right", "eastern")


def in_words(cell: Any, _: Mapping[str, Any]) -> str:
    """The observation, a cell's number, as text."""
    row, column = divmod(int(cell), 4)
    return f"You stand in the {ROWS[row]} row, in the {COLUMNS[column]} column."


suite = from_gymnasium(
    lambda: gymnasium.make("FrozenLake-v1", is_slippery=False),
    name="lake",
    goal="Cross the lake to its southern row and eastern column.",
    seeds={"train": [0]},
    actions=("go west", "go south", "go east", "go north"),
    text=in_words,
    horizon=20,
    copyable=True,
)
policy = LinearPolicy()
for update in range(20):
    collected = collect(policy, suite, suite.tasks("train"), group_size=32, horizon=20, seed=[update])
    episodes = [rollout.episode for rollout in collected.rollouts]
    credit = assign(Turns.from_episodes(episodes), "gigpo")
    policy.update(collected.rollouts, credit.advantage, UpdateSettings(lr=0.05), seed=[update])
    if update % 5 == 4:
        print(f"update {update + 1}: {np.mean([one.success for one in episodes]):.0%} of episodes cross the lake")
