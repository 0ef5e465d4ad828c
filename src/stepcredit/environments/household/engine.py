"""The household environment: one game being played."""

from __future__ import annotations

from typing import NamedTuple

from stepcredit.environments.household import texts
from stepcredit.environments.household.game import Game, State
from stepcredit.environments.household.rules import HELP, commands, execute
from stepcredit.environments.protocol import Info, Task


class Snapshot(NamedTuple):
    """A state with what was already worked out about it."""

    state: State
    admissible: tuple[str, ...]
    won: bool


class HouseholdEnvironment:
    """Plays one household game; equal, text for text, to ALFWorld's text engine.

    The game can be played on after it is won; then the goal, and with it the reward, may be lost again.

    Attributes:
        task: the task being played.
        game: its facts.
        state: the present state.
    """

    def __init__(self, task: Task, game: Game) -> None:
        self.task = task
        self.game = game
        self._start = Snapshot(game.start, commands(game, game.start), game.won(game.start))
        self.restore(self._start)

    def reset(self) -> tuple[str, Info]:
        """Back to the start; the welcome, the room and the task."""
        self.restore(self._start)
        return texts.first_text(self.game), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command; one that is not admissible changes nothing. Reward is 1 whenever the goal holds.

        ``help``, though hidden from the admissible commands, answers with the list of verbs.
        """
        command = action.strip()
        if command not in self._admissible and command != HELP:
            return texts.NOTHING_HAPPENS, float(self._won), self._won, False, self._info()
        before = self.state
        self.state, feedback = execute(self.game, before, command)
        if self.state is not before:
            self._admissible = commands(self.game, self.state)
            self._won = self.game.won(self.state)
        return feedback, float(self._won), self._won, False, self._info()

    def snapshot(self) -> Snapshot:
        """The present state. It is immutable and stays valid for any number of restores."""
        return Snapshot(self.state, self._admissible, self._won)

    def restore(self, snapshot: object) -> None:
        """Return to a state this environment gave."""
        assert isinstance(snapshot, Snapshot)
        self.state, self._admissible, self._won = snapshot

    def close(self) -> None:
        """Nothing is held."""

    def _info(self) -> Info:
        return {"admissible": self._admissible, "won": self._won}
