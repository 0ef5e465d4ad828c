"""An expert that knows which product the goal was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from stepcredit.environments.shopping.environment import ShoppingEnvironment, search_command
from stepcredit.environments.shopping.goals import Goal
from stepcredit.environments.shopping.products import Product
from stepcredit.environments.shopping.reward import option_matches
from stepcredit.environments.shopping.session import (
    BACK,
    BUY,
    NEXT,
    PAGE_SIZE,
    PREVIOUS,
    is_choosable,
    parse_command,
)
from stepcredit.environments.shopping.shop import Shop


@dataclass(frozen=True, slots=True)
class Purchase:
    """What to buy.

    Attributes:
        product: its number.
        options: option name → value to choose.
    """

    product: int
    options: dict[str, str]


class ShoppingExpert:
    """Searches so that the product stands early in the results, opens it, chooses the options, buys.

    It buys only what is worth exactly 1: the product the goal was made from, or else another of the same query. It
    gives up where there is none, or where no search it may use finds it.
    """

    def __init__(self, environment: ShoppingEnvironment) -> None:
        self._session = environment.session
        shop, goal = self._session.shop, environment.goal
        self._purchase = next(_worthwhile_purchases(shop, goal), None)
        self._search: str | None = None
        if self._purchase is not None:
            wanted = shop.products[self._purchase.product]
            own = (goal.text, goal.request, wanted.name, f"<q> {wanted.query}")
            searches = environment.suggestions or [search_command(text) for text in own]
            self._search = _best_search(shop, searches, self._purchase.product)

    def act(self) -> str | None:
        """The next command; None after the purchase, or where no way is known."""
        visit, purchase = self._session.visit, self._purchase
        if visit.page == "receipt" or purchase is None or self._search is None:
            return None
        if visit.page == "search":
            return self._search
        if visit.page == "results":
            clicked = self._toward(purchase.product)
        elif visit.page == "detail" or visit.product != purchase.product:
            clicked = PREVIOUS
        else:
            chosen = dict(visit.options)
            missing = (value for name, value in purchase.options.items() if chosen.get(name) != value)
            clicked = next(missing, BUY)
        return f"click[{clicked.lower()}]"

    def _toward(self, product: int) -> str:
        """From a page of results: the product where it is listed, else the way to its page or to a new search."""
        visit, shop = self._session.visit, self._session.shop
        page = _page_of(product, shop.search(visit.keywords))
        if page is None:
            return BACK
        if page == visit.number:
            return shop.products[product].asin
        return NEXT if page > visit.number else PREVIOUS


def _worthwhile_purchases(shop: Shop, goal: Goal) -> Iterator[Purchase]:
    """Purchases worth exactly 1, that of the goal's own product first."""
    own = shop.number(goal.asin)
    same_query = shop.search(f"<q> {shop.products[own].query}")
    for number in dict.fromkeys((own, *same_query)):
        options = _choose(shop.products[number], goal)
        if shop.score(goal, number, options.values()).total == 1.0:
            yield Purchase(number, options)


def _choose(product: Product, goal: Goal) -> dict[str, str]:
    """Option values that match the goal's, where there are such: option name → value."""
    chosen: dict[str, str] = {}
    values = [value for value in chain.from_iterable(product.options.values()) if is_choosable(value)]
    for _, wanted in goal.options:
        matching = [value for value in values if option_matches(wanted, value)]
        if matching:
            value = wanted if wanted in matching else matching[0]
            chosen[product.option_of(value)] = value
    return chosen


def _best_search(shop: Shop, searches: Iterable[str], product: int) -> str | None:
    """The search that lists the product on the earliest page; None where none does."""
    pages = {search: _page_of(product, shop.search(parse_command(search)[1])) for search in dict.fromkeys(searches)}
    found = {search: page for search, page in pages.items() if page is not None}
    return min(found, key=found.__getitem__, default=None)


def _page_of(product: int, found: Sequence[int]) -> int | None:
    return found.index(product) // PAGE_SIZE + 1 if product in found else None
