"""``stepcredit report``, ``compare-runs`` and ``watch`` as a user meets them, and the figures they write."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console

from stepcredit.cli import main
from stepcredit.core.errors import CheckpointError, FileFormatError, InputError
from stepcredit.core.files import write_credit, write_episodes
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.report.figures import Figure, Series
from stepcredit.report.page import Report
from stepcredit.report.plots import write_figures
from stepcredit.report.runs import run_report
from stepcredit.report.sources import report_about
from stepcredit.report.watch import curve, snapshot

from .worlds import forest, make_run, pieces, woven


def run_cli(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_report_of_a_run_stands_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    assert run_cli("report", run, "--method", "graft:lam=0.8", "--method", "rloo") == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    index = pieces(run / "report.html")[0]
    assert index["batches"][0]["methods"] == ["gigpo", "graft:lam=0.8", "rloo"]


def test_report_of_rollouts_with_credit_from_elsewhere(tmp_path: Path) -> None:
    rollouts, credit = tmp_path / "r.jsonl.gz", tmp_path / "mine.jsonl"
    write_episodes(rollouts, woven())
    assert run_cli("assign", rollouts, "--method", "rtmc", "--out", credit) == 0
    assert run_cli("report", rollouts, credit, "--method", "grpo", "--out", tmp_path / "out") == 0
    index, _, group = pieces(tmp_path / "out" / "report.html")
    assert index["batches"][0]["methods"] == ["mine", "grpo"]
    expected = assign(Turns.from_episodes(woven()), "rtmc").advantage
    shown = [value for one in group["episodes"] for value in one["credit"][0]["advantage"]]
    assert shown == pytest.approx(expected.tolist(), abs=1e-3)


def test_credit_finds_the_rollouts_it_belongs_to(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_episodes(first, woven("x"))
    write_episodes(second, woven("y"))
    turns = Turns.from_episodes(woven("y"))
    write_credit(tmp_path / "c.jsonl.gz", turns, assign(turns, "grpo"))
    report = report_about([first, second, tmp_path / "c.jsonl.gz"], ("gigpo",))
    assert [list(batch.credits) for batch in report.batches] == [["gigpo"], ["c", "gigpo"]]
    with pytest.raises(InputError, match="not those of any rollout file given"):
        report_about([first, tmp_path / "c.jsonl.gz"])
    with pytest.raises(InputError, match="no rollout file"):
        report_about([tmp_path / "c.jsonl.gz"])


def test_sources_that_are_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    write_episodes(tmp_path / "r.jsonl", woven())
    with pytest.raises(InputError, match="beside other sources"):
        report_about([run, tmp_path / "r.jsonl"])
    with pytest.raises(CheckpointError, match="holds no run"):
        report_about([tmp_path])
    with pytest.raises(InputError, match="Cannot read"):
        report_about([tmp_path / "missing.jsonl"])
    (tmp_path / "text.jsonl").write_text("hello\n")
    with pytest.raises(FileFormatError, match="not JSON"):
        report_about([tmp_path / "text.jsonl"])
    (tmp_path / "half.jsonl").write_text('{"episode": "A", "turn": 0, "advantage": 1}\n{"episode": "A", "turn": 1}\n')
    with pytest.raises(FileFormatError, match=r"half\.jsonl:2"):
        report_about([tmp_path / "r.jsonl", tmp_path / "half.jsonl"])


def test_compare_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", after=0.5)
    assert run_cli("compare-runs", one, two, "--out", tmp_path / "out", "--figures", tmp_path / "figures") == 0
    assert (tmp_path / "figures" / "difference-valid.svg").is_file()
    assert pieces(tmp_path / "out" / "report.html")[0]["title"] == "one · two"
    assert run_cli("compare-runs", one) == 2
    assert run_cli("compare-runs", one, one) == 2
    assert "twice" in capsys.readouterr().err


def test_every_figure_has_png_svg_and_csv(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=1, episodes=forest(), method="tsbpo")
    report = run_report(run)
    written = write_figures(report, tmp_path / "figures")
    stems = {path.stem for path in written}
    assert {"success-all", "credit-magnitude", "task-graph-1", "physical-tree-1"} <= stems
    assert {figure.name for figure in report.figures} <= stems
    for path in written:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        elif path.suffix == ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        else:
            header, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
            assert rows, path.name
            assert {len(row) for row in rows} == {len(header)}
    tree = list(csv.DictReader(io.StringIO((tmp_path / "figures" / "physical-tree-1.csv").read_text())))
    assert [(row["episode"], row["from_depth"], row["score"]) for row in tree][2] == ("B", "1", "10.0")


def test_equal_figures_are_equal_files(tmp_path: Path) -> None:
    whole = run_report(make_run(tmp_path / "run", updates=1))
    report = dataclasses.replace(whole, figures=whole.figures[:2], batches=())
    first, second = (write_figures(report, tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_text_is_never_mathematics_to_matplotlib(tmp_path: Path) -> None:
    broken = "cost $\\frac{1$ </script>"
    figure = Figure("f", broken, broken, "bars", broken, broken, [Series(broken, [broken], [1.0])], broken)
    report = Report(title=broken, facts={}, headline={}, figures=[figure], warnings=[])
    _, svg, table = write_figures(report, tmp_path)
    assert "cost $\\frac{1$ &lt;/script&gt;" in svg.read_text(encoding="utf-8")
    assert broken in table.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "shown"),
    [([], ""), ([1.0], "▁"), ([2, 2, 2], "▁▁▁"), ([0, 1, 7], "▁▂█"), ([0, 0, 7, 7], "▁█")],
)
def test_curve_of_blocks(values: list[float], shown: str) -> None:
    assert curve(values, 2 if len(values) == 4 else 48) == shown


def test_watch_shows_progress_groups_and_warnings(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", updates=3, finished=False)
    view, finished = snapshot(run)
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(view)
    text = console.export_text()
    assert not finished
    assert "update 3 of 3" in text
    assert "reach W in t0" in text
    assert "✓✗✓✓" in text
    assert "25.0%" in text


def test_watch_ends_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot(make_run(tmp_path / "run"))[1]
    assert run_cli("watch", tmp_path / "run") == 0
    assert "update 3 of 3" in capsys.readouterr().out
    assert run_cli("watch", tmp_path / "nothing") == 2
    for every in ("0", "nan", "inf"):
        assert run_cli("watch", tmp_path / "run", "--every", every) == 2


def test_watch_reads_a_log_that_is_being_written(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 9, "kind": "update"})[:12])
    assert not snapshot(run)[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "metrics.jsonl:5: expected a JSON object"),
        ("\0\0\0", "metrics.jsonl:5: expected a JSON object"),
        ("[1]", "metrics.jsonl:5: expected a JSON object"),
        ('{"kind": "update"}', "is not as training writes it (KeyError('update'))"),
        ('{"update": 9}', "is not as training writes it (KeyError('kind'))"),
    ],
)
def test_watch_ends_where_the_log_cannot_be_read(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the line comes while it is looking."""
    run = make_run(tmp_path / "run", finished=False)
    log = run / "metrics.jsonl"
    assert log.read_text().count("\n") == 4

    def break_it() -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")

    later = threading.Timer(0.2, break_it)
    later.start()
    assert run_cli("watch", run, "--every", "0.05") == 2
    later.join()
    assert message in capsys.readouterr().err


def test_watch_ends_where_the_log_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", finished=False)
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").mkdir()
    assert run_cli("watch", run) == 2
    assert "Cannot read" in capsys.readouterr().err
    (run / "config.json").write_text("{}")
    (run / "metrics.jsonl").rmdir()
    assert run_cli("watch", run) == 2
    assert "is not as training writes it" in capsys.readouterr().err
