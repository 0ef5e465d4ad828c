"""The shop: products, what they cost, and how they are found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache

from stepcredit.environments.retrieval.analysis import english_terms
from stepcredit.environments.retrieval.bm25 import Bm25Index
from stepcredit.environments.shopping.goals import Goal
from stepcredit.environments.shopping.nouns import Nouns
from stepcredit.environments.shopping.products import Product
from stepcredit.environments.shopping.reward import PurchaseScore, score_purchase

RESULTS = 50
"""Products that an ordinary search finds at most."""
_REMEMBERED_SEARCHES = 2048


class Shop:
    """Products by number, the search engine and the scoring of purchases. Immutable, shared by all sessions.

    Args:
        products: the catalogue; identifiers are distinct.
        prices: what each product costs, dollars.
        nouns: noun tagger of the reward.
        seed: of random searches.
    """

    def __init__(self, products: Sequence[Product], prices: Sequence[float], nouns: Nouns, seed: int) -> None:
        self.products = products
        self._prices = prices
        self._nouns = nouns
        self._seed = seed
        self._number = {product.asin: number for number, product in enumerate(products)}
        self.search = lru_cache(maxsize=_REMEMBERED_SEARCHES)(self._search)

    def number(self, asin: str) -> int:
        """The number of the product with that identifier."""
        return self._number[asin]

    def score(self, goal: Goal, number: int, chosen: Iterable[str]) -> PurchaseScore:
        """What buying a product with the chosen option values is worth for a goal."""
        wanted = self.products[self._number[goal.asin]]
        return score_purchase(goal, wanted, self.products[number], self._prices[number], chosen, self._nouns)

    def _search(self, keywords: str) -> tuple[int, ...]:
        """Numbers of the products found, best first; lower-case keywords.

        The first word may ask for something else than the search engine: ``<r>`` for ``RESULTS`` products at random
        (the same ones for the same keywords), ``<a>``, ``<c>`` and ``<q>`` for all products with the attribute, the
        category (one word) or the query that follows.
        """
        special, *rest = keywords.split(" ")
        text = " ".join(rest).strip()
        match special:
            case "<r>":
                count = min(RESULTS, len(self.products))
                return tuple(random.Random(f"{self._seed} {keywords}").sample(range(len(self.products)), count))
            case "<a>":
                return self._by_attribute.get(text, ())
            case "<c>":
                return self._by_category.get(rest[0] if rest else "", ())
            case "<q>":
                return self._by_query.get(text, ())
        return tuple(number for number, _ in self.index.search(keywords, RESULTS))

    @cached_property
    def index(self) -> Bm25Index:
        """The search engine, built when first asked for; equal scores rank by identifier."""
        return Bm25Index.build(
            (product.search_text for product in self.products),
            english_terms,
            names=[product.asin for product in self.products],
        )

    @cached_property
    def _by_attribute(self) -> dict[str, tuple[int, ...]]:
        return self._group(lambda product: product.attributes)

    @cached_property
    def _by_category(self) -> dict[str, tuple[int, ...]]:
        return self._group(lambda product: (product.category,))

    @cached_property
    def _by_query(self) -> dict[str, tuple[int, ...]]:
        return self._group(lambda product: (product.query,))

    def _group(self, keys: Callable[[Product], Iterable[str]]) -> dict[str, tuple[int, ...]]:
        groups: dict[str, list[int]] = {}
        for number, product in enumerate(self.products):
            for key in dict.fromkeys(keys(product)):
                groups.setdefault(key, []).append(number)
        return {key: tuple(numbers) for key, numbers in groups.items()}
