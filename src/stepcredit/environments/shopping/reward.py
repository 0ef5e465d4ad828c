"""What a purchase is worth.

    r = r_kind · (matched attributes + matched options + [price ≤ limit]) / (|attributes| + |options| + 1)

An attribute is matched when an attribute of the bought product is similar to it (``matching.similar``), or when it
occurs in the product's name, bullets or description. An option is matched when a chosen value is similar to it. Colours
are compared by their colour word.

r_kind says whether it is the wanted kind of product: 1 where the queries are the same, or two parts of the category
paths are shared, or more than .2 of the wanted name's nouns occur in the bought one's; otherwise .5. In any case it is
.1 where that share of nouns is below .1, and 0 where it is 0.

A purchase succeeds when r is exactly 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepcredit.environments.shopping.goals import Goal
from stepcredit.environments.shopping.matching import colour_or_text, similar
from stepcredit.environments.shopping.nouns import Nouns
from stepcredit.environments.shopping.products import Product

_SHARE_WITHOUT_NOUNS = 0.2


@dataclass(frozen=True, slots=True)
class PurchaseScore:
    """The reward of a purchase and its parts.

    Attributes:
        kind: r_kind.
        attributes, wanted_attributes: matched and wanted, counts.
        options, wanted_options: likewise.
        price: whether the price keeps to the limit.
        same_query, same_category: the two other ways to be of the wanted kind.
        shared_nouns: share of the wanted name's nouns, in [0, 1].
    """

    kind: float
    attributes: int
    wanted_attributes: int
    options: int
    wanted_options: int
    price: bool
    same_query: bool
    same_category: bool
    shared_nouns: float

    @property
    def total(self) -> float:
        """r, in [0, 1]."""
        matched = self.attributes + self.options + self.price
        return self.kind * (matched / (self.wanted_attributes + self.wanted_options + 1))

    def components(self) -> dict[str, float]:
        """The parts as numbers; the matched shares of attributes and options are 1 where none is wanted."""
        return {
            "kind": self.kind,
            "attributes": self.attributes / self.wanted_attributes if self.wanted_attributes else 1.0,
            "options": self.options / self.wanted_options if self.wanted_options else 1.0,
            "price": float(self.price),
            "same_query": float(self.same_query),
            "same_category": float(self.same_category),
            "shared_nouns": self.shared_nouns,
        }


def score_purchase(
    goal: Goal, wanted: Product, bought: Product, price: float, chosen: Iterable[str], nouns: Nouns
) -> PurchaseScore:
    """Score a purchase.

    Args:
        goal: what was asked for.
        wanted: the product the goal was made from.
        bought: the product bought.
        price: what it costs, dollars.
        chosen: values of the options chosen.
        nouns: noun tagger.
    """
    same_query = bought.query == wanted.query
    same_category = len(set(bought.categories) & set(wanted.categories)) >= 2
    share = _shared_nouns(nouns(wanted.name), nouns(bought.name))
    kind = 1.0 if same_query or same_category or share > 0.2 else 0.5
    if share < 0.1:
        kind = 0.1 if share else 0.0
    values = tuple(chosen)
    return PurchaseScore(
        kind=kind,
        attributes=sum(_has_attribute(bought, attribute) for attribute in goal.attributes),
        wanted_attributes=len(goal.attributes),
        options=sum(any(option_matches(value, one) for one in values) for _, value in goal.options),
        wanted_options=len(goal.options),
        price=price <= goal.price_limit,
        same_query=same_query,
        same_category=same_category,
        shared_nouns=share,
    )


def option_matches(wanted: str, chosen: str) -> bool:
    """Whether choosing a value matches a wanted value."""
    return similar(colour_or_text(chosen), colour_or_text(wanted))


def _has_attribute(product: Product, attribute: str) -> bool:
    if any(similar(own, attribute) for own in product.attributes):
        return True
    texts = (product.name, " ".join(product.bullets), product.description)
    return any(attribute in text.lower() for text in texts)


def _shared_nouns(wanted: tuple[str, ...], bought: tuple[str, ...]) -> float:
    """Distinct nouns in common, by the number of wanted nouns; .2 where there are none."""
    return len(set(wanted) & set(bought)) / len(wanted) if wanted else _SHARE_WITHOUT_NOUNS
