"""One customer's visit: pages, what can be clicked on them, and where a click leads.

Five kinds of pages: the search page, a page of results, a product, one of its details (description, features, reviews),
and the receipt. A page is the list of its visible texts, as WebShop's text mode gives them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from stepcredit.environments.shopping.goals import Goal
from stepcredit.environments.shopping.products import Product
from stepcredit.environments.shopping.reward import PurchaseScore
from stepcredit.environments.shopping.shop import Shop

SEPARATOR = " [SEP] "
PAGE_SIZE = 10
"""Products on a page of results."""

BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
DETAILS = ("Description", "Features", "Reviews")
_DETAIL_OF = {name.lower(): name for name in DETAILS}
_PRODUCT_BUTTONS = (BACK, PREVIOUS, *DETAILS, BUY)
_BACK, _PREVIOUS, _NEXT, _BUY = (text.lower() for text in (BACK, PREVIOUS, NEXT, BUY))
_PRODUCT_BUTTON_TEXTS = frozenset(text.lower() for text in _PRODUCT_BUTTONS)

PageKind = Literal["search", "results", "product", "detail", "receipt"]


@dataclass(frozen=True, slots=True)
class Visit:
    """Where a customer is. Immutable: a snapshot is the visit itself.

    Attributes:
        page: kind of page.
        keywords: of the last search, in lower case.
        number: page of the results, from 1.
        product: number of the product looked at; -1 for none.
        options: chosen (option name, value) pairs, in the order in which names were first chosen.
        detail: which detail is shown, one of ``DETAILS``; empty elsewhere.
    """

    page: PageKind = "search"
    keywords: str = ""
    number: int = 1
    product: int = -1
    options: tuple[tuple[str, str], ...] = ()
    detail: str = ""


START = Visit()


class Session:
    """A visit in progress.

    Args:
        shop: where.
        goal: what the customer wants; decides only what a purchase is worth.

    Attributes:
        visit: where the customer is.
        clickables: what can be clicked, in lower case: buttons in their order, then products or option values.
        score: what was bought is worth; None before the purchase.
    """

    def __init__(self, shop: Shop, goal: Goal) -> None:
        self.shop = shop
        self.goal = goal
        self.go(START)

    def go(self, visit: Visit) -> None:
        """Be somewhere."""
        self.visit = visit
        self.clickables = tuple(dict.fromkeys(text.lower() for text in self._clickable_texts()))
        self.score: PurchaseScore | None = None
        if visit.page == "receipt":
            self.score = self.shop.score(self.goal, visit.product, [value for _, value in visit.options])

    def act(self, command: str) -> bool:
        """Execute ``search[words]`` or ``click[text]``; whether it did anything.

        A search works on every page but the receipt. What is clicked is compared in lower case.
        """
        name, argument = parse_command(command, self.clickables)
        if name == "search" and self.visit.page != "receipt":
            self.go(Visit("results", keywords=argument))
        elif name == "click" and argument in self.clickables:
            self.go(self._follow(argument))
        else:
            return False
        return True

    @property
    def product(self) -> Product:
        """The product looked at."""
        return self.shop.products[self.visit.product]

    def found(self) -> tuple[int, ...]:
        """Numbers of the products on the present page of results."""
        first = (self.visit.number - 1) * PAGE_SIZE
        return self.shop.search(self.visit.keywords)[first : first + PAGE_SIZE]

    def texts(self) -> list[str]:
        """The visible texts of the page below the goal; on the receipt, which shows no goal, all of them."""
        match self.visit.page:
            case "search":
                return ["Search"]
            case "results":
                total = len(self.shop.search(self.visit.keywords))
                texts = [BACK, f"Page {self.visit.number} (Total results: {total})"]
                texts += [PREVIOUS, NEXT] if self.visit.number > 1 else [NEXT]
                for number in self.found():
                    product = self.shop.products[number]
                    texts += [product.asin, product.name, product.price_tag]
            case "product":
                texts = [BACK, PREVIOUS]
                for name, values in self.product.options.items():
                    texts += [name, *values]
                price = f"Price: {self.product.price_tag}"
                texts += [self.product.name, price, "Rating: N.A.", *DETAILS, BUY]
            case "detail":
                texts = [BACK, PREVIOUS, *self._detail_texts()]
            case "receipt":
                texts = self._receipt_texts()
        # As in the page's HTML: nothing is no text, and white space is an empty text unless it breaks the line.
        return [text.strip() for text in texts if text and ("\n" not in text or text.strip())]

    def page_text(self) -> str:
        """The whole page, as WebShop's text mode shows it."""
        head = ["WebShop"] if self.visit.page == "search" else []
        if self.visit.page != "receipt":
            head += ["Instruction:", self.goal.text]
        return SEPARATOR.join((*head, *self.texts()))

    def agent_text(self) -> str:
        """The page as agents see it: what stands below the goal, each text in quotation marks; the receipt as it is."""
        if self.visit.page == "receipt":
            return self.page_text()
        return SEPARATOR.join(f"'{text}'" for text in self.texts())

    def _clickable_texts(self) -> list[str]:
        match self.visit.page:
            case "results":
                buttons = [BACK, PREVIOUS, NEXT] if self.visit.number > 1 else [BACK, NEXT]
                return [*buttons, *(self.shop.products[number].asin for number in self.found())]
            case "product":
                return [*_PRODUCT_BUTTONS, *chain.from_iterable(self.product.options.values())]
            case "detail":
                return [BACK, PREVIOUS]
        return []

    def _follow(self, clicked: str) -> Visit:
        """Where a click on one of the clickables leads."""
        visit = self.visit
        if clicked == _BACK:
            return START
        if visit.page == "detail":
            return replace(visit, page="product", detail="")
        if visit.page == "results":
            if clicked in (_PREVIOUS, _NEXT):
                return replace(visit, number=visit.number + (1 if clicked == _NEXT else -1))
            numbers = {self.shop.products[number].asin.lower(): number for number in self.found()}
            return replace(visit, page="product", product=numbers[clicked])
        if clicked == _PREVIOUS:
            return Visit("results", keywords=visit.keywords, number=visit.number)
        if clicked == _BUY:
            return replace(visit, page="receipt")
        if clicked in _DETAIL_OF:
            return replace(visit, page="detail", detail=_DETAIL_OF[clicked])
        return self._choose(clicked)

    def _choose(self, value: str) -> Visit:
        """The visit after choosing an option value."""
        options = {**dict(self.visit.options), self.product.option_of(value): value}
        return replace(self.visit, options=tuple(options.items()))

    def _detail_texts(self) -> list[str]:
        match self.visit.detail:
            case "Description":
                return [self.product.description]
            case "Features":
                return [f" {bullet}" for bullet in self.product.bullets]
        return []

    def _receipt_texts(self) -> list[str]:
        """The receipt. The simulated shop leaves most of it blank, in this order and with its spelling."""
        options = json.dumps(dict(self.visit.options), sort_keys=True)
        for character in "<>&'":
            options = options.replace(character, f"\\u{ord(character):04x}")
        score = self.score
        blank = ["attrs", "None", "category", "None", "query", "None", "product category", "None"]
        target = ["asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query"]
        return [
            *("Thank you for shopping with us!", "Your code:", "None", "(Paste it in your MTurk interface.)"),
            *("Purchased", "asin", self.product.asin, "options", options, *blank),
            *("Target", *target, "Goal", "None"),
            *("Reward", "Your score (min 0.0, max 1.0)", str(score.total if score else 0.0), "Reward Details", "None"),
        ]


def is_choosable(value: str) -> bool:
    """Whether a click can choose an option value: it is no button's text and not empty."""
    return bool(value) and value not in _PRODUCT_BUTTON_TEXTS


def parse_command(command: str, clickables: Sequence[str] = ()) -> tuple[str, str]:
    """A command's name and its argument in lower case; ("", "") for anything else.

    As in WebShop the name ends at the last "[" that a "]" follows, the argument at the last "]" of the line, and what
    comes after is ignored. Beyond WebShop, a text with brackets of its own can be searched for and clicked.
    """
    line = command.split("\n", 1)[0]
    end = line.rfind("]")
    start = line.rfind("[", 0, max(end - 1, 0))
    if start > 0:
        name, argument = line[:start], line[start + 1 : end].lower()
        if name in ("search", "click"):
            return name, argument
    name, opened, rest = command.partition("[")
    if not opened or not rest.endswith("]"):
        return "", ""
    argument = rest[:-1].lower()
    if (name == "click" and argument in clickables) or (name == "search" and "]" not in argument and argument):
        return name, argument
    return "", ""
