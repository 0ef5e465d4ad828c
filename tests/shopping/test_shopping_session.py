"""Pages, clicks and commands: every kind of page word for word, and the whole page flow."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shopping.entries import product
from stepcredit.environments.shopping.goals import Goal
from stepcredit.environments.shopping.nouns import light_nouns
from stepcredit.environments.shopping.products import Product
from stepcredit.environments.shopping.session import START, Session, parse_command
from stepcredit.environments.shopping.shop import RESULTS, Shop

GOAL = Goal("B01", "Find me red shoes", "Find me red shoes, and price lower than 30.00 dollars", ("red",), (), 30.0)
HEAD = f"Instruction: [SEP] {GOAL.text} [SEP] "
SHOE = product(
    "B01",
    " Red Shoe ",
    description="For\nrunners. ",
    bullets=("Fits well.", "", "\n", "Lasts. "),
    options={"color": ("red", "grey"), "size": ("one size", "10")},
    prices=(19.5, 25.0),
)


def make_session(products: list[Product], goal: Goal = GOAL) -> Session:
    prices = [one.prices[0] for one in products]
    return Session(Shop(products, prices, light_nouns, seed=233), goal)


@pytest.fixture
def session() -> Session:
    return make_session([product(f"A{number:02d}", "Blue Shoe") for number in range(24)] + [SHOE])


def page_after(session: Session, *commands: str) -> str:
    for command in commands:
        assert session.act(command), command
    return session.page_text()


def test_search_page(session: Session):
    assert session.page_text() == f"WebShop [SEP] {HEAD}Search"
    assert session.agent_text() == "'Search'"
    assert session.clickables == ()


def test_results_page(session: Session):
    first = " [SEP] ".join(f"A{number:02d} [SEP] Blue Shoe [SEP] $20.0" for number in range(10))
    text = f"{HEAD}Back to Search [SEP] Page 1 (Total results: 24) [SEP] Next > [SEP] {first}"
    assert page_after(session, "search[blue]") == text
    assert session.clickables == ("back to search", "next >", *(f"a{number:02d}" for number in range(10)))
    assert session.agent_text() == " [SEP] ".join(f"'{part}'" for part in text.removeprefix(HEAD).split(" [SEP] "))


def test_later_and_empty_results_pages(session: Session):
    head = f"{HEAD}Back to Search [SEP] Page 3 (Total results: 24) [SEP] < Prev [SEP] Next > [SEP] A20 [SEP] Blue Shoe"
    assert page_after(session, "search[blue]", "click[Next >]", "click[next >]").startswith(head)
    assert session.clickables == ("back to search", "< prev", "next >", "a20", "a21", "a22", "a23")
    empty = f"{HEAD}Back to Search [SEP] Page 4 (Total results: 24) [SEP] < Prev [SEP] Next >"
    assert page_after(session, "click[next >]") == empty
    assert page_after(session, "click[< prev]").startswith(head)
    assert page_after(session, "search[zebra]").endswith("Page 1 (Total results: 0) [SEP] Next >")


def test_product_page(session: Session):
    text = (
        f"{HEAD}Back to Search [SEP] < Prev [SEP] color [SEP] red [SEP] grey [SEP] size [SEP] one size [SEP] 10 [SEP] "
        "Red Shoe [SEP] Price: $19.5 to $25.0 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] "
        "Buy Now"
    )
    assert page_after(session, "search[red]", "click[b01]") == text
    buttons = ("back to search", "< prev", "description", "features", "reviews", "buy now")
    assert session.clickables == (*buttons, "red", "grey", "one size", "10")
    assert page_after(session, "click[red]") == text
    assert session.visit.options == (("color", "red"),)


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        ("description", " [SEP] For\nrunners."),
        ("features", " [SEP] Fits well. [SEP]  [SEP] Lasts."),
        ("reviews", ""),
    ],
)
def test_detail_pages(session: Session, detail: str, shown: str):
    product_page = page_after(session, "search[red]", "click[B01]", "click[10]")
    page = page_after(session, f"click[{detail.title()}]")
    assert page == f"{HEAD}Back to Search [SEP] < Prev{shown}"
    assert session.clickables == ("back to search", "< prev")
    assert page_after(session, "click[< prev]") == product_page
    assert session.visit.options == (("size", "10"),)


def test_receipt(session: Session):
    receipt = (
        "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] (Paste it in your MTurk interface.) [SEP] "
        'Purchased [SEP] asin [SEP] B01 [SEP] options [SEP] {"color": "red", "size": "10"} [SEP] attrs [SEP] None '
        "[SEP] category [SEP] None [SEP] query [SEP] None [SEP] product category [SEP] None [SEP] Target [SEP] asin "
        "[SEP] options [SEP] attrs [SEP] price upper [SEP] instuction text [SEP] category [SEP] product category "
        "[SEP] query [SEP] Goal [SEP] None [SEP] Reward [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0 [SEP] "
        "Reward Details [SEP] None"
    )
    assert session.score is None
    assert page_after(session, "search[red]", "click[b01]", "click[10]", "click[red]", "click[buy now]") == receipt
    assert session.agent_text() == receipt
    assert session.score is not None
    assert session.clickables == ()
    assert not session.act("search[red]")
    assert not session.act("click[back to search]")
    assert session.page_text() == receipt


def test_signs_of_html_are_escaped_in_the_receipt():
    one = product("B01", "Red Shoe", options={"color": ("<r&b>'s é",)})
    page = page_after(make_session([one]), "search[red]", "click[b01]", "click[<r&b>'s é]", "click[buy now]")
    assert r'{"color": "\u003cr\u0026b\u003e\u0027s \u00e9"}' in page


def test_going_back_forgets(session: Session):
    page_after(session, "search[blue]", "click[next >]", "click[a15]")
    assert session.visit.product == 15
    assert "Page 2 " in page_after(session, "click[< prev]")
    page_after(session, "search[red]", "click[b01]", "click[red]", "click[< prev]", "click[b01]")
    assert session.visit.options == ()
    page_after(session, "click[features]", "click[back to search]")
    assert session.visit == START


def test_a_search_works_on_every_page(session: Session):
    way = ("search[red]", "click[b01]", "click[features]")
    for turns in range(4):
        page_after(session, *way[:turns])
        assert "Page 1 (Total results: 24)" in page_after(session, "search[Blue]")


def test_choosing_again_replaces(session: Session):
    page_after(session, "search[red]", "click[b01]", "click[red]", "click[10]", "click[grey]")
    assert session.visit.options == (("color", "grey"), ("size", "10"))


def test_a_value_of_two_options_is_chosen_for_the_last():
    one = product("B01", "Red Shoe", options={"color": ("plain", "red"), "size": ("plain",)})
    session = make_session([one])
    page_after(session, "search[red]", "click[b01]", "click[plain]")
    assert session.visit.options == (("size", "plain"),)


def test_a_button_wins_over_a_value_of_its_text():
    one = product("B01", "Red Shoe", options={"style": ("features", "next >", "search")})
    session = make_session([one])
    page_after(session, "search[red]", "click[b01]", "click[next >]", "click[search]")
    assert session.visit.options == (("style", "search"),)
    page_after(session, "click[features]")
    assert session.visit.page == "detail"


@pytest.mark.parametrize(
    "command",
    [
        "",
        "click[]",
        "search[]",
        "search",
        "click[search]",
        "click[b99]",
        "buy",
        "Search[red]",
        "click[blue",
        "click[next >]",
    ],
)
def test_what_does_nothing(session: Session, command: str):
    assert not session.act(command)
    assert session.visit == START


@pytest.mark.parametrize(
    ("command", "parsed"),
    [
        ("search[Red  Shoes]", ("search", "red  shoes")),
        ("search[ ]", ("search", " ")),
        ("click[RED] and more", ("click", "red")),
        ("click[a] click[b]", ("", "")),
        ("search[a\nb]", ("search", "a\nb")),
        ("search[a [b]", ("search", "a [b")),
        ("search[x]]", ("search", "x]")),
        ("click[r [x] d]", ("click", "r [x] d")),
        ("click[other [x] d]", ("", "")),
        ("[x]", ("", "")),
        ("]click[", ("", "")),
    ],
)
def test_commands(command: str, parsed: tuple[str, str]):
    assert parse_command(command, ["r [x] d"]) == parsed


@given(st.text(alphabet="[]ac\n ", max_size=10), st.sampled_from(["click", "search", "", " click"]))
def test_commands_are_read_as_webshop_reads_them(text: str, name: str):
    """Where WebShop's regular expression finds one of the two names, so do we, and the same argument."""
    command = name + text
    match = re.match(r"(.+)\[(.+)\]", command)
    if match is not None and match[1] in ("click", "search"):
        assert parse_command(command) == (match[1], match[2].lower())


@pytest.mark.parametrize("piece", ["[", "]", "[]", "search[", "click[a", "x"])
def test_reading_a_command_takes_linear_time(piece: str):
    for frame in ("search{}", "click[{}]"):
        short, long = (parse_command(frame.format(piece * count)) for count in (3, 500_000))
        assert (long is None) == (short is None)
        assert long is None or short is None or long[0] == short[0]


class TestSpecialSearches:
    @pytest.fixture
    def shop(self) -> Shop:
        products = [
            product(
                f"P{number:03d}",
                query="running shoes" if number % 2 else "mugs",
                category="garden" if number % 3 else "fashion",
                attributes=("hand made", "soft", "soft") if number % 5 == 0 else (),
            )
            for number in range(120)
        ]
        return Shop(products, [1.0] * 120, light_nouns, seed=233)

    def test_all_of_a_query_category_or_attribute(self, shop: Shop):
        assert shop.search("<q> running shoes") == tuple(range(1, 120, 2))
        assert shop.search("<q> running  shoes ") == ()
        assert shop.search("<c> fashion") == shop.search("<c> fashion and more") == tuple(range(0, 120, 3))
        assert shop.search("<a> hand made") == shop.search("<a> soft") == tuple(range(0, 120, 5))
        assert shop.search("<a> unknown") == shop.search("<c>") == shop.search("<q>") == ()

    def test_random_products_are_fixed_by_the_words(self, shop: Shop):
        found = shop.search("<r>")
        assert len(set(found)) == RESULTS
        assert found == Shop(shop.products, [1.0] * 120, light_nouns, seed=233).search("<r>")
        assert found != shop.search("<r> again")
        assert found != Shop(shop.products, [1.0] * 120, light_nouns, seed=1).search("<r>")

    def test_few_random_products(self):
        assert sorted(Shop([product("A"), product("B")], [1.0, 1.0], light_nouns, seed=0).search("<r>")) == [0, 1]

    def test_an_ordinary_search_finds_at_most_fifty(self, shop: Shop):
        assert len(shop.search("shoe")) == RESULTS
        assert shop.search("shoe") == tuple(range(RESULTS))
