"""The shop's pages as HTML for a person.

Pages are built from elements whose text is always escaped, so nothing a product says can become markup. What can be
clicked is sent as its number, so no text has to survive a form.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

from stepcredit.environments.shopping.environment import ShoppingEnvironment
from stepcredit.environments.shopping.session import BACK, BUY, DETAILS, NEXT, PREVIOUS, Session

STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1d1d1f; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin: .2rem 0; }
p, h1, h2, td, li, button { overflow-wrap: anywhere; }
.goal { background: #fff6d6; border-left: .3rem solid #e0a800; padding: .6rem 1rem; }
.text { white-space: pre-wrap; max-height: 24rem; overflow: auto; }
.product { border: 1px solid #d2d2d7; border-radius: .5rem; padding: .7rem 1rem; margin: .6rem 0; }
.row { display: flex; flex-wrap: wrap; gap: .4rem; margin: .5rem 0; }
button { font: inherit; padding: .3rem .8rem; border: 1px solid #6e6e73; border-radius: .4rem; background: #f5f5f7; }
button.chosen { background: #0a5; color: #fff; } button.buy { background: #06c; color: #fff; }
input { font: inherit; padding: .35rem; flex: 1 1 20rem; }
td { padding: .15rem 1rem .15rem 0; vertical-align: top; } td:first-child { min-width: 9rem; }
"""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *content: str, **attributes: str) -> Markup:
    """An HTML element; content and attribute values are escaped unless they are ``Markup``."""
    given = "".join(f' {name.rstrip("_")}="{html.escape(value)}"' for name, value in attributes.items())
    inside = "".join(part if isinstance(part, Markup) else html.escape(part) for part in content)
    return Markup(f"<{tag}{given}>{inside}</{tag}>")


def document(environment: ShoppingEnvironment, hidden: Mapping[str, str]) -> str:
    """The page where the customer is; its form sends the hidden fields along."""
    session = environment.session
    match session.visit.page:
        case "search":
            content = _search()
        case "results":
            content = _results(session)
        case "product":
            content = _product(session)
        case "detail":
            content = _detail(session)
        case "receipt":
            content = _receipt(session)
    head = element(
        "head",
        Markup('<meta charset="utf-8"><link rel="stylesheet" href="/style.css">'),
        element("title", "Shop"),
    )
    fields = [_hidden(name, value) for name, value in hidden.items()]
    form = element("form", *fields, *content, method="post", action="/")
    body = element("body", element("h1", "Shop"), element("p", environment.goal.text, class_="goal"), form)
    return f"<!DOCTYPE html>{element('html', head, body, lang='en')}"


def _hidden(name: str, value: str) -> Markup:
    return Markup(f'<input type="hidden" name="{name}" value="{html.escape(value)}">')


def _row(*content: Markup) -> Markup:
    return element("div", *content, class_="row")


def _button(session: Session, text: str, *, class_: str = "") -> Markup:
    """A button for one of the clickables."""
    number = session.clickables.index(text.lower())
    return element("button", text, name="click", value=str(number), class_=class_)


def _search() -> list[Markup]:
    field = Markup('<input name="search" aria-label="Search words" autofocus>')
    return [_row(field, element("button", "Search", class_="buy"))]


def _results(session: Session) -> list[Markup]:
    total = len(session.shop.search(session.visit.keywords))
    turning = [PREVIOUS, NEXT] if session.visit.number > 1 else [NEXT]
    content = [
        _row(*(_button(session, text) for text in (BACK, *turning))),
        element("h2", f"Page {session.visit.number} (Total results: {total})"),
    ]
    for number in session.found():
        product = session.shop.products[number]
        name, price = element("h2", product.name), element("p", product.price_tag)
        content.append(element("div", name, price, _button(session, product.asin), class_="product"))
    return content


def _product(session: Session) -> list[Markup]:
    product, chosen = session.product, dict(session.visit.options)
    content = [_row(_button(session, BACK), _button(session, PREVIOUS)), element("h2", product.name)]
    for name, values in product.options.items():
        buttons = [
            _button(session, value, class_="chosen" if chosen.get(name) == value else "")
            for value in dict.fromkeys(values)
        ]
        content.append(element("div", element("p", name), _row(*buttons)))
    content.append(element("p", f"Price: {product.price_tag} · Rating: N.A."))
    content.append(_row(*(_button(session, detail) for detail in DETAILS), _button(session, BUY, class_="buy")))
    return content


def _detail(session: Session) -> list[Markup]:
    texts = session.texts()[2:] or ["(nothing)"]
    return [
        _row(_button(session, BACK), _button(session, PREVIOUS)),
        element("h2", session.visit.detail),
        *(element("p", text, class_="text") for text in texts),
    ]


def _receipt(session: Session) -> list[Markup]:
    score = session.score
    if score is None:
        return []
    parts = [(name.replace("_", " "), f"{value:g}") for name, value in score.components().items()]
    lines = [("bought", session.product.name), *session.visit.options, *parts, ("score", f"{score.total:g}")]
    rows = [element("tr", element("td", name), element("td", value)) for name, value in lines]
    return [
        element("h2", "Thank you for shopping with us!"),
        element("table", *rows),
        _row(element("button", "Next customer", name="next", value="1", class_="buy")),
    ]
