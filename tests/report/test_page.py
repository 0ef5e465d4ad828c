"""The HTML file: what is in it, what cannot be, how large it may get."""

from __future__ import annotations

import hashlib
import re
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import MissingExtraError
from stepcredit.report import page as page_module
from stepcredit.report.batch import make_batch
from stepcredit.report.page import Report, preferred_tasks, write_page
from stepcredit.report.runs import run_report, write_report
from stepcredit.report.text import LONGEST

from .worlds import episode, make_run, pieces, woven

HOSTILE = (
    "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> \u202egnp.exe\u202c \x1b[2J \x00"
)


def report_on(*batches: list[Episode], methods: tuple[str, ...] = ("gigpo", "grpo")) -> Report:
    made = [make_batch(f"batch {at}", episodes, methods) for at, episodes in enumerate(batches)]
    return Report(title="title", facts={}, headline={}, figures=[], warnings=[], batches=made)


def test_a_run_becomes_one_file_that_needs_no_other(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path / "run"), tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    text = page.read_text(encoding="utf-8")
    assert re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text) is None
    index, *rest = pieces(page)
    assert index["title"] == "run"
    assert index["config"]["method"] == "gigpo"
    assert len(index["batches"]) == 3
    assert len(rest) == 6  # figures and one task group for each update
    assert index["versions"]["stepcredit"]


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=0, finished=False)
    index, *rest = pieces(write_report(run, tmp_path))
    assert (index["batches"], rest) == ([], [])
    assert index["headline"] == {"success on valid (95 %: 15.0% – 35.0%)": "25.0% → 25.0%"}


def test_equal_data_gives_equal_bytes(tmp_path: Path) -> None:
    report = run_report(make_run(tmp_path / "run"))
    first = write_page(report, tmp_path / "a").read_bytes()
    assert write_page(report, tmp_path / "b").read_bytes() == first


def test_groups_worth_a_look_come_first() -> None:
    lost = [episode(f"l{at}", ["s", "a", "L"], task="lost", won=False) for at in range(2)]
    won = [episode(f"w{at}", ["s", "a", "W"], task="won", won=True) for at in range(2)]
    batch = make_batch("batch", [*lost, *won, *woven()], ("grpo",))
    assert [batch.turns.task_names[task] for task in preferred_tasks(batch)] == ["t", "won", "lost"]


def test_hostile_text_is_data_and_nothing_else(tmp_path: Path) -> None:
    turns = (Turn(HOSTILE, HOSTILE, nll=0.1, extra={"response": HOSTILE}), Turn("x" * 1_000_000, "b", nll=0.1))
    hostile = Episode(HOSTILE, HOSTILE, turns, HOSTILE, True, stop=HOSTILE, extra={"family": HOSTILE, "goal": HOSTILE})
    page = write_page(report_on([hostile]), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == 1 + len(pieces(page))
    assert "broken" not in text
    assert "\u202e" not in text
    group = pieces(page)[2]
    shown = group["texts"][group["episodes"][0]["observation"][0]]
    assert shown.startswith("</script><script>")
    assert "\\u{202e}gnp.exe\\u{202c} \\u{1b}[2J \\u{0}" in shown
    assert max(map(len, group["texts"])) < LONGEST + 60
    assert len(text) < 200_000


def test_a_hostile_title_is_escaped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "<b>&run")
    text = write_report(run, tmp_path).read_text(encoding="utf-8")
    assert "<title>&lt;b&gt;&amp;run · stepcredit report</title>" in text


def test_only_our_own_script_may_run(tmp_path: Path) -> None:
    text = write_page(report_on(woven()), tmp_path).read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', text)
    assert policy is not None
    script = re.search(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert script is not None
    digest = b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert "default-src 'none'" in policy[1]


def test_our_script_never_reads_data_as_markup() -> None:
    folder = Path(page_module.__file__).parent / "page"
    assert sorted(path.name for path in folder.glob("*.js")) == sorted(page_module.SCRIPTS)
    for script in folder.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert (
            re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|</script", text)
            is None
        )


def test_a_page_stays_within_its_size(tmp_path: Path) -> None:
    # 200 updates × 128 episodes must stay under 15 MB; here everything is a hundredth of that.
    batches = [[one for task in range(8) for one in woven(f"u{update}t{task}")] for update in range(10)]
    whole = write_page(report_on(*batches), tmp_path / "whole")
    assert [len(batch["groups"]) for batch in pieces(whole)[0]["batches"]] == [8] * 10
    small = write_page(report_on(*batches), tmp_path / "small", most_bytes=30_000)
    index = pieces(small)[0]
    counts = [len(batch["groups"]) for batch in index["batches"]]
    assert 10 <= sum(counts) < 80
    assert max(counts) - min(counts) <= 1  # every batch gives way alike
    assert whole.stat().st_size - small.stat().st_size > 0
    group_bytes = sum(
        len(text)
        for number, text in re.findall(r'id="piece-(\d+)">([^<]*)<', small.read_text())
        if any(int(number) == group["piece"] for batch in index["batches"] for group in batch["groups"])
    )
    assert group_bytes <= 30_000


def test_the_number_of_groups_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_GROUPS", 5)
    batches = [[one for task in range(3) for one in woven(f"u{update}t{task}")] for update in range(4)]
    index = pieces(write_page(report_on(*batches), tmp_path))[0]
    assert [len(batch["groups"]) for batch in index["batches"]] == [1, 1, 1, 2]  # the newest batch first


def test_without_the_extra_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'stepcredit\[report\]'"):
        write_page(report_on(woven()), tmp_path)
