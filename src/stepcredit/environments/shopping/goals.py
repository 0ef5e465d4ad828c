"""What a customer wants: goals from synthetic and from human-written instructions, and their order.

One generator, seeded once, draws in this order: the price of every product sold between two prices, then for every
product (or human instruction) the price limit. Limits are multiples of ten dollars: of the next four above the price
two are drawn and the larger counts. The order of all goals is a shuffle with the same seed. This is what WebShop's own
code does after ``random.seed(seed)``, so a run of it with a known seed can be reproduced.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from stepcredit.environments.shopping.products import HumanInstruction, Product

GOAL_SEED = 233
"""Seed of the official order of goals."""
NO_LIMIT = 1_000_000.0
"""Price limit of a goal that names none, dollars."""

_LIMITS = tuple(10.0 * tens for tens in range(1, 100))
_LIMITS_DRAWN_FROM = 4


@dataclass(frozen=True, slots=True)
class Goal:
    """A product to buy.

    Attributes:
        asin: the product the goal was made from; others may fulfil it as well.
        request: what is wanted, without options and price limit.
        text: the whole sentence.
        attributes: wanted attributes.
        options: wanted (option name, value) pairs; the name is empty where an annotator gave the value alone.
        price_limit: the price must not exceed it, dollars.
    """

    asin: str
    request: str
    text: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    price_limit: float


class SyntheticGoals(Sequence[Goal]):
    """One goal per combination of the option values of every product with an instruction, built when asked for.

    Args:
        products: the catalogue.
        prices: what each product costs, dollars.
        rng: draws a price limit for each product with an instruction.
    """

    def __init__(self, products: Sequence[Product], prices: Sequence[float], rng: random.Random) -> None:
        self._products = products
        self._limits: dict[int, float] = {}
        self._product = array("l")
        self._combination = array("l")
        for number, (product, price) in enumerate(zip(products, prices, strict=True)):
            if product.instruction is not None and product.instruction_attributes:
                self._limits[number] = draw_limit(price, rng)
                combinations = math.prod(len(values) for values in product.options.values())
                self._product.extend([number] * combinations)
                self._combination.extend(range(combinations))

    def __len__(self) -> int:
        return len(self._product)

    @overload
    def __getitem__(self, index: int) -> Goal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Goal]: ...
    def __getitem__(self, index: int | slice) -> Goal | list[Goal]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        product = self._products[self._product[index]]
        options = _combination(product.options, self._combination[index])
        wanted = ", and ".join(f"{name}: {value}" for name, value in options)
        limit = self._limits[self._product[index]]
        request = product.instruction or ""
        return Goal(
            asin=product.asin,
            request=request,
            text=f"{request}{' with ' if wanted else ''}{wanted}{_limit_text(limit)}".strip(),
            attributes=product.instruction_attributes,
            options=options,
            price_limit=limit,
        )


def human_goals(instructions: Sequence[HumanInstruction], limits: Sequence[float]) -> list[Goal]:
    """One goal per human-written instruction.

    Args:
        instructions: of the catalogue's products.
        limits: price limit of every instruction.
    """
    goals = []
    for instruction, limit in zip(instructions, limits, strict=True):
        request = instruction.text.strip(".")
        goals.append(
            Goal(
                asin=instruction.asin,
                request=request,
                text=f"{request}{_limit_text(limit)}".strip(),
                attributes=instruction.attributes,
                options=tuple(("", value) for value in instruction.options),
                price_limit=limit,
            )
        )
    return goals


def draw_prices(products: Sequence[Product], rng: random.Random) -> list[float]:
    """What each product costs: its price, or a price between its two, dollars."""
    return [product.prices[0] if len(product.prices) == 1 else rng.uniform(*product.prices[:2]) for product in products]


def draw_limit(price: float, rng: random.Random) -> float:
    """A price limit above a price; ``NO_LIMIT`` where fewer than two multiples of ten below 1,000 are left."""
    above = [limit for limit in _LIMITS if limit > price][:_LIMITS_DRAWN_FROM]
    return max(rng.sample(above, 2)) if len(above) > 1 else NO_LIMIT


def goal_order(count: int, seed: int) -> list[int]:
    """The official order of ``count`` goals, as their numbers before the shuffle."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def _combination(options: Mapping[str, tuple[str, ...]], number: int) -> tuple[tuple[str, str], ...]:
    """The number-th combination of one value per option, option names sorted, the last name's value changing first."""
    chosen = []
    for name in sorted(options, reverse=True):
        number, position = divmod(number, len(options[name]))
        chosen.append((name, options[name][position]))
    return tuple(reversed(chosen))


def _limit_text(limit: float) -> str:
    return "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
