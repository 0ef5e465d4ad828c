"""The HTML file: data compressed once and cut into pieces that the browser unpacks when they are looked at."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stepcredit.core.errors import InputError, missing_extra
from stepcredit.core.files import open_atomic
from stepcredit.report.batch import Batch
from stepcredit.report.distributions import batch_figures
from stepcredit.report.figures import Figure
from stepcredit.report.forest import Forest
from stepcredit.report.group import describe_group
from stepcredit.report.text import visible

NAME = "report.html"
MOST_BYTES = 12_000_000
"""Size that the task groups of a page may have, compressed and encoded; the rest of a page is far below 3 MB."""
MOST_GROUPS = 160
"""Task groups on a page, over all its batches."""
SCRIPTS = (
    "data.js",
    "charts.js",
    "parts.js",
    "zoom.js",
    "graph.js",
    "graph-panel.js",
    "tree.js",
    "reader.js",
    "page.js",
)
PACKAGES = ("stepcredit", "numpy", "scipy", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Report:
    """What a page shows.

    Attributes:
        facts: short label → text, shown below the title.
        headline: label → text: the few numbers a reader wants first.
        tables: title → rows, each a label and its cells; the first row is the header.
        config: configuration by key; empty where there is none.
        sampling: sentences that say what was left out.
    """

    title: str
    facts: Mapping[str, str]
    headline: Mapping[str, str]
    figures: Sequence[Figure]
    warnings: Sequence[str]
    tables: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    batches: Sequence[Batch] = ()
    sampling: Sequence[str] = ()


def write_page(report: Report, folder: Path, *, most_bytes: int = MOST_BYTES) -> Path:
    """Write ``report.html`` into a folder, which is made where it is missing.

    Equal data gives equal bytes: no date and no machine is in it.

    Raises:
        MissingExtraError: jinja2 is not installed.
        InputError: the file cannot be written.
    """
    try:
        import jinja2
        import markupsafe  # jinja2 brings it
    except ImportError:
        raise missing_extra("jinja2", "report", "The report page") from None
    pieces, batches = _pack_batches(report.batches, most_bytes)
    pieces.insert(0, _pack(_index(report, batches)))
    script = "".join(_asset(name) for name in SCRIPTS)
    style = _asset("style.css")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    html = environment.from_string(_asset("page.html")).render(
        title=visible(report.title),
        script=markupsafe.Markup(script),
        script_hash=_hash(script),
        style=markupsafe.Markup(style),
        style_hash=_hash(style),
        pieces=pieces,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write into {str(folder)!r}: {error.strerror}.") from error
    with open_atomic(folder / NAME) as file:
        file.write(html.encode())
    return folder / NAME


def preferred_tasks(batch: Batch) -> list[int]:
    """Task groups by what there is to see: mixed outcomes, then successes, then failures; else in file order."""
    turns = batch.turns
    size = np.bincount(turns.episode_task, minlength=len(turns.task_names))
    won = np.bincount(turns.episode_task, weights=turns.success, minlength=len(size))
    interest = np.where((won > 0) & (won < size), 0, np.where(won > 0, 1, 2))
    return np.argsort(interest, kind="stable").tolist()  # type: ignore[no-any-return]


def _pack_batches(batches: Sequence[Batch], most_bytes: int) -> tuple[list[str], list[dict[str, Any]]]:
    """The pieces of all batches, and what the index says about each batch: where its pieces are.

    Every batch gives its next preferred group in turn, the newest batch first, until the page is full.
    """
    forests = [Forest(batch.turns) if batch.turns.is_forest else None for batch in batches]
    packed: list[list[tuple[str, dict[str, Any]]]] = [[] for _ in batches]
    left = most_bytes
    for number, task in _in_turn(batches):
        batch = batches[number]
        group = describe_group(batch, forests[number], task)
        piece = _pack(group)
        if len(piece) <= left:
            left -= len(piece)
            packed[number].append((piece, _about_group(group)))
    pieces: list[str] = []
    described = []
    for batch, groups in zip(batches, packed, strict=True):
        first = len(pieces) + 1  # piece 0 is the index
        pieces += [_pack([figure.to_json() for figure in batch_figures(batch)])]
        pieces += [piece for piece, _ in groups]
        described.append(
            {
                "name": visible(batch.name),
                "figures": first,
                "methods": [visible(name) for name in batch.credits],
                "episodes": len(batch.episodes),
                "tasks": len(batch.turns.task_names),
                "warnings": [visible(warning) for warning in batch.warnings],
                "groups": [{"piece": first + place, **about} for place, (_, about) in enumerate(groups, 1)],
            }
        )
    return pieces, described


def _in_turn(batches: Sequence[Batch]) -> Iterator[tuple[int, int]]:
    """(batch, task) pairs, at most ``MOST_GROUPS``: every batch's first choice, then every batch's second, …"""
    wishes = [preferred_tasks(batch) for batch in batches]
    order = [
        (number, wishes[number][rank])
        for rank in range(max(map(len, wishes), default=0))
        for number in reversed(range(len(batches)))
        if rank < len(wishes[number])
    ]
    yield from order[:MOST_GROUPS]


def _about_group(group: Mapping[str, Any]) -> dict[str, Any]:
    texts = group["texts"]
    return {
        "task": texts[group["task"]],
        "family": texts[group["family"]],
        "goal": texts[group["goal"]],
        "episodes": group["members"],
        "shown": len(group["episodes"]),
        "wins": sum(episode["success"] for episode in group["episodes"]),
        "states": group["states"],
    }


def _index(report: Report, batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "title": visible(report.title),
        "facts": {visible(label): visible(text) for label, text in report.facts.items()},
        "headline": {visible(label): visible(text) for label, text in report.headline.items()},
        "figures": [figure.to_json() for figure in report.figures],
        "warnings": [visible(warning) for warning in report.warnings],
        "tables": {
            visible(title): [[visible(cell) for cell in row] for row in rows] for title, rows in report.tables.items()
        },
        "config": {visible(key): visible(_plain(value)) for key, value in report.config.items()},
        "sampling": [visible(sentence) for sentence in report.sampling],
        "versions": dict(installed_versions()),
        "batches": batches,
    }


def installed_versions() -> Iterator[tuple[str, str]]:
    """Versions of what made the numbers, as far as it is installed."""
    for package in PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _pack(value: Any) -> str:
    return base64.b64encode(gzip.compress(orjson.dumps(value), compresslevel=6, mtime=0)).decode()


def _asset(name: str) -> str:
    return (resources.files(__package__) / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy calls an inline script or style, so that no other one runs."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
