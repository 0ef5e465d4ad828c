"""The household environment: one game being played."""

from __future__ import annotations

from typing import NamedTuple

from stepcredit.environments.household import texts
from stepcredit.environments.household.game import Game, State
from stepcredit.environments.household.rules import HELP, commands, execute
from stepcredit.environments.protocol import Info, Task


class Snapshot(NamedTuple):
    """A state together with what is known about it."""

    state: State
    admissible: tuple[str, ...]
    won: bool


class HouseholdEnvironment:
    """Plays one household game; equal, text for text, to ALFWorld's text engine.

    A snapshot is a reference to an immutable state, valid in every environment of the same game. The game can be
    played on after it is won; then the goal, and the reward with it, may be lost again.

    Args:
        task: the task being played.
        game: its facts.
        show_help: whether the admissible commands contain ``help``, as the reference engine's do. It is understood
            either way.
    """

    def __init__(self, task: Task, game: Game, *, show_help: bool = False) -> None:
        self.task = task
        self.game = game
        self._show_help = show_help
        self._start = self._look_at(game.start)
        self._now = self._start

    @property
    def state(self) -> State:
        """The present state."""
        return self._now.state

    def reset(self) -> tuple[str, Info]:
        """Back to the start; the welcome, the room and the task."""
        self._now = self._start
        return texts.first_text(self.game), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Execute a command; one that is not admissible changes nothing. Reward is 1 while the goal holds, else 0."""
        state, admissible, won = self._now
        command = action.strip()
        if command in admissible or command == HELP:
            after, feedback = execute(self.game, state, command)
            if after is not state:
                self._now = self._look_at(after)
                won = self._now.won
        else:
            feedback = texts.NOTHING_HAPPENS
        return feedback, float(won), won, False, self._info()

    def snapshot(self) -> Snapshot:
        """The present state, immutable."""
        return self._now

    def restore(self, snapshot: object) -> None:
        """Return to a state of this game.

        Raises:
            TypeError: not a household snapshot.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"Cannot restore a {type(snapshot).__name__}; expected what snapshot() gave.")
        self._now = snapshot

    def close(self) -> None:
        """Nothing is held."""

    def _look_at(self, state: State) -> Snapshot:
        return Snapshot(state, commands(self.game, state, show_help=self._show_help), self.game.won(state))

    def _info(self) -> Info:
        return {"admissible": self._now.admissible, "won": self._now.won}
