"""The household as a suite of tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from stepcredit.core.errors import InputError, OptionError, unknown_name
from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.expert import HouseholdExpert
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.names import known_names
from stepcredit.environments.household.rooms import RoomSize
from stepcredit.environments.household.sources import FileGames, GameSource, GeneratedGames, LoadedGame
from stepcredit.environments.protocol import Environment, Task

Count = Annotated[int, Field(ge=0)]


class HouseholdSuite:
    """Household tasks: generated ones, or official ones from files.

    The keyword parameters are the environment's options, their annotations say what each means. ``$ALFWORLD_DATA`` and
    the like are replaced in ``games``; files are read when a split is asked for.

    Attributes:
        warnings: the games left out so far, each with its file and the reason.

    Raises:
        OptionError: an unknown family, no games asked for, or an option of the generator beside ``games``.
        InputError: no games at the given place.
    """

    name = "household"
    horizon = 50

    def __init__(
        self,
        *,
        games: Annotated[str | None, "folder of game.tw-pddl files or a games.jsonl file; generated without it"] = None,
        families: Annotated[Sequence[str], "take only these task families"] = FAMILIES,
        room: Annotated[RoomSize, "size of generated rooms"] = "small",
        train: Annotated[Count, "generated games to train on"] = 600,
        valid_seen: Annotated[Count, "generated games: other tasks in the layouts of training"] = 120,
        valid_unseen: Annotated[Count, "generated games in layouts that training never sees"] = 120,
        seed: Annotated[Count, "seed of the generator"] = 0,
    ) -> None:
        for family in families:
            if family not in FAMILIES:
                raise unknown_name("family", family, FAMILIES)
        self.warnings: list[str] = []
        self._families = tuple(dict.fromkeys(families))
        if not self._families:
            raise OptionError(f"No family chosen; expected some of {', '.join(FAMILIES)}.")
        self._source: GameSource
        counts = {"train": train, "valid_seen": valid_seen, "valid_unseen": valid_unseen}
        if games is None:
            if not any(counts.values()):
                raise OptionError("No games asked for; expected train, valid_seen or valid_unseen above 0.")
            self._source = GeneratedGames(counts, self._families, room, seed)
        else:
            for option, value in {**counts, "room": room, "seed": seed}.items():
                if value != self.__init__.__kwdefaults__[option]:  # type: ignore[misc]
                    raise OptionError(
                        f"Got {option}={value!r} beside games={games!r}; {option!r} is about generated games: "
                        "leave one of them away."
                    )
            self._source = FileGames(Path(os.path.expandvars(games)).expanduser())
        self._splits: dict[str, tuple[Task, ...]] = {}
        self._games: dict[str, LoadedGame] = {}

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        return self._source.splits()

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split in their fixed order; reads or generates its games at the first call.

        Raises:
            OptionError: no such split.
            InputError: none of its games is playable.
        """
        if split not in self._splits:
            if split not in self.splits():
                raise unknown_name("split", split, self.splits())
            loaded = [one for one in self._source.games(split, self._warn) if one.task.family in self._families]
            if not loaded:
                reason = f"; {len(self.warnings)} left out, the first: {self.warnings[0]}" if self.warnings else ""
                raise InputError(f"Split {split!r} has no playable game of {', '.join(self._families)}{reason}.")
            self._games.update((one.task.id, one) for one in loaded)
            self._splits[split] = tuple(one.task for one in loaded)
        return self._splits[split]

    def find(self, identifier: str) -> Task:
        """The task of an identifier, read without the rest of its split.

        Raises:
            OptionError: no such task.
            InputError: its game is broken.
        """
        return self._loaded(identifier).task

    def make(self, task: Task, *, show_help: bool = False) -> HouseholdEnvironment:
        """A fresh environment for a task of this suite; ``show_help`` lists ``help`` as the reference engine does."""
        return HouseholdEnvironment(*self._loaded(task.id), show_help=show_help)

    def expert(self, environment: Environment) -> HouseholdExpert:
        """An expert that plays the given environment from its present state."""
        if not isinstance(environment, HouseholdEnvironment):
            raise OptionError(f"The household's expert cannot play a {type(environment).__name__}.")
        return HouseholdExpert(environment)

    def entities(self) -> tuple[str, ...]:
        """``alarmclock 1`` … ``winebottle 3``: names of official and generated games, and of all games read so far."""
        read = (name for one in self._games.values() for name in (*one.game.objects, *one.game.receptacles))
        return tuple(sorted({*known_names(), *read}))

    def _loaded(self, identifier: str) -> LoadedGame:
        if identifier not in self._games:
            self._games[identifier] = self._source.find(identifier)
        return self._games[identifier]

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)
