"""The reward: its formula, every way to match, and the bounds of the kind factor."""

from __future__ import annotations

from typing import Any

import pytest

from shopping.entries import product
from stepcredit.environments.shopping.goals import Goal
from stepcredit.environments.shopping.nouns import light_nouns
from stepcredit.environments.shopping.products import Product
from stepcredit.environments.shopping.reward import PurchaseScore, score_purchase


def goal_of(*attributes: str, options: tuple[tuple[str, str], ...] = (), limit: float = 30.0) -> Goal:
    return Goal("A", "", "", attributes, options, limit)


def score(
    goal: Goal, bought: Product, *chosen: str, wanted: Product | None = None, price: float = 20.0
) -> PurchaseScore:
    return score_purchase(goal, wanted or product(), bought, price, chosen, light_nouns)


@pytest.mark.parametrize(
    ("attributes", "fields", "matched"),
    [
        (("soft", "warm"), {"attributes": ("soft",)}, 1),
        (("soft", "warm"), {"attributes": ("warm", "soft")}, 2),
        (("machine wash",), {"attributes": ("machine washed",)}, 1),  # ratio 92
        (("machine wash",), {"attributes": ("hand wash",)}, 0),
        (("easy",), {"attributes": ("easy clean",)}, 1),  # a part of the words
        (("long lasting",), {"name": "A Long Lasting Shoe"}, 1),
        (("long lasting",), {"bullets": ("It is Long", "lasting it is.")}, 1),  # bullets are joined
        (("long lasting",), {"description": "LONG LASTING"}, 1),
        (("Long Lasting",), {"description": "long lasting"}, 0),  # the wanted attribute is not lower-cased
        (("soft", "soft"), {"attributes": ("soft",)}, 2),
    ],
)
def test_attributes(attributes: tuple[str, ...], fields: dict[str, Any], matched: int):
    found = score(goal_of(*attributes), product(**fields))
    assert (found.attributes, found.wanted_attributes) == (matched, len(attributes))
    assert found.total == pytest.approx((matched + 1) / (len(attributes) + 1))


@pytest.mark.parametrize(
    ("wanted", "chosen", "matched"),
    [
        (("red", "10"), ("red", "10"), 2),
        (("red", "10"), ("10", "red"), 2),
        (("red", "10"), ("red",), 1),
        (("red", "10"), (), 0),
        (("dark blue",), ("light blue",), 1),  # both are blue
        (("dark blue",), ("red",), 0),
        (("cool powder snow",), ("powder snow",), 1),
        (("12 pack",), ("6 pack",), 0),
        (("xx-large",), ("x-small",), 0),
    ],
)
def test_options(wanted: tuple[str, ...], chosen: tuple[str, ...], matched: int):
    goal = goal_of("soft", options=tuple(("", value) for value in wanted))
    found = score(goal, product(attributes=("soft",)), *chosen)
    assert (found.options, found.wanted_options) == (matched, len(wanted))
    assert found.total == pytest.approx((matched + 2) / (len(wanted) + 2))


@pytest.mark.parametrize(("price", "kept"), [(30.0, True), (30.01, False), (0.0, True)])
def test_price(price: float, kept: bool):
    found = score(goal_of("soft"), product(attributes=("soft",)), price=price)
    assert found.price is kept
    assert found.total == (2 if kept else 1) / 2


ELSEWHERE = {"query": "mugs", "categories": ("Home", "Mugs")}


@pytest.mark.parametrize(
    ("wanted", "bought", "fields", "kind"),
    [
        ("Red Shoe", "Red Shoe", {}, 1.0),
        ("Red Shoe", "Red Shoe", ELSEWHERE, 1.0),
        ("Shoe A B C", "Shoe", ELSEWHERE, 1.0),  # 1 of 4 nouns
        ("Shoe A B C D", "Shoe", ELSEWHERE, 1.0),  # a function word does not count
        ("Shoe Bag Cup Dog Ear", "Shoe", ELSEWHERE, 0.5),  # .2 is not more than .2
        ("Shoe Bag Cup Dog Ear", "Shoe", {}, 1.0),
        ("Shoe Bag Cup Dog Ear Fan Gem Hat Ink Jar", "Shoe", ELSEWHERE, 0.5),  # .1 is not below .1
        ("Shoe Bag Cup Dog Ear Fan Gem Hat Ink Jar Key", "Shoe", ELSEWHERE, 0.1),
        ("Shoe Bag Cup Dog Ear Fan Gem Hat Ink Jar Key", "Shoe", {}, 0.1),
        ("Shoe", "Mug", {}, 0.0),
        ("Shoe", "Mug", ELSEWHERE, 0.0),
        ("for the", "Mug", ELSEWHERE, 0.5),  # no nouns: .2
        ("for the", "Mug", {"query": "mugs", "categories": ("Clothing", "Shoes")}, 1.0),
        ("Shoe Bag Cup Dog Ear", "Shoe", {"query": "mugs", "categories": ("Running", "x", "Clothing")}, 1.0),
        ("Shoe Bag Cup Dog Ear", "Shoe", {"query": "mugs", "categories": ("Clothing", "Clothing")}, 0.5),
        ("Shoe Shoe Shoe Shoe Shoe", "Shoe", ELSEWHERE, 0.5),  # repetitions count in the wanted name only
    ],
)
def test_kind(wanted: str, bought: str, fields: dict[str, Any], kind: float):
    found = score(goal_of("soft"), product(name=bought, attributes=("soft",), **fields), wanted=product(name=wanted))
    assert found.kind == kind
    assert found.total == kind


def test_the_factor_multiplies_the_share():
    found = score(
        goal_of("soft", "warm", options=(("color", "red"),), limit=10.0),
        product(name="Shoe", attributes=("soft",), **ELSEWHERE),
        "red",
        wanted=product(name="Shoe Bag Cup Dog Ear"),
    )
    assert found.total == 0.5 * (2 / 4)
    assert found.components() == {
        "kind": 0.5,
        "attributes": 0.5,
        "options": 1.0,
        "price": 0.0,
        "same_query": 0.0,
        "same_category": 0.0,
        "shared_nouns": 0.2,
    }


def test_nothing_wanted_counts_as_matched():
    assert score(goal_of(), product()).components()["attributes"] == 1.0
    assert score(goal_of(), product()).total == 1.0


@pytest.mark.parametrize("count", range(1, 40))
def test_a_full_match_is_exactly_one(count: int):
    attributes = tuple(f"attribute{number}" for number in range(count))
    assert score(goal_of(*attributes), product(attributes=attributes)).total == 1.0
