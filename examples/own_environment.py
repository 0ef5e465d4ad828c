"""An environment of one's own: a dial that has to show a wanted number when the lever is pulled.

    stepcredit check-env own_environment:DialSuite
    stepcredit play own_environment:DialSuite
    stepcredit train --environment own_environment:DialSuite --model linear --horizon 12 --updates 20

The commands are given in the folder of this file. Run as a program, it checks itself.
"""

from __future__ import annotations

from typing import Annotated

from stepcredit.environments.check import check_suite
from stepcredit.environments.list_suite import ListSuite
from stepcredit.environments.protocol import Info, Task


class Dial:
    """One task: turn the dial to the wanted number, then pull the lever. The whole state is a pair."""

    def __init__(self, task: Task) -> None:
        self.task, self.wanted = task, int(task.id.rpartition("/")[2])
        self.state = (0, False)  # what the dial shows, and whether the lever was pulled

    def reset(self) -> tuple[str, Info]:
        """Back to zero."""
        self.state = (0, False)
        return self._answer()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Turn or pull; whatever else is said changes nothing."""
        shown, pulled = self.state
        if not pulled:
            self.state = (shown + {"turn left": -1, "turn right": 1}.get(action, 0), action == "pull")
        observation, info = self._answer()
        return observation, float(info["won"] and not pulled), self.state[1], False, info

    def close(self) -> None:
        """Nothing is held."""

    def _answer(self) -> tuple[str, Info]:
        shown, pulled = self.state
        side = "the wanted number" if shown == self.wanted else "too low" if shown < self.wanted else "too high"
        commands = () if pulled else ("pull", "turn left", "turn right")
        return f"The dial shows {side}.", {"admissible": commands, "won": pulled and shown == self.wanted}


class DialSuite(ListSuite):
    """Its tasks, one a wanted number."""

    def __init__(self, *, largest: Annotated[int, "largest number; its negative is the smallest"] = 5) -> None:
        numbers = {"train": range(1, largest + 1), "test": range(-largest, 0)}
        goal = "Pull the lever at the wanted number."
        tasks = {split: [Task(f"{split}/{number}", "dial", goal) for number in numbers[split]] for split in numbers}
        super().__init__("dial", horizon=12, tasks=tasks, make=Dial)


if __name__ == "__main__":
    report = check_suite(DialSuite())
    for finding in report.findings:
        print(finding)
    print(f"{report.tasks} tasks, {report.steps} commands, {len(report.findings)} findings")
