"""A generated catalogue: nothing to download, and few enough words for a tiny agent.

Each product is of one of twenty kinds. Products of a kind share its options and draw their attributes from the pool of
their department, so that a goal's product stands among others that miss an attribute, an option or the price.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from stepcredit.environments.shopping.products import Product
from stepcredit.environments.shopping.session import SEPARATOR

_BRANDS = ("Alvora", "Brenik", "Calden", "Dovrin", "Elmora", "Fenwick", "Harlow", "Iverna", "Jorvik", "Lunden")
_COLOURS = ("black", "blue", "green", "grey", "pink", "red", "white", "yellow")
_SIZES = ("small", "medium", "large", "jumbo")
_PRICES = range(6, 96)
"""Dollars."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of product: what it is called, and its options with the values that products choose theirs from."""

    query: str
    options: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Department:
    title: str
    attributes: tuple[str, ...]
    kinds: tuple[_Kind, ...]


def _worn(query: str) -> _Kind:
    return _Kind(query, {"color": _COLOURS, "size": _SIZES})


def _cared(query: str) -> _Kind:
    return _Kind(query, {"scent": ("lavender", "mint", "rose", "vanilla", "citrus"), "size": _SIZES})


def _eaten(query: str) -> _Kind:
    return _Kind(query, {"flavor": ("ginger", "honey", "lemon", "mango", "pepper"), "size": _SIZES})


def _plugged(query: str) -> _Kind:
    return _Kind(query, {"color": _COLOURS, "style": ("basic", "deluxe", "travel", "studio")})


def _placed(query: str) -> _Kind:
    return _Kind(query, {"color": _COLOURS, "size": _SIZES})


_DEPARTMENTS = {
    "fashion": _Department(
        "Clothing",
        (
            "machine washable",
            "slim fit",
            "water resistant",
            "quick drying",
            "stretch fabric",
            "soft lining",
            "deep pockets",
        ),
        tuple(_worn(query) for query in ("running shirts", "rain jackets", "hiking pants", "winter gloves")),
    ),
    "beauty": _Department(
        "Beauty",
        (
            "cruelty free",
            "sulfate free",
            "long lasting",
            "dry skin",
            "natural oils",
            "dermatologist tested",
            "travel size",
        ),
        tuple(_cared(query) for query in ("face creams", "hair conditioners", "body lotions", "hand soaps")),
    ),
    "grocery": _Department(
        "Food",
        ("gluten free", "low sugar", "high protein", "non gmo", "whole grain", "dairy free", "freshly roasted"),
        tuple(_eaten(query) for query in ("snack bars", "herbal teas", "mixed nuts", "rice crackers")),
    ),
    "electronics": _Department(
        "Electronics",
        (
            "fast charging",
            "noise cancelling",
            "hands free",
            "heavy duty",
            "easy setup",
            "wall mounted",
            "energy saving",
        ),
        tuple(_plugged(query) for query in ("desk lamps", "phone chargers", "bluetooth speakers", "usb microphones")),
    ),
    "garden": _Department(
        "Home",
        ("easy assembly", "solid wood", "stain resistant", "space saving", "hand made", "non slip", "memory foam"),
        tuple(_placed(query) for query in ("throw pillows", "storage baskets", "bath mats", "picture frames")),
    ),
}


def generate_products(count: int, seed: int) -> list[Product]:
    """Products number 0 to ``count`` − 1, the kinds taking turns.

    Args:
        count: how many, ≥ 0.
        seed: fixes every draw; the first products of a longer catalogue are those of a shorter one.
    """
    rng = random.Random(f"shopping catalogue {seed}")
    kinds = [(category, kind) for category, department in _DEPARTMENTS.items() for kind in department.kinds]
    return [_generate(number, *kinds[number % len(kinds)], number // len(kinds), rng) for number in range(count)]


def vocabulary(products: Iterable[Product]) -> tuple[str, ...]:
    """What reads as one word: identifiers, kinds, attributes, option values, prices, and the mark between texts."""
    names = {SEPARATOR.strip().lower()}
    names |= {department_attribute for one in _DEPARTMENTS.values() for department_attribute in one.attributes}
    names |= {kind.query for one in _DEPARTMENTS.values() for kind in one.kinds}
    for product in products:
        names.add(product.asin.lower())
        names.update(value for values in product.options.values() for value in values)
        names.update(f"${price}" for price in product.prices)
    return tuple(sorted(names))


def _generate(number: int, category: str, kind: _Kind, turn: int, rng: random.Random) -> Product:
    department = _DEPARTMENTS[category]
    sets = list(combinations(department.attributes, 3))
    attributes = rng.sample(sets[(7 * turn) % len(sets)], 3)
    wanted = attributes[:2]
    prices = sorted(float(price) for price in rng.sample(_PRICES, rng.choice((1, 1, 2))))
    brand = _BRANDS[turn % len(_BRANDS)]
    return Product(
        asin=f"G{number:09d}",
        name=f"{brand} {' '.join((*attributes[1:], kind.query)).title()}",
        description=f"{kind.query} by {brand}".capitalize() + ".",
        bullets=tuple(f"{attribute.capitalize()}." for attribute in attributes),
        options={name: tuple(sorted(rng.sample(values, 3), key=values.index)) for name, values in kind.options.items()},
        prices=tuple(prices),
        query=kind.query,
        category=category,
        categories=(department.title, kind.query.split()[-1].title(), kind.query.title()),
        attributes=tuple(attributes),
        instruction=f"Find me {', '.join(wanted)} {kind.query}",
        instruction_attributes=tuple(wanted),
    )
