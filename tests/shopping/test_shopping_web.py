"""The shop in a browser: pages over HTTP, what is refused, and a purchase in a real Chromium."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from browser.chromium import COMMAND, Browser
from shopping.entries import Files, item
from stepcredit.environments.shopping.suite import ShoppingSuite
from stepcredit.environments.shopping.web import ShopServer
from stepcredit.environments.shopping.web_page import Markup, element

WICKED = "</form><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture
def server(catalogue_files: Files) -> Iterator[ShopServer]:
    """A shop whose only product tries to be markup; two goals, one per size."""
    options = {f"size {WICKED}": [{"value": "big\n<b>"}, {"value": f"small {WICKED}"}]}
    entry = item("B01", name=f"Shoe {WICKED}", full_description=WICKED, customization_options=options)
    notes = {"B01": {"attributes": [], "instruction": f"Find {WICKED}", "instruction_attributes": ["shoe"]}}
    suite = ShoppingSuite(**catalogue_files([entry], notes), nouns="light")
    with ShopServer(suite, [suite.task(0), suite.task(1)]) as started:
        thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def request(
    server: ShopServer, method: str = "GET", path: str = "/", body: str = "", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, body or None, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def send(server: ShopServer, **fields: str) -> int:
    """Send the present page's form with these fields; the status of the answer."""
    _, page = request(server)
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    return request(server, "POST", body=urlencode({**hidden, **fields}))[0].status


class Reader(HTMLParser):
    """Collects the tags of a page and checks that they are nested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_purchase(server: ShopServer):
    session = server.environment.session
    for fields, page in (
        ({"search": "shoe"}, "results"),
        ({"click": "2"}, "product"),
        ({"click": "6"}, "product"),
        ({"click": "2"}, "detail"),
        ({"click": "1"}, "product"),
        ({"click": "5"}, "receipt"),
    ):
        assert send(server, **fields) == 303
        assert session.visit.page == page
        response, text = request(server)
        assert response.status == 200
        assert not {"script", "img", "b"} & set(Reader(text).tags)
    assert session.visit.options == ((f"size {WICKED}".lower(), "big\n<b>"),)
    assert "Thank you for shopping with us!" in text
    assert "score" in text
    assert send(server, next="1") == 303
    assert server.environment.task.id == "goal/1"
    assert server.environment.session.visit.page == "search"
    assert send(server, next="1") == 303
    assert server.environment.task.id == "goal/0"


@pytest.mark.parametrize(
    "fields", [{}, {"search": " "}, {"click": "0"}, {"click": "-1"}, {"click": "9" * 5000}, {"x": "y"}]
)
def test_forms_that_do_nothing(server: ShopServer, fields: dict[str, str]):
    assert send(server, **fields) == 303
    assert server.environment.session.visit.page in ("search", "results")
    assert server.environment.session.found() == ()


def test_an_old_page_does_nothing(server: ShopServer):
    _, page = request(server)
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    assert send(server, search="shoe") == 303
    assert request(server, "POST", body=urlencode({**hidden, "click": "2"}))[0].status == 303
    assert server.environment.session.visit.page == "results"


def test_only_our_own_pages_may_act(server: ShopServer):
    for body in ("", "search=shoe", "token=wrong&turn=0&search=shoe", "token=%FF%FF"):
        assert request(server, "POST", body=body or "x=y")[0].status == 403
    assert request(server, Host="example.org")[0].status == 403
    assert request(server, "POST", body="x=y", Host="example.org")[0].status == 403
    assert server.environment.session.visit.page == "search"


def test_what_else_is_refused(server: ShopServer):
    assert request(server, path="/other")[0].status == 404
    assert request(server, "POST", body="x" * 70_000)[0].status == 413
    assert request(server, "POST", **{"Content-Length": "-1"})[0].status == 413
    assert request(server, "PUT")[0].status == 501


def test_headers_and_style(server: ShopServer):
    response, _ = request(server)
    assert response.getheader("Content-Security-Policy") is not None
    assert "script-src" not in (response.getheader("Content-Security-Policy") or "")
    assert "default-src 'none'" in (response.getheader("Content-Security-Policy") or "")
    response, style = request(server, path="/style.css")
    assert response.getheader("Content-Type") == "text/css; charset=utf-8"
    assert ".goal" in style


def test_only_this_machine_can_connect(server: ShopServer):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_text_is_escaped_once():
    assert element("p", "<&\"'>", Markup("<br>"), title='"') == '<p title="&quot;">&lt;&amp;&quot;&#x27;&gt;<br></p>'


@pytest.mark.skipif(COMMAND is None, reason="no Chromium installed")
def test_a_purchase_in_chromium(server: ShopServer, tmp_path: Path):
    with Browser(tmp_path) as browser:
        browser.visit(server.url)
        assert browser.evaluate("document.querySelector('.goal').textContent").startswith("Find </form><script>")
        assert browser.evaluate("getComputedStyle(document.querySelector('.goal')).borderLeftStyle") == "solid"
        browser.submit("document.querySelector('[name=search]').value = 'shoe'; document.forms[0].requestSubmit()")
        for text in ("B01", "big\n<b>", "Features", "< Prev", "Buy Now"):
            button = f"[...document.querySelectorAll('button')].find(one => one.textContent === {json.dumps(text)})"
            assert browser.evaluate(f"Boolean({button})"), text
            browser.submit(f"{button}.click()")
            assert browser.evaluate("document.title") == "Shop"
            assert browser.evaluate("document.images.length + document.scripts.length") == 0
        shown = browser.evaluate("document.querySelector('table').innerText")
        assert "score" in shown
        assert "Shoe </form><script>" in shown
    assert server.environment.session.visit.page == "receipt"
    assert server.environment.session.visit.options == ((f"size {WICKED}".lower(), "big\n<b>"),)
