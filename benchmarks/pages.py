"""What scripts that write a page of the documentation share: tables between marks, and the look of their figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

STYLE: Mapping[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e2",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "stepcredit",
}
"""Settings of matplotlib; with the last one, equal figures are equal files."""


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put(page: str, mark: str, table: str) -> str:
    """The page with the table between ``<!-- MARK -->`` and ``<!-- end -->``; as it was where it has no such mark."""
    block = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
    return block.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", page)
