"""Where randomness comes from: every draw of a run is named by (recipe seed, stream, step)."""

from __future__ import annotations

from enum import IntEnum


class Stream(IntEnum):
    """What a random draw is for; the second number of every seed."""

    TASKS = 1
    ROLLOUT = 2
    UPDATE = 3
    DEMONSTRATION = 4
    IMITATION = 5
    GATE = 6
    EVALUATION = 7
    BRANCH = 8
