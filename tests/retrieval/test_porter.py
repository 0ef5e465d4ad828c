"""Porter's stemmer: the examples of the paper's own rules, and the two later changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.environments.retrieval.porter import stem

# Step by step, the words that the paper shows each rule with, stemmed all the way.
EXAMPLES = """
caresses caress, ponies poni, ties ti, caress caress, cats cat, feed feed, agreed agre, plastered plaster, bled bled,
motoring motor, sing sing, conflated conflat, troubled troubl, sized size, hopping hop, tanned tan, falling fall,
hissing hiss, fizzed fizz, failing fail, filing file, happy happi, sky sky, relational relat, conditional condit,
rational ration, valenci valenc, hesitanci hesit, digitizer digit, conformabli conform, radicalli radic,
differentli differ, vileli vile, analogousli analog, vietnamization vietnam, predication predic, operator oper,
feudalism feudal, decisiveness decis, hopefulness hope, callousness callous, formaliti formal, sensitiviti sensit,
sensibiliti sensibl, triplicate triplic, formative form, formalize formal, electriciti electr, electrical electr,
hopeful hope, goodness good, revival reviv, allowance allow, inference infer, airliner airlin, gyroscopic gyroscop,
adjustable adjust, defensible defens, irritant irrit, replacement replac, adjustment adjust, dependent depend,
adoption adopt, homologou homolog, communism commun, activate activ, angulariti angular, homologous homolog,
effective effect, bowdlerize bowdler, probate probat, rate rate, cease ceas, controll control, roll roll
"""


@pytest.mark.parametrize(("word", "expected"), [pair.split() for pair in EXAMPLES.split(",")])
def test_examples_of_the_paper(word: str, expected: str):
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("possibly", "possibl"),  # bli → ble
        ("archaeology", "archaeolog"),  # logi → log
        ("as", "as"),
        ("s", "s"),
        ("", ""),
        ("ing", "ing"),
        ("ied", "i"),
        ("ion", "ion"),
        ("yyy", "yyi"),
        ("3.5oz", "3.5oz"),
        ("café", "café"),
        ("running", "run"),
        ("generalizations", "gener"),
    ],
)
def test_changes_and_corners(word: str, expected: str):
    assert stem(word) == expected


@given(
    st.text(alphabet="aeioubcdlnstyz", max_size=12), st.sampled_from(["", "ing", "ational", "fulness", "iviti", "ed"])
)
def test_a_stem_is_no_longer_than_its_word_but_for_one_e(head: str, suffix: str):
    word = head + suffix
    assert len(stem(word)) <= len(word)
    assert stem(word)[:1] == word[:1]
