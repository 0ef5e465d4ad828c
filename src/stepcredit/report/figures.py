"""Figures as data: drawn by the page, drawn by matplotlib, and written as CSV from the same numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray
from stepcredit.report.text import visible

Kind = Literal["line", "bars", "stack", "points"]
"""Lines over a number; bars side by side over categories; areas that add up; points against the diagonal."""

Number = float | None
"""None: nothing was measured there, which is not zero."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one colour of bars.

    Attributes:
        x: positions: numbers, or names of categories.
        y: one value a position.
        low, high: ends of an interval around each value; empty where there is none.
        size: how many observations stand behind each value (points only).
    """

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    size: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Attributes:
        name: file stem, unique on a page.
        section: heading that it stands under.
        caption: what is shown, in a sentence.
        percent: y is a share in [0, 1], labelled in per cent.
    """

    name: str
    section: str
    title: str
    kind: Kind
    x_label: str
    y_label: str
    series: Sequence[Series]
    caption: str = ""
    percent: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the page reads it."""
        return {
            "name": visible(self.name),
            "section": self.section,
            "title": visible(self.title),
            "kind": self.kind,
            "xLabel": self.x_label,
            "yLabel": visible(self.y_label),
            "caption": visible(self.caption),
            "percent": self.percent,
            "series": [
                {
                    "name": visible(series.name),
                    "x": [visible(x) if isinstance(x, str) else significant([x])[0] for x in series.x],
                    "y": significant(series.y),
                    "low": significant(series.low),
                    "high": significant(series.high),
                    "size": list(series.size),
                }
                for series in self.series
            ],
        }

    def to_csv(self) -> str:
        """One line a value: series, x, y, low, high, size; empty cells where there is nothing."""
        rows = (
            (
                series.name,
                x,
                y,
                *(column[place] if column else None for column in (series.low, series.high, series.size)),
            )
            for series in self.series
            for place, (x, y) in enumerate(zip(series.x, series.y, strict=True))
        )
        return csv_text(("series", "x", "y", "low", "high", "size"), rows)


def csv_text(header: Sequence[str], rows: Any) -> str:
    """A CSV file's text, with quotes where they are needed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def significant(values: Sequence[Any] | FloatArray) -> list[Number]:
    """Numbers to five significant digits, as a page needs them; None for what is not a finite number."""
    return [
        None if value is None or value - value != 0 else float(f"{value:.5g}")  # inf − inf and nan − nan are not 0
        for value in (values.tolist() if isinstance(values, np.ndarray) else values)
    ]


def line(name: str, x: Sequence[float], values: Sequence[Number]) -> Series | None:
    """A series over what was measured; None where nothing was."""
    known = [(at, value) for at, value in zip(x, values, strict=True) if value is not None]
    return Series(name, [at for at, _ in known], [value for _, value in known]) if known else None


def size_classes(sizes: NDArray[np.integer], weight: FloatArray) -> Mapping[str, float]:
    """Share of the weight in each class of sizes 1, 2, 3–4, 5–8, …; classes end at powers of two."""
    power = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    total = np.bincount(power, weights=weight)
    names = ["1", "2", *(f"{2 ** (k - 1) + 1}–{2**k}" for k in range(2, len(total)))]
    whole = float(total.sum())
    return {name: float(part) / whole if whole else 0.0 for name, part in zip(names, total, strict=False)}
