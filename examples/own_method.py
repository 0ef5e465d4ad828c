"""An own credit method: compare each turn with the turns the other attempts took at the same time.

A method is a pure function from the table of turns to one advantage a turn. Its keyword-only parameters are its
options; one line in the catalogue makes it available to `assign`, to `train` and on the command line.
"""

from typing import Annotated

from stepcredit import Credit, Episode, Turn, Turns, assign
from stepcredit.credit.catalogue import METHODS
from stepcredit.credit.diagnostics import build_credit, describe_groups
from stepcredit.credit.groups import joint_groups, normalize_groups, step_returns
from stepcredit.credit.method import Method, Range


def same_time(turns: Turns, *, gamma: Annotated[float, Range(0, 1), "discount per turn"] = 0.95) -> Credit:
    """A_i = ĝ_i − mean ĝ over the turns of the task at the same depth."""
    returns = step_returns(turns, gamma)
    group = joint_groups(turns.task, turns.depth)
    step = normalize_groups(returns, group, normalize="mean")
    return build_credit(turns, step, {"step": step}, groups=describe_groups(group, returns))


METHODS["same_time"] = Method(
    "same_time", "contrib", same_time, "step returns against the same moment", "this file", forest="by depth"
)

quick = Episode("find the key", "quick", (Turn("hall", "look"), Turn("hall", "take key", reward=1.0)), "done", True)
slow = Episode(
    "find the key", "slow", (Turn("hall", "wait"), Turn("hall", "wait"), Turn("hall", "wait")), "hall", False
)
turns = Turns.from_episodes([quick, slow])
for name in ("same_time", "gaca"):
    options = {"step": "same_time", "alpha": 0.0} if name == "gaca" else {}
    print(f"{name:10}", assign(turns, name, **options).advantage.round(3))
