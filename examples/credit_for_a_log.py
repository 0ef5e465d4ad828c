"""Credit for an existing log: turn what you recorded into episodes, assign, and write the files other tools read."""

import tempfile
from pathlib import Path

from stepcredit import Episode, Turn, Turns, assign, write_credit, write_episodes

# Any log that knows, per attempt at a task, what was seen and done. This one is a list of support-bot sessions.
LOG = [
    {"ticket": 17, "solved": True, "steps": [("inbox", "open 17"), ("ticket 17", "ask"), ("answer 17", "send fix")]},
    {"ticket": 17, "solved": False, "steps": [("inbox", "open 17"), ("ticket 17", "send fix")]},
    {"ticket": 17, "solved": False, "steps": [("inbox", "close 17")]},
    {"ticket": 23, "solved": True, "steps": [("inbox", "open 23"), ("ticket 23", "send fix")]},
    {"ticket": 23, "solved": False, "steps": [("inbox", "open 17"), ("ticket 17", "send fix")]},
]


def to_episode(number: int, session: dict) -> Episode:
    """One session as an episode: the outcome is the reward of its last turn."""
    *before, last = session["steps"]
    turns = [Turn(seen, done) for seen, done in before]
    turns.append(Turn(*last, reward=float(session["solved"])))
    end = "solved" if session["solved"] else "unsolved"
    return Episode(f"ticket {session['ticket']}", f"session {number}", tuple(turns), end, session["solved"])


episodes = [to_episode(number, session) for number, session in enumerate(LOG)]
turns = Turns.from_episodes(episodes)
credit = assign(turns, "gigpo", normalize="mean")

for row in range(len(turns)):
    episode, state, action = turns.episode_names[turns.episode[row]], turns.state[row], turns.action[row]
    print(f"{episode}  {turns.state_names[state]:10} {turns.action_names[action]:9} {credit.advantage[row]:+.3f}")
groups = credit.diagnostics["groups"]
print(f"{groups['shared']:.0%} of turns share their state with another one; {groups['singletons']} do not")

with tempfile.TemporaryDirectory() as folder:
    write_episodes(Path(folder, "rollouts.jsonl"), episodes)  # `stepcredit assign rollouts.jsonl --method …` reads this
    write_credit(Path(folder, "credit.jsonl"), turns, credit)
    print(Path(folder, "credit.jsonl").read_text(encoding="utf-8").splitlines()[0])
