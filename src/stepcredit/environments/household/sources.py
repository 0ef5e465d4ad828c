"""Where household games come from: a tree of official game files, a compact file of games, or the generator."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson

from stepcredit.core.errors import InputError, OptionError, unknown_name
from stepcredit.environments.household.expert import plan
from stepcredit.environments.household.game import Game
from stepcredit.environments.household.generator import SPLITS, generate
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.problem import parse_problem
from stepcredit.environments.household.rooms import SIZES, RoomSize
from stepcredit.environments.protocol import Task

GAME_FILE = "game.tw-pddl"
OFFICIAL_SPLITS = ("train", "valid_train", "valid_seen", "valid_unseen")

Warn = Callable[[str], None]
"""Hears of each game that is left out, and why."""


class LoadedGame(NamedTuple):
    """A game with its task; the task's family is the goal's."""

    task: Task
    game: Game


class GameSource(Protocol):
    """Games by split, read when they are asked for."""

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        ...

    def games(self, split: str, warn: Warn) -> Iterator[LoadedGame]:
        """The playable games of a split in their fixed order."""
        ...

    def find(self, identifier: str) -> LoadedGame:
        """One game.

        Raises:
            OptionError: no such game.
            InputError: the game is broken.
        """
        ...


def load_game(identifier: str, problem: str, sentence: str) -> LoadedGame:
    """A game from its problem and its sentence.

    Raises:
        InputError: no ALFWorld problem, or one that cannot be won.
    """
    game = parse_problem(problem, sentence)
    if plan(game, game.start) is None:
        raise InputError("the game cannot be won: no way to its goal exists")
    return LoadedGame(Task(identifier, game.goal.family, sentence), game)


class GeneratedGames:
    """Games of the embedded generator, families in turn.

    Args:
        counts: split → number of games.
        families: families to take, in the order in which they alternate.
        room: size of the rooms.
        seed: names the endless list of games that this is the start of.
    """

    def __init__(self, counts: Mapping[str, int], families: Sequence[str], room: RoomSize, seed: int) -> None:
        self._counts = counts
        self._families = families
        self._room = room
        self._seed = seed

    def splits(self) -> tuple[str, ...]:
        """``train``, ``valid_seen``, ``valid_unseen``: those that have games."""
        return tuple(split for split in SPLITS if self._counts[split])

    def games(self, split: str, warn: Warn) -> Iterator[LoadedGame]:
        """Generate the games of a split; all are playable."""
        for index in range(self._counts[split]):
            number, turn = divmod(index, len(self._families))
            yield self.find(f"generated-{self._seed}/{self._room}/{split}/{self._families[turn]}/{number}")

    def find(self, identifier: str) -> LoadedGame:
        """The game of an identifier ``generated-SEED/ROOM/SPLIT/FAMILY/NUMBER``, also beyond this source's counts."""
        match = re.fullmatch(r"generated-(\d+)/(\w+)/(\w+)/(\w+)/(\d+)", identifier)
        if match is None:
            raise OptionError(
                f"Unknown game {identifier!r}: expected generated-SEED/ROOM/SPLIT/FAMILY/NUMBER, "
                "for example generated-0/small/train/clean/0."
            )
        seed, room, split, family, number = match.groups()
        for kind, name, known in (("room", room, SIZES), ("split", split, SPLITS), ("family", family, FAMILIES)):
            if name not in known:
                raise unknown_name(kind, name, known)
        return load_game(identifier, *generate(int(seed), room, split, family, int(number)))


class _Record(NamedTuple):
    """One game in a file, not yet read."""

    identifier: str
    origin: str
    read: Callable[[], tuple[str, str]]

    @property
    def split(self) -> str:
        return self.identifier.partition("/")[0]


class FileGames:
    """Games from files: a tree of ``game.tw-pddl`` files, or a JSON-lines file ``{"id", "problem", "task"}``.

    An identifier is ``SPLIT/TASK-FOLDER/TRIAL-FOLDER``. Like the reference stack, a tree leaves out games with movable
    receptacles or slices.

    Args:
        path: folder of the tree, at any level above the splits; or the file, gzipped or not.

    Raises:
        InputError: no such file or folder, or no game in it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._warnings: list[str] = []
        self._records = list(self._scan_tree() if path.is_dir() else self._scan_lines())
        if not self._records:
            reason = f"; {self._warnings[0]}" if self._warnings else ""
            raise InputError(f"No household game in {str(path)!r}{reason}")

    def splits(self) -> tuple[str, ...]:
        """The first parts of the identifiers: the official splits, then others by name."""
        found = {record.split for record in self._records}
        return tuple(split for split in (*OFFICIAL_SPLITS, *sorted(found - {*OFFICIAL_SPLITS})) if split in found)

    def games(self, split: str, warn: Warn) -> Iterator[LoadedGame]:
        """Read the games of a split, in the order of the file or of the sorted paths."""
        for warning in self._warnings:
            warn(warning)
        for record in self._records:
            if record.split == split:
                try:
                    yield load_game(record.identifier, *record.read())
                except InputError as error:
                    warn(f"{record.origin}: {error}")

    def find(self, identifier: str) -> LoadedGame:
        """Read one game."""
        for record in self._records:
            if record.identifier == identifier:
                try:
                    return load_game(identifier, *record.read())
                except InputError as error:
                    raise InputError(f"{record.origin}: {error}") from None
        raise unknown_name("game", identifier, [record.identifier for record in self._records])

    def _scan_tree(self) -> Iterator[_Record]:
        for path in sorted(self._path.rglob(GAME_FILE)):
            if "movable" in str(path) or "Sliced" in str(path):
                continue
            yield _Record("/".join(path.absolute().parts[-4:-1]), str(path), lambda path=path: _read_game_file(path))

    def _scan_lines(self) -> Iterator[_Record]:
        seen: set[str] = set()
        for number, line in enumerate(_read_bytes(self._path).splitlines(), 1):
            if not line.strip():
                continue
            origin = f"{self._path}:{number}"
            try:
                identifier, *texts = _fields(line, "id", "problem", "task")
                if identifier in seen:
                    raise InputError(f"game {identifier!r} is listed twice")
            except InputError as error:
                self._warnings.append(f"{origin}: {error}")
                continue
            seen.add(identifier)
            problem, task = texts
            yield _Record(identifier, origin, lambda problem=problem, task=task: (problem, task))


def _read_bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (EOFError, zlib.error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot read the games {str(path)!r}: {reason}.") from None


def _fields(data: bytes, *names: str) -> list[str]:
    """Fields of a JSON object that must be there and be texts."""
    try:
        values: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError("expected a JSON object")
    for name in names:
        if not isinstance(values.get(name), str):
            raise InputError(f"field {name!r}: got {values.get(name)!r}, expected a text")
    return [values[name] for name in names]


def _read_game_file(path: Path) -> tuple[str, str]:
    """Problem and sentence of an official game file; the sentence stands in the file's grammar."""
    data = _read_bytes(path)
    problem, grammar = _fields(data, "pddl_problem", "grammar")
    if orjson.loads(data).get("solvable") is False:
        raise InputError("marked as unsolvable by its makers")
    sentence = re.search(r'Your task is to: ([^"]*)"', grammar)
    if sentence is None:
        raise InputError("its grammar states no task")
    return problem, sentence[1]
