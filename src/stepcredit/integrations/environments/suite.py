"""What the suites here share: splits that are read when they are needed, game files in folders, lists of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepcredit.core.errors import InputError, OptionError, unknown_name
from stepcredit.environments.list_suite import ListSuite
from stepcredit.environments.protocol import Environment, Task


class ReadSuite(ListSuite):
    """A suite whose splits are read when they are asked for, because finding out about a task takes time.

    Args:
        name: name of the environment.
        splits: names of the splits, training first.
        read: the tasks of a split in their fixed order; called once a split.
        make: a fresh environment for a task.
        horizon: turns an episode may take by default.
    """

    def __init__(
        self,
        name: str,
        splits: Sequence[str],
        read: Callable[[str], Sequence[Task]],
        make: Callable[[Task], Environment],
        *,
        horizon: int,
    ) -> None:
        super().__init__(name, horizon=horizon, tasks={}, make=make)
        self._splits = tuple(splits)
        self._read = read

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        return self._splits

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split in their fixed order.

        Raises:
            OptionError: no such split, or it has no tasks.
        """
        if split not in self._splits:
            raise unknown_name("split", split, self._splits)
        if split not in self._tasks:
            tasks = tuple(self._read(split))
            if not tasks:
                raise OptionError(
                    f"Split {split!r} of the environment {self.name!r} has no tasks; expected at least one."
                )
            self._tasks[split] = tasks
        return self._tasks[split]


def listed(commands: Any) -> tuple[str, ...]:
    """Admissible commands as the protocol wants them: sorted, each once; nothing where there is no list."""
    return tuple(sorted(set(commands or ())))


def game_files(folder: Path, endings: Sequence[str]) -> dict[str, dict[str, Path]]:
    """The games under each subfolder of a folder: split → name → file, both in order.

    A game's name is its file's path in the split without the ending. Of several files of one name the first ending
    counts: TextWorld writes ``game.json`` beside ``game.z8``. ``train`` comes first, other splits by name; a subfolder
    without games is left out.

    Raises:
        InputError: no such folder, or no games in it.
    """
    if not folder.is_dir():
        raise InputError(f"Cannot read {str(folder)!r}: there is no such folder.")
    games: dict[str, dict[str, Path]] = {}
    for split in sorted(folder.iterdir(), key=lambda path: (path.name != "train", path.name)):
        found: dict[str, Path] = {}
        for ending in endings:
            for file in split.rglob(f"*{ending}"):
                found.setdefault(file.relative_to(split).with_suffix("").as_posix(), file)
        if found:
            games[split.name] = {name: found[name] for name in sorted(found)}
    if not games:
        raise InputError(f"No game in {str(folder)!r}; expected files {', '.join(endings)} in a subfolder a split.")
    return games
