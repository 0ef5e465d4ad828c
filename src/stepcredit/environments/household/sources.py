"""Where household games come from: a tree of official game files, a compact file of games, or the generator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import orjson

from stepcredit.core.errors import InputError, OptionError, unknown_name
from stepcredit.core.packed import BROKEN, read_bytes
from stepcredit.environments.household.expert import plan
from stepcredit.environments.household.game import Game
from stepcredit.environments.household.generator import SPLITS, generate
from stepcredit.environments.household.goals import FAMILIES
from stepcredit.environments.household.problem import parse_problem
from stepcredit.environments.household.rooms import SIZES, RoomSize
from stepcredit.environments.protocol import Task

GAME_FILE = "game.tw-pddl"
_MOST_BROKEN = 1_000
"""Lines of a file that may be no games: some are data, more are another kind of file."""
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
        return load_game(identifier, *generate(int(seed), cast(RoomSize, room), split, family, int(number)))


class FileGames:
    """Games from files: a tree of ``game.tw-pddl`` files, or a JSON-lines file ``{"id", "problem", "task"}``.

    An identifier is ``SPLIT/TASK-FOLDER/TRIAL-FOLDER``. Like the reference stack, a tree leaves out games with movable
    receptacles or slices. Files are read again whenever games are asked for, so that nothing but identifiers stays.

    Args:
        path: folder of the tree, at any level above the splits; or the file, gzipped or not.

    Raises:
        InputError: no such file or folder, or no game in it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        problems: list[str] = []
        self._identifiers = [record.identifier for record in self._scan(problems.append)]
        if not self._identifiers:
            reason = f": {problems[0]}" if problems else f", neither {GAME_FILE} files nor lines of JSON"
            raise InputError(f"No household games in {str(path)!r}{reason}.")

    def splits(self) -> tuple[str, ...]:
        """The first parts of the identifiers: the official splits, then others by name."""
        found = {identifier.partition("/")[0] for identifier in self._identifiers}
        return tuple(split for split in (*OFFICIAL_SPLITS, *sorted(found - {*OFFICIAL_SPLITS})) if split in found)

    def games(self, split: str, warn: Warn) -> Iterator[LoadedGame]:
        """Read the games of a split, in the order of the file or of the sorted paths."""
        for record in self._scan(warn):
            if record.identifier.startswith(f"{split}/"):
                try:
                    yield record.load()
                except InputError as error:
                    warn(str(error))

    def find(self, identifier: str) -> LoadedGame:
        """Read one game."""
        if identifier not in self._identifiers:
            close = get_close_matches(identifier, self._identifiers, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"for example {self._identifiers[0]!r} is one."
            raise OptionError(f"Unknown game {identifier!r} of {len(self._identifiers)} in {str(self._path)!r}; {hint}")
        return next(record for record in self._scan(_ignore) if record.identifier == identifier).load()

    def _scan(self, warn: Warn) -> Iterator[_Record]:
        """All games, the second and later ones of a name left out."""
        seen: set[str] = set()
        for record in self._scan_tree() if self._path.is_dir() else self._scan_lines(warn):
            if record.identifier in seen:
                warn(f"{record.origin}: game {record.identifier!r} was there before")
            else:
                seen.add(record.identifier)
                yield record

    def _scan_tree(self) -> Iterator[_Record]:
        for path in sorted(self._path.rglob(GAME_FILE)):
            if "movable" not in str(path) and "Sliced" not in str(path):
                yield _Record("/".join(path.absolute().parts[-4:-1]), str(path), partial(_read_game_file, path))

    def _scan_lines(self, warn: Warn) -> Iterator[_Record]:
        broken = 0
        for number, line in enumerate(_read_bytes(self._path).split(b"\n"), 1):
            if not line.strip():
                continue
            origin = f"{self._path}:{number}"
            try:
                values = _json_object(line)
                identifier = _text(values, "id")
                if "/" not in identifier:
                    raise InputError(f"field 'id': got {identifier!r}, expected SPLIT/…")
            except InputError as error:
                warn(f"{origin}: {error}")
                broken += 1
                if broken > _MOST_BROKEN:
                    raise InputError(f"{origin}: {error}; {_MOST_BROKEN:,} lines before it are no games, too") from None
            else:
                yield _Record(identifier, origin, partial(_problem_and_task, values))


class _Record(NamedTuple):
    """One game in a file, not yet read."""

    identifier: str
    origin: str
    read: Callable[[], tuple[str, str]]

    def load(self) -> LoadedGame:
        """Read it; an error names the place."""
        try:
            return load_game(self.identifier, *self.read())
        except InputError as error:
            raise InputError(f"{self.origin}: {error}") from None


def _ignore(warning: str) -> None:
    """Let a warning pass."""


def _read_bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except (*BROKEN, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"Cannot read {str(path)!r}: {reason}.") from None


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"got a JSON {type(values).__name__}, expected an object")
    return values


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise InputError(f"field {name!r}: got {value!r}, expected a text")
    return value


def _problem_and_task(values: Mapping[str, Any]) -> tuple[str, str]:
    return _text(values, "problem"), _text(values, "task")


def _read_game_file(path: Path) -> tuple[str, str]:
    """Problem and sentence of an official game file; the sentence stands in the file's grammar."""
    values = _json_object(_read_bytes(path))
    if values.get("solvable") is False:
        raise InputError("marked as unsolvable by its makers")
    _, stated, rest = _text(values, "grammar").partition("Your task is to: ")
    sentence, closed, _ = rest.partition('"')
    if not (stated and closed):
        raise InputError("its grammar states no task")
    return _text(values, "pddl_problem"), sentence
