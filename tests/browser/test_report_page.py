"""The report page in a real Chromium: it draws, answers, and no text of a rollout does anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from report.worlds import forest, make_run, woven
from stepcredit.core.episodes import Episode, Turn
from stepcredit.report.batch import make_batch
from stepcredit.report.compare import compare_report
from stepcredit.report.page import Report, write_page
from stepcredit.report.runs import write_report

from .chromium import COMMAND, Browser

pytestmark = pytest.mark.skipif(COMMAND is None, reason="no Chromium installed (Debian: apt-get install chromium)")

HOSTILE = (
    "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'> \u202egnp.exe \x1b[2J \x00 end"
)
LARGE = 1_000


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two updates: a forest and two woven task groups each."""
    played = [*forest(), *woven("one"), *woven("two")]
    run = make_run(tmp_path_factory.mktemp("page") / "run", updates=2, episodes=played, method="tsbpo")
    return write_report(run, run)


@pytest.fixture(autouse=True)
def no_complaints(browser: Browser) -> Iterator[None]:
    """Whatever a test does, the console stays silent and nothing is asked of the network."""
    browser.complaints.clear()
    browser.requests.clear()
    yield
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "about:", "blob:"))] == []


def texts(browser: Browser, selector: str) -> list[str]:
    found: list[str] = browser.evaluate(f"[...document.querySelectorAll({selector!r})].map((one) => one.textContent)")
    return found


def choose(browser: Browser, control: str, value: int) -> None:
    browser.evaluate(
        f"(() => {{ const one = document.getElementById({control!r}); one.value = {value}; "
        "one.dispatchEvent(new Event('change')); })()"
    )


def test_overview_shows_curves_warnings_and_configuration(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert texts(browser, "h1") == ["run"]
    assert "25.0% → 75.0%" in texts(browser, ".headline b")
    assert {"All families", "weave", "Token entropy", "Seconds an update"} <= set(texts(browser, ".chart h3"))
    assert browser.evaluate("document.querySelectorAll('.chart .line').length") >= 5
    assert "method" in texts(browser, ".config dt")
    browser.point("#figure-success-all svg")
    browser.wait("!document.getElementById('tip').hidden")
    assert "25 %" in texts(browser, "#tip")[0] or "75 %" in texts(browser, "#tip")[0]


def test_graph_answers_the_pointer(browser: Browser, page: Path) -> None:
    browser.open(page, "#graph/1/1/0/0")
    browser.wait("document.querySelectorAll('.canvas .node').length >= 5")
    browser.point('.graph [data-node="1"]')
    browser.wait("document.querySelector('.panel .facts')")
    facts = dict(zip(texts(browser, ".panel dt"), texts(browser, ".panel dd"), strict=True))
    assert facts["value"] == "0.66"
    assert facts["group size"] == "3 turns"
    assert set(texts(browser, ".panel .actions .link")) == {"b", "c"}
    assert browser.evaluate("document.querySelectorAll('.graph .lit path').length") == 4


def test_another_method_recolours_the_graph(browser: Browser, page: Path) -> None:
    browser.open(page, "#graph/1/1/0/0")
    edges = (
        "[...document.querySelectorAll('.graph .edges path')].map((one) => one.getAttribute('stroke')).sort().join()"
    )
    browser.wait("document.querySelector('.graph .edges path')")
    before = browser.evaluate(edges)
    names = browser.evaluate("[...document.getElementById('method').options].map((one) => one.text)")
    choose(browser, "method", names.index("graft"))
    browser.wait(f"document.getElementById('method').selectedIndex === {names.index('graft')}")
    browser.wait(f"{edges} !== {before!r}")


def test_an_episode_is_traced_and_rare_states_are_hidden(browser: Browser, page: Path) -> None:
    browser.open(page, "#graph/1/1/0/0")
    choose(browser, "trace", 3)
    browser.wait("document.querySelectorAll('.graph .trace .step').length === 3")
    choose(browser, "visits", 2)
    browser.wait("document.querySelectorAll('.canvas .node').length === 4")  # L is reached once


def test_graph_is_walked_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, "#graph/1/1/0/0")
    browser.evaluate("document.querySelector('.canvas svg').focus()")
    browser.press("ArrowRight")  # the first state
    assert texts(browser, ".panel .text") == ["s"]
    browser.press("ArrowRight")  # along the busiest edge
    assert texts(browser, ".panel .text")[0] in ("x", "y")
    browser.press("Escape")
    assert texts(browser, ".panel .facts") == []


def test_tree_answers_and_leads_to_the_turns(browser: Browser, page: Path) -> None:
    browser.open(page, "#tree/1/0/0/0")
    browser.wait("document.querySelectorAll('.tree .segment').length === 5")
    browser.point('.tree [data-segment="2"]')
    browser.wait("document.querySelector('.panel .facts')")
    facts = dict(zip(texts(browser, ".panel dt"), texts(browser, ".panel dd"), strict=True))
    assert facts["score S"] == "10"
    assert facts["credit against siblings"] == "+6.67"
    browser.evaluate("document.querySelector('.tree [data-segment=\"2\"]').dispatchEvent(new MouseEvent('click'))")
    browser.wait("document.querySelector('.transcript')")
    assert texts(browser, ".turns .command") == ["d"]


def test_episodes_are_read_with_the_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, "#episodes/1/1/0/0")
    current = "document.querySelector('.transcript header .muted').textContent.split(' ')[0]"
    browser.wait("document.querySelector('.transcript')")
    assert texts(browser, ".turns .command") == ["a", "b"]
    seen = [browser.evaluate(current)]
    for key in ("j", "ArrowRight", "n", "j", "k"):
        browser.press(key)
        browser.wait(f"{current} !== {seen[-1]!r}")
        seen.append(browser.evaluate(current))
    assert seen == [f"one-{name}" for name in "ABCD"] + ["two-A", "one-D"]  # across task groups
    browser.press("1")
    browser.wait("document.querySelector('.headline')")


def search(browser: Browser, query: str) -> None:
    browser.evaluate(
        f"(() => {{ const one = document.getElementById('search'); one.value = {query!r}; "
        "one.dispatchEvent(new Event('change')); })()"
    )


def test_search_finds_turns_and_goes_there(browser: Browser, page: Path) -> None:
    browser.open(page, "#episodes/1/1/0/0")
    browser.press("/")
    browser.wait("document.activeElement.id === 'search'")
    search(browser, "reach w in two")
    browser.wait("document.querySelector('.found .muted')?.textContent === '0 episodes found'")  # goals are no turns
    search(browser, "two-C")
    browser.wait("document.querySelector('.found .muted')?.textContent === '1 episode found'")
    browser.evaluate("document.querySelector('.found .link').click()")
    browser.wait("document.querySelector('.transcript header .muted').textContent.startsWith('two-C')")


def test_distributions_are_drawn(browser: Browser, page: Path) -> None:
    browser.open(page, "#distributions/1/0/0/0")
    browser.wait("document.querySelectorAll('.chart rect').length > 3")
    assert {"Size of observation groups", "Information propagation degree", "Credit magnitude"} <= set(
        texts(browser, ".chart h3")
    )


def test_themes_have_their_own_colours(browser: Browser, page: Path) -> None:
    browser.media(prefers_color_scheme="dark")
    browser.open(page, "#graph/1/1/0/0")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = browser.evaluate(ground)
    browser.evaluate("document.getElementById('theme').click()")
    light = browser.evaluate(ground)
    assert dark != light
    browser.media(prefers_color_scheme="light")
    assert browser.evaluate(ground) == light


def test_figures_are_saved_as_svg_and_csv(browser: Browser, page: Path) -> None:
    browser.open(page, "#graph/1/1/0/0")
    browser.wait("document.querySelector('.canvas .node')")
    drawing = browser.evaluate("svgFile(document.querySelector('.canvas svg'))")
    assert drawing.startswith("<svg")
    assert "var(" not in drawing
    saved = browser.evaluate(
        "new Promise((done) => { const real = URL.createObjectURL; URL.createObjectURL = (blob) => "
        "{ blob.text().then(done); URL.createObjectURL = real; return real(blob); }; "
        "document.querySelector('.toolbar .save button:last-child').click(); })"
    )
    lines = saved.splitlines()
    assert lines[0] == "kind,node,source,target,count,value,credit,endings,wins,text"
    assert sum(line.startswith("node,") for line in lines) == 5


def test_runs_side_by_side(browser: Browser, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "one"), make_run(tmp_path / "two", after=0.5)]
    browser.open(write_page(compare_report(runs), tmp_path / "out"))
    assert texts(browser, "#tabs [role=tab]") == ["Overview"]
    assert "−25.0%" in texts(browser, ".table td")


def test_hostile_text_is_only_text(browser: Browser, tmp_path: Path) -> None:
    turns = (Turn(HOSTILE, HOSTILE, nll=0.1, extra={"response": HOSTILE}), Turn("x" * 1_000_000, "b", nll=0.1))
    about = {"family": HOSTILE, "goal": HOSTILE}
    played = [Episode(HOSTILE, name, turns, HOSTILE, name == "a", stop=HOSTILE, extra=about) for name in "ab"]
    batch = make_batch(HOSTILE, played, ("gigpo", "graft"))
    page = write_page(Report(HOSTILE, {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}, [], [HOSTILE], batches=[batch]), tmp_path)
    for tab in ("overview", "graph", "episodes", "distributions"):
        browser.open(page, f"#{tab}/0/0/0/0")
        assert browser.evaluate("window.broken === undefined && document.querySelector('img') === null")
    browser.open(page, "#episodes/0/0/0/0")
    browser.wait("document.querySelector('.transcript')")
    said = texts(browser, ".turns .command")[0]
    assert said.startswith("</script><script>window.broken=1</script><img")
    assert "\\u{202e}gnp.exe" in said
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_graph_of_a_thousand_states_stays_usable(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng([3])
    walks = [np.concatenate([[0], rng.integers(0, LARGE, 50)]) for _ in range(80)]
    played = [
        Episode(
            "t", f"e{at}", tuple(Turn(f"room {room}", f"go {at}") for room in walk), f"room {walk[-1]}", at % 2 == 0
        )
        for at, walk in enumerate(walks)
    ]
    batch = make_batch("batch", played, ("gigpo",))
    browser.open(write_page(Report("large", {}, {}, [], [], batches=[batch]), tmp_path), "#graph/0/0/0/0")
    browser.wait("document.querySelectorAll('.canvas .node').length > 950")
    shown = browser.evaluate(
        """[...document.querySelectorAll(".canvas .node")].slice(0, 101).map((node) => {
            node.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
            return document.querySelector(".panel .text").textContent;
        })"""
    )
    assert len(set(shown)) == 101  # every state answers with its own text
    assert all(text.startswith("room ") for text in shown)
