"""Visible text, numbers, classes and CSV."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from stepcredit.report.figures import Figure, Series, csv_text, line, significant, size_classes
from stepcredit.report.text import StringTable, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred", "\\u{1b}[31mred"),
        ("abc\u202edef", "abc\\u{202e}def"),
        ("zero\u200bwidth", "zero\\u{200b}width"),
        ("</script>", "</script>"),
        ("é 漢 🙂", "é 漢 🙂"),
    ],
)
def test_hidden_characters_become_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_long_text_says_how_much_is_missing() -> None:
    assert visible("x" * 1_000_000, 10) == "xxxxxxxxxx … [999,990 more characters]"
    assert visible("x" * 10, 10) == "x" * 10


def test_a_string_table_holds_each_text_once() -> None:
    table = StringTable()
    assert [table[text] for text in ("b", "a", "b")] == [0, 1, 0]
    assert table.texts() == ["b", "a"]


def test_numbers_have_five_digits_and_gaps_are_none() -> None:
    values = np.array([1 / 3, -123456.789, 0.0, math.nan, math.inf])
    assert significant(values) == [0.33333, -123460.0, 0.0, None, None]
    assert significant([None, 2]) == [None, 2.0]


def test_size_classes_end_at_powers_of_two() -> None:
    sizes = np.array([1, 1, 2, 3, 4, 5, 9])
    # Each group weighs as many turns as it has: 2 + 2 + 7 + 5 + 9 of 25.
    shares = size_classes(sizes, sizes.astype(float))
    assert shares == pytest.approx({"1": 2 / 25, "2": 2 / 25, "3–4": 7 / 25, "5–8": 5 / 25, "9–16": 9 / 25})


def test_a_series_leaves_out_what_was_not_measured() -> None:
    assert line("a", [1, 2, 3], [0.5, None, 0.0]) == Series("a", [1, 3], [0.5, 0.0])
    assert line("a", [1], [None]) is None


def test_csv_has_a_line_a_value() -> None:
    figure = Figure(
        "f", "s", "t", "line", "x", "y", [Series("a, b", [1, 2], [0.5, None], low=[0.4, 0.1], high=[0.6, 0.2])]
    )
    assert list(csv.reader(io.StringIO(figure.to_csv()))) == [
        ["series", "x", "y", "low", "high", "size"],
        ["a, b", "1", "0.5", "0.4", "0.6", ""],
        ["a, b", "2", "", "0.1", "0.2", ""],
    ]


def test_csv_quotes_what_needs_it() -> None:
    assert csv_text(("a",), [('say "x"\nand y',)]) == 'a\n"say ""x""\nand y"\n'
