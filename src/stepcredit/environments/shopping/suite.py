"""The shop as a suite of tasks."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, overload

from pydantic import Field

from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.environments.protocol import Environment, Task
from stepcredit.environments.shopping.environment import (
    RewardKind,
    ShoppingEnvironment,
    suggested_searches,
)
from stepcredit.environments.shopping.expert import ShoppingExpert
from stepcredit.environments.shopping.generated import generate_products, vocabulary
from stepcredit.environments.shopping.goals import (
    GOAL_SEED,
    Goal,
    SyntheticGoals,
    draw_limit,
    draw_prices,
    goal_order,
    human_goals,
)
from stepcredit.environments.shopping.nouns import NounTagger, noun_tagger
from stepcredit.environments.shopping.products import load_human_instructions, load_products
from stepcredit.environments.shopping.shop import Shop

TEST_GOALS, EVAL_GOALS = 500, 1_000
SMALL_CATALOGUE, SMALL_EVAL = 1_000, 10
"""Products of the official small catalogue, whose training goals begin right after the test goals; one in so many of
them, the last, are ``eval`` here, which is not among the published splits."""
GENERATED_PRODUCTS = 300
_TASK_PREFIX = "goal/"


class ShoppingSuite:
    """Shopping tasks, one per goal. With the official order, goals 0–499 are ``test``, 500–1,499 ``eval``, the rest
    ``train``. A small catalogue, of at most 1,000 products, trains from goal 500, and its last tenth is ``eval``.

    Args:
        items: the official file of products (``items_shuffle*.json``); without it a catalogue is generated.
        instructions: the official file of attributes and synthetic instructions; by default the one beside ``items``
            with the matching name.
        human: the official file of human-written instructions, likewise.
        goals: which instructions become goals.
        products: read or generate this many products.
        searches: what the search page lists beside ``search[<words>]``, which stands for any words: ``free``: nothing;
            ``suggested``: two searches taken from the goal, for agents that choose among listed commands. By default
            ``suggested`` for a generated catalogue.
        reward: ``success``: 1 for a purchase that fulfils the goal exactly; ``score``: what the purchase is worth.
        nouns: noun tagger of the reward; by default spaCy's where it is installed.
        seed: of drawn prices, price limits and the order of goals.

    Raises:
        OptionError: options that do not fit each other.
        InputError: a file cannot be read or lacks the official form.
        MissingExtraError: spaCy is asked for and not installed.
    """

    name = "shopping"
    horizon = 15

    def __init__(
        self,
        *,
        items: Annotated[str | None, "official file of products; generated without it"] = None,
        instructions: Annotated[str | None, "official file of attributes; by default beside items"] = None,
        human: Annotated[str | None, "official file of human instructions; by default beside items"] = None,
        goals: Annotated[Literal["synthetic", "human"], "which instructions become goals"] = "synthetic",
        products: Annotated[int | None, Field(ge=1), "read or generate this many products"] = None,
        searches: Annotated[Literal["free", "suggested"] | None, "what the search page lists"] = None,
        reward: Annotated[RewardKind, "1 for success only, or the score"] = "success",
        nouns: Annotated[NounTagger | None, "noun tagger of the reward; by default spaCy's if installed"] = None,
        seed: Annotated[int, "of prices, price limits and the order of goals"] = GOAL_SEED,
    ) -> None:
        rng = random.Random(seed)
        self.warnings: list[str] = []
        self._generated = items is None
        if items is None:
            if instructions is not None or human is not None or goals == "human":
                raise OptionError(
                    "Instruction files and human goals belong to an official catalogue; set items as well."
                )
            catalogue = generate_products(GENERATED_PRODUCTS if products is None else products, seed)
        else:
            notes = Path(instructions) if instructions is not None else _beside(Path(items), "instructions")
            catalogue = load_products(Path(items), notes, count=products)
        prices = draw_prices(catalogue, rng)
        self._shop = Shop(catalogue, prices, noun_tagger(nouns), seed)
        self._goals: Sequence[Goal]
        if items is not None and goals == "human":
            asked = load_human_instructions(
                Path(human) if human is not None else _beside(Path(items), "human"), catalogue
            )
            limits = [draw_limit(prices[self._shop.number(instruction.asin)], rng) for instruction in asked]
            self._goals = human_goals(asked, limits)
        else:
            self._goals = SyntheticGoals(catalogue, prices, rng)
        self._order = goal_order(len(self._goals), seed)
        self._suggests = (searches or ("suggested" if self._generated else "free")) == "suggested"
        self._reward: RewardKind = reward
        self._ranges = _split_goals(len(self._goals), small=len(catalogue) <= SMALL_CATALOGUE)

    @property
    def shop(self) -> Shop:
        """The shop all tasks are played in."""
        return self._shop

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        return tuple(self._ranges)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split in the official order, each built when it is asked for.

        Raises:
            OptionError: no such split.
        """
        if split not in self._ranges:
            raise unknown_name("split", split, self._ranges)
        return _Tasks(self, self._ranges[split])

    def find(self, identifier: str) -> Task:
        """The task of an identifier.

        Raises:
            OptionError: no such task.
        """
        return self.task(self._position(identifier))

    def task(self, position: int) -> Task:
        """The task at a position of the official order."""
        goal = self._goal(position)
        family = self._shop.products[self._shop.number(goal.asin)].category
        return Task(f"{_TASK_PREFIX}{position}", family or "other", goal.text)

    def make(self, task: Task) -> ShoppingEnvironment:
        """A fresh environment for a task of this suite."""
        goal = self._goal(self._position(task.id))
        suggestions = suggested_searches(goal) if self._suggests else []
        return ShoppingEnvironment(task, self._shop, goal, suggestions=suggestions, reward=self._reward)

    def expert(self, environment: Environment) -> ShoppingExpert:
        """An expert that plays the given environment from its present state.

        Raises:
            OptionError: the environment is of another suite.
        """
        if not isinstance(environment, ShoppingEnvironment):
            raise OptionError(f"The shopping expert cannot play a {type(environment).__name__}.")
        return ShoppingExpert(environment)

    def entities(self) -> tuple[str, ...]:
        """Identifiers, kinds, attributes, option values and prices of a generated catalogue; else empty."""
        return vocabulary(self._shop.products) if self._generated else ()

    def _goal(self, position: int) -> Goal:
        return self._goals[self._order[position]]

    def _position(self, identifier: str) -> int:
        match = re.fullmatch(rf"{_TASK_PREFIX}(\d{{1,9}})", identifier, re.ASCII)
        if match is None or int(match[1]) >= len(self._order):
            last = len(self._order) - 1
            raise OptionError(f"Unknown task {identifier!r}; expected {_TASK_PREFIX}0 to {_TASK_PREFIX}{last}.")
        return int(match[1])


class _Tasks(Sequence[Task]):
    """The tasks at a range of positions of the official order."""

    def __init__(self, suite: ShoppingSuite, positions: range) -> None:
        self._suite = suite
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self._suite.task(position) for position in self._positions[index]]
        return self._suite.task(self._positions[index])


def _split_goals(count: int, *, small: bool) -> dict[str, range]:
    """Positions of the official order that belong to each split, training first.

    Few goals are shared out: at most half of them test, at most half of the rest evaluate.
    """
    test = min(TEST_GOALS, count // 2)
    if small:
        held_out = count - (count - test) // SMALL_EVAL
        return {"train": range(test, held_out), "eval": range(held_out, count), "test": range(test)}
    start = test + min(EVAL_GOALS, (count - test) // 2)
    return {"train": range(start, count), "eval": range(test, start), "test": range(test)}


def _beside(items: Path, kind: Literal["instructions", "human"]) -> Path:
    """The official file that belongs to a file of products, in the same folder and packed likewise."""
    if kind == "human":
        return items.with_name("items_human_ins.json" + (".gz" if items.suffix == ".gz" else ""))
    official = "items_shuffle" in items.name
    return items.with_name(
        items.name.replace("items_shuffle", "items_ins_v2") if official else items.name.replace("items", "items_ins")
    )
