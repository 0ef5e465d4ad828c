"""Index terms of texts and queries: English analysis as Lucene's ``EnglishAnalyzer`` does it, and a plain one."""

from __future__ import annotations

import re
from functools import lru_cache

from stepcredit.environments.retrieval.porter import stem
from stepcredit.environments.retrieval.tokens import tokens

STOP_WORDS = frozenset(
    tokens(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
        "they this to was will with"
    )
)
_WORD = re.compile(r"[^\W_]+")
_POSSESSIVES = ("'s", "’s", "＇s", "'S", "’S", "＇S")


def english_terms(text: str) -> list[str]:
    """Index terms of a text: words without possessive *'s*, in lower case, without stop words, stemmed."""
    return [term for term in map(_term, tokens(text)) if term is not None]


def plain_terms(text: str) -> list[str]:
    """Index terms without stemming: runs of letters and digits, in lower case, without stop words."""
    return [word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


@lru_cache(maxsize=1 << 17)
def _term(word: str) -> str | None:
    if word.endswith(_POSSESSIVES):
        word = word[:-2]
    word = word.lower()
    return None if word in STOP_WORDS else stem(word)
