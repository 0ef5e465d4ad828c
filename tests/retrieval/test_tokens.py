"""Word breaks: one case per rule of Unicode Annex 29 and per emoji form, and time linear in hostile text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.environments.retrieval.analysis import STOP_WORDS, english_terms
from stepcredit.environments.retrieval.tokens import MAX_LENGTH, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("two words", ["two", "words"]),
        ("semi-sheer (2-pack)", ["semi", "sheer", "2", "pack"]),
        ("O'Neill's", ["O'Neill's"]),
        ("’quoted’", ["quoted"]),
        ("don’t", ["don’t"]),
        ("U.S.A. e.g.", ["U.S.A", "e.g"]),
        ("3.5oz 1,000.50", ["3.5oz", "1,000.50"]),
        ("1,a a,1 a.1 1.a", ["1", "a", "a", "1", "a", "1", "1", "a"]),
        ("color:red a::b", ["color:red", "a", "b"]),
        ("-1 +2", ["1", "2"]),
        ("foo_bar _a_ __ _", ["foo_bar", "_a_"]),
        ("x2_カ", ["x2_カ"]),
        ("カタカナー", ["カタカナー"]),
        ("ひらがな", ["ひ", "ら", "が", "な"]),
        ("品質", ["品", "質"]),
        ("물해 품", ["물해", "품"]),
        ("ภาษาไทย", ["ภาษาไทย"]),
        ("e\u0301te\u0301 \u0301", ["e\u0301te\u0301"]),
        ("soft\u00adhyphen zero\u200bspace", ["soft\u00adhyphen", "zero", "space"]),
        ("½ ² ¾cup Ⓐ Ⅳ", ["cup", "Ⓐ", "Ⅳ"]),
        ("①", []),
        ("★ ♥ ✔ © ®", ["★", "♥", "✔", "©", "®"]),
        ("● ◆ → °", []),
        ("❤\ufe0f", ["❤\ufe0f"]),
        ("👨\u200d💼x", ["👨\u200d💼", "x"]),
        ("👍🏽 🏽", ["👍🏽", "🏽"]),
        ("🇩🇪🇫🇷 🇩", ["🇩🇪", "🇫🇷"]),
        ("1\ufe0f\u20e3 #\ufe0f\u20e3 # *", ["1\ufe0f\u20e3", "#\ufe0f\u20e3"]),
    ],
)
def test_cuts(text: str, expected: list[str]):
    assert tokens(text) == expected


def test_long_words_are_cut_into_pieces():
    assert [len(token) for token in tokens(f"{'a' * 600} b")] == [MAX_LENGTH, MAX_LENGTH, 90, 1]


@given(st.text())
def test_tokens_stand_in_the_text_in_order(text: str):
    rest = text
    for token in tokens(text):
        _, found, rest = rest.partition(token)
        assert found


# Quadratic matching would take hours on these.
@pytest.mark.parametrize(
    "piece",
    [
        "a_",
        "_",
        "_\u0301",
        "\u200d",
        "👍\u200d",
        "👍\u200d\u0301",
        "z\u200d",
        "1,",
        "a:",
        "ア_",
        "#\u0301",
        "🇩",
        "'",
        "a",
    ],
)
def test_time_is_linear(piece: str):
    assert len(tokens(piece * 300_000 + "!")) <= 300_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The women's dresses", ["women", "dress"]),
        ("JAMES’S dog’S", ["jame", "dog"]),
        ("'s s's", ["s", "s"]),
        ("It is not for the", []),
        ("Running shoes, sizes 7.5", ["run", "shoe", "size", "7.5"]),
    ],
)
def test_english_terms(text: str, expected: list[str]):
    assert english_terms(text) == expected


def test_there_are_33_stop_words():
    assert len(STOP_WORDS) == 33
