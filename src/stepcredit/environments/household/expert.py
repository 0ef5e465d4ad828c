"""An expert that sees the whole state and plays the shortest of all sensible ways to the goal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from stepcredit.environments.household.engine import HouseholdEnvironment
from stepcredit.environments.household.game import NOTHING, Game, State, members
from stepcredit.environments.household.rules import execute


class HouseholdExpert:
    """Plays from whatever state its environment is in, so that it recovers from anybody's detours."""

    def __init__(self, environment: HouseholdEnvironment) -> None:
        self._environment = environment
        self._expected: State | None = None
        self._rest: tuple[str, ...] = ()

    def act(self) -> str | None:
        """The next command, or None when the goal holds or no way is known."""
        game, state = self._environment.game, self._environment.state
        if state != self._expected or not self._rest:
            self._rest = plan(game, state) or ()
        if not self._rest:
            return None
        command, *rest = self._rest
        self._expected, self._rest = execute(game, state, command)[0], tuple(rest)
        return command


def plan(game: Game, state: State) -> tuple[str, ...] | None:
    """Commands that win from a state: the shortest of the ways below, the first where several are.

    A way is: put away what the hand holds, unless it is a target; fetch a target, treat it where the family asks for
    it, and bring it to a destination; twice for ``pick2``, under a lit lamp for ``look``. Every choice of objects, of
    receptacles and of order is compared by its number of commands.

    Returns:
        Nothing to do, ``()``, where the goal already holds; None where no way exists.
    """
    if game.won(state):
        return ()
    here = _Way(game, state, state.place, state.opened, ())
    if state.held == NOTHING or game.goal.targets >> state.held & 1:
        starts = [(here, state.held)]
    else:
        starts = [(here.put(state.held, r), NOTHING) for r in _accepting(game, state.held)]
    solve = {"look": _under_lamp, "pick2": _two}.get(game.goal.family, _one)
    return min((way.commands for start, held in starts for way in solve(start, held)), key=len, default=None)


class _Way(NamedTuple):
    """Commands so far, and where they lead: the agent's location and the receptacles that are open by then."""

    game: Game
    state: State
    place: int
    opened: int
    commands: tuple[str, ...]

    def do(self, command: str) -> _Way:
        return self._replace(commands=(*self.commands, command))

    def approach(self, receptacle: int) -> _Way:
        """Stand at a receptacle."""
        place = self.game.places[receptacle]
        if place == self.place:
            return self
        return self.do(f"go to {self.game.receptacles[receptacle]}")._replace(place=place)

    def reach(self, receptacle: int) -> _Way:
        """Stand at a receptacle that is open."""
        way = self.approach(receptacle)
        if not (self.game.traits.openable & ~self.opened) >> receptacle & 1:
            return way
        return way.do(f"open {self.game.receptacles[receptacle]}")._replace(opened=self.opened | 1 << receptacle)

    def put(self, thing: int, receptacle: int) -> _Way:
        """Bring what is in hand to a receptacle."""
        game = self.game
        return self.reach(receptacle).do(f"move {game.objects[thing]} to {game.receptacles[receptacle]}")

    def fetch(self, thing: int, held: int) -> Iterator[_Way]:
        """Have an object in hand, taken from any receptacle it is in."""
        game = self.game
        if thing == held:
            yield self
        elif held == NOTHING and game.traits.pickupable >> thing & 1:
            for receptacle, place in enumerate(game.places):
                if place != NOTHING and self.state.contents[receptacle] >> thing & 1:
                    yield self.reach(receptacle).do(f"take {game.objects[thing]} from {game.receptacles[receptacle]}")

    def treat(self, thing: int) -> Iterator[_Way]:
        """Clean, heat or cool what is in hand, where the goal asks for it and it is not yet so."""
        game = self.game
        if game.ready(self.state) >> thing & 1:
            yield self
            return
        verb, traits = game.goal.family, game.traits
        appliances = {"clean": traits.sinks, "heat": traits.microwaves, "cool": traits.fridges}[verb]
        for appliance in members(appliances):
            if game.places[appliance] != NOTHING:
                way = self.approach(appliance)
                yield way.do(f"{verb} {game.objects[thing]} with {game.receptacles[appliance]}")


def _accepting(game: Game, thing: int) -> list[int]:
    """The receptacles an object can be brought to."""
    return [r for r, place in enumerate(game.places) if place != NOTHING and game.accepts[r] >> thing & 1]


def _one(start: _Way, held: int) -> Iterator[_Way]:
    """Ways that bring one target, treated, to a destination."""
    game = start.game
    for target in (held,) if held != NOTHING else members(game.goal.targets):
        destinations = [r for r in _accepting(game, target) if r in game.goal.destinations]
        for fetched in start.fetch(target, held):
            for treated in fetched.treat(target):
                for destination in destinations:
                    yield treated.put(target, destination)


def _two(start: _Way, held: int) -> Iterator[_Way]:
    """Ways that bring as many targets to one destination as it lacks of two; one in hand goes first."""
    game = start.game
    for destination in game.goal.destinations:
        if game.places[destination] == NOTHING:
            continue
        there = start.state.contents[destination] & game.goal.targets
        usable = game.goal.targets & game.accepts[destination] & ~there
        for chosen in permutations(members(usable), 2 - there.bit_count()):
            if held != NOTHING and held != chosen[0]:
                continue
            ways, hand = [start], held
            for target in chosen:
                ways = [fetched.put(target, destination) for way in ways for fetched in way.fetch(target, hand)]
                hand = NOTHING
            yield from ways


def _under_lamp(start: _Way, held: int) -> Iterator[_Way]:
    """Ways that bring a target to a lamp and turn it on, unless it is on."""
    game, state = start.game, start.state
    for target in (held,) if held != NOTHING else members(game.goal.targets):
        for fetched in start.fetch(target, held):
            for receptacle, place in enumerate(game.places):
                if place == NOTHING:
                    continue
                for lamp in members(state.contents[receptacle] & game.goal.lamps):
                    way = fetched.approach(receptacle)
                    yield way if state.toggled >> lamp & 1 else way.do(f"use {game.objects[lamp]}")
