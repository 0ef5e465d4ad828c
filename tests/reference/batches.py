"""Random batches of episodes, chains and forests, drawn to hit the degenerate cases.

``random_chains(seed)`` and ``random_forest(seed)`` give a list of episodes; the same seed gives the same batch.
``batch(seed)`` alternates between the two. ``DEGENERATE`` names small hand-made batches, one a corner.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from stepcredit.core.episodes import Episode, Parent, Turn

REWARDS: dict[str, Sequence[float]] = {
    "none": (0.0,),
    "outcome": (0.0,),  # the last turn alone is paid, see `_pay_outcome`
    "dense": (0.0, 0.0, 1.0, -0.5, 0.1, 0.7),
    "large": (0.0, 10.0, -100.0),
}


def _turn(rng: random.Random, world: World, state: str) -> Turn:
    penalty = rng.choice((0.0, 0.0, 0.0, 0.1, 0.5)) if world.penalties else 0.0
    nll = 0.0 if world.zero_nll else rng.choice((0.0, 0.05, 0.3, 1.7)) * rng.random()
    use_state = rng.random() < 0.1
    tokenwise = rng.random() < 0.3
    return Turn(
        observation=f"looks like {rng.random()}" if use_state else state,
        action=rng.choice(world.actions),
        reward=rng.choice(REWARDS[world.rewards]),
        penalty=penalty,
        valid=penalty == 0.0,
        nll=None if tokenwise else nll,
        logprobs=(-nll, -nll) if tokenwise else None,
        entropy=rng.random(),
        state=state if use_state else None,
    )


@dataclasses.dataclass(frozen=True)
class World:
    """What one task's episodes draw from."""

    states: tuple[str, ...]
    actions: tuple[str, ...]
    rewards: str
    penalties: bool
    zero_nll: bool
    longest: int
    equal: bool


def _world(rng: random.Random) -> World:
    width = rng.choice((1, 2, 3, 5, 12, 200))
    # Keys that other code confuses: numbers as text, the empty string, words a program might use internally.
    odd = ["1", "True", "1.0", "", "success", "None", "goal", "é"]
    names = odd[: rng.randrange(len(odd) + 1)] + [f"s{i}" for i in range(200)]
    return World(
        states=tuple(names[:width]),
        actions=tuple(["go", "1", "True", "", "look", "take x"][: rng.randint(1, 6)]),
        rewards=rng.choice(tuple(REWARDS)),
        penalties=rng.random() < 0.6,
        zero_nll=rng.random() < 0.15,
        longest=rng.choice((1, 2, 4, 9, 25)),
        equal=rng.random() < 0.1,
    )


def _episode(rng: random.Random, world: World, task: str, name: str, first: str | None = None) -> Episode:
    """A walk over the world's states; the next turn's state is drawn, so self-loops and cycles are common."""
    state = first if first is not None else rng.choice(world.states)
    turns = []
    for _ in range(rng.randint(1, world.longest)):
        turns.append(_turn(rng, world, state))
        state = rng.choice(world.states)
    if first is not None:
        turns[0] = dataclasses.replace(turns[0], observation=first, state=None)
    success = rng.random() < 0.5
    if world.rewards == "outcome":
        turns[-1] = dataclasses.replace(turns[-1], reward=10.0 if success else 0.0)
    return Episode(task, name, tuple(turns), final_observation=state, success=success)


def random_chains(seed: int, *, tasks: int = 3) -> list[Episode]:
    """Root episodes of a few tasks, group sizes 1 to 6, interleaved in random order."""
    rng = random.Random(f"chains {seed}")
    episodes = []
    for index in range(rng.randint(1, tasks)):
        world = _world(rng)
        group = [_episode(rng, world, f"task {index}", f"{index}/{i}") for i in range(rng.randint(1, 6))]
        if world.equal:
            group = [dataclasses.replace(group[0], episode=episode.episode) for episode in group]
        episodes += group
    rng.shuffle(episodes)
    return episodes


def random_forest(seed: int, *, tasks: int = 2) -> list[Episode]:
    """Roots and branches, branches of branches included, in random order (a parent may follow its child)."""
    rng = random.Random(f"forest {seed}")
    episodes = []
    for index in range(rng.randint(1, tasks)):
        world = _world(rng)
        task = f"task {index}"
        group = [_episode(rng, world, task, f"{index}/{i}") for i in range(rng.randint(1, 4))]
        for i in range(rng.randint(0, 6)):
            parent = rng.choice(group)
            at = rng.choice((0, len(parent.turns) - 1, rng.randrange(len(parent.turns))))
            branch = _episode(rng, world, task, f"{index}/b{i}", first=parent.turns[at].state_key)
            group.append(dataclasses.replace(branch, parent=Parent(parent.episode, at)))
        episodes += group
    rng.shuffle(episodes)
    return episodes


def batch(seed: int) -> list[Episode]:
    """Chains for even seeds, a forest for odd ones."""
    return random_forest(seed) if seed % 2 else random_chains(seed)


def chain(
    task: str,
    name: str,
    states: Sequence[str],
    *,
    end: str = "end",
    actions: Sequence[str] | None = None,
    rewards: Sequence[float] | None = None,
    penalties: Sequence[float] | None = None,
    nll: Sequence[float] | None = None,
    success: bool = False,
    parent: Parent | None = None,
) -> Episode:
    """An episode from plain lists: ``states`` are the observations, everything else defaults to zero or ``go``."""
    count = len(states)
    turns = tuple(
        Turn(
            observation=states[i],
            action=actions[i] if actions else "go",
            reward=rewards[i] if rewards else 0.0,
            penalty=penalties[i] if penalties else 0.0,
            nll=nll[i] if nll else 0.5,
            entropy=0.5,
        )
        for i in range(count)
    )
    return Episode(task, name, turns, end, success, parent)


def hand_five() -> list[Episode]:
    """The two episodes of the worked case of docs/methods: A wins over o1, o2, o3; B fails over o1, o3."""
    return [
        chain("t", "A", ["o1", "o2", "o3"], rewards=[0, 0, 10], success=True),
        chain("t", "B", ["o1", "o3"], penalties=[0, 0.1]),
    ]


def long_branch_chain(links: int) -> list[Episode]:
    """A root and ``links`` branches, each the parent of the next: what a recursive walk would not survive."""
    episodes = [chain("t", "0", ["s", "s"], rewards=[0, 1])]
    for link in range(links):
        parent = Parent(str(link), 1)
        episodes.append(chain("t", str(link + 1), ["s", "s"], rewards=[0, link % 2], parent=parent))
    return episodes


DEGENERATE: dict[str, list[Episode]] = {
    "one episode, one turn": [chain("t", "A", ["s"], rewards=[1], success=True)],
    "one episode a task": [chain(f"t{i}", f"{i}", ["s", "u"], rewards=[0, i]) for i in range(3)],
    "all equal": [chain("t", f"{i}", ["s", "u", "s"], rewards=[0.1, 0.2, 0.3]) for i in range(8)],
    "zero nll": [chain("t", f"{i}", ["s", "u"], rewards=[0, i], nll=[0, 0]) for i in range(3)],
    "self-loop": [chain("t", "A", ["s"] * 5, end="s", rewards=[0, 0, 0, 0, 1]), chain("t", "B", ["s"], end="s")],
    "two-cycle": [chain("t", f"{i}", ["s", "u"] * 4, end="s", rewards=[0] * 7 + [i]) for i in range(3)],
    "conflicting outcomes at one sink": [chain("t", f"{i}", ["s"], rewards=[i], success=bool(i)) for i in range(2)],
    "sink and interior": [
        chain("t", "A", ["s", "x"], end="y", rewards=[0, 1], success=True),
        chain("t", "B", ["s"], end="x"),
    ],
    "branch at turn 0": [
        chain("t", "A", ["s", "u"], rewards=[0, 1], success=True),
        chain("t", "B", ["s", "v"], parent=Parent("A", 0)),
    ],
    "branch of a branch": [
        chain("t", "C", ["v", "w"], rewards=[0, 2], parent=Parent("B", 1)),
        chain("t", "B", ["u", "v"], parent=Parent("A", 1)),
        chain("t", "A", ["s", "u"], rewards=[0, 1], success=True),
    ],
    "five thousand turns": [
        chain("t", f"{i}", [f"s{(7 * t + i) % 50}" for t in range(5000)], rewards=[0.0] * 4999 + [float(i)])
        for i in range(2)
    ],
    "deep chain of branches": long_branch_chain(1500),
}
