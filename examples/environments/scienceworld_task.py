"""A ScienceWorld task, its episodes compared turn by turn.

pip install scienceworld (and Java); python examples/environments/scienceworld_task.py
"""

from stepcredit import Turns, assign
from stepcredit.integrations.environments.scienceworld_tasks import ScienceworldSuite
from stepcredit.policy.linear import LinearPolicy
from stepcredit.rollouts.collect import collect

suite = ScienceworldSuite(tasks=["find-plant"], variations=1)
tasks = suite.tasks("train")
print(tasks[0].goal)
collected = collect(LinearPolicy(), suite, tasks, group_size=2, horizon=8, seed=[0], reward_scale=1.0)
turns = Turns.from_episodes(rollout.episode for rollout in collected.rollouts)
print(f"{len(turns)} turns, scores {[rollout.episode.score for rollout in collected.rollouts]}")
print("mean |advantage|", round(float(abs(assign(turns, "gigpo").advantage).mean()), 3))
suite.close()
