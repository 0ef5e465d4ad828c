"""Two methods on one rollout file: how far they agree, and the turns they disagree on most.

    python examples/compare_methods.py [ROLLOUTS] [METHOD OTHER]

Without arguments it compares on a small file of its own: a lever and a door, where only the right order wins.
"""

import random
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np

from stepcredit import Episode, Turn, Turns, assign, read_turns, write_episodes


def play(number: int, rng: random.Random) -> Episode:
    """A random walk: pull the lever in the left room, then leave through the right door."""
    turns, room, pulled = [], "hall", False
    for _ in range(8):
        action = rng.choice({"hall": ["left", "right"], "left room": ["pull", "back"]}[room])
        state = f"{room}, lever {'down' if pulled else 'up'}"
        turns.append(Turn(state, action, reward=float(action == "right" and pulled)))
        if action == "right":
            break
        pulled = pulled or action == "pull"
        room = "left room" if action == "left" else "hall" if action == "back" else room
    won = turns[-1].reward > 0
    return Episode("doors", f"walk {number}", tuple(turns), "outside" if won else "locked", won)


def compare(turns: Turns, first: str, second: str) -> None:
    """Print correlation, agreement in sign, and the largest disagreements after scaling both to deviation one."""
    one, other = (assign(turns, name).advantage for name in (first, second))
    one, other = one / (one.std() + 1e-9), other / (other.std() + 1e-9)
    agree = np.mean(np.sign(one) == np.sign(other))
    print(f"{first} and {second}: correlation {np.corrcoef(one, other)[0, 1]:.2f}, same sign on {agree:.0%} of turns")
    for row in np.argsort(-np.abs(one - other))[:5]:
        where = f"{turns.episode_names[turns.episode[row]]}, turn {turns.turn[row]}"
        seen = textwrap.shorten(turns.state_names[turns.state[row]], 30, placeholder="…")
        choice = f"{seen} → {turns.action_names[turns.action[row]]}"
        print(f"  {where:18} {choice:34} {first} {one[row]:+.2f}  {second} {other[row]:+.2f}")


arguments = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    path = Path(arguments[0]) if arguments else Path(folder, "doors.jsonl")
    if not arguments:
        rng = random.Random("doors")
        write_episodes(path, [play(number, rng) for number in range(24)])
    compare(read_turns(path), *(arguments[1:] or ["grpo", "rtmc"]))
