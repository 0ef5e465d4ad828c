"""When two short texts say the same: token-set ratio and colour words."""

from __future__ import annotations

import re
from functools import lru_cache

from stepcredit.environments.retrieval.tokens import tokens

SIMILAR = 85
"""Texts are similar when their ratio exceeds this, per cent."""

# In the order in which they are looked for: the first that occurs anywhere in a text is its colour.
_COLOURS = tokens(
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
    "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
    "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green "
    "grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot "
    "midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple "
    "rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan "
    "taupe teal tiger turquoise violet walnut wheat white wine yellow"
)
_WORD = re.compile(r"[^\W_]+")
_LATIN_1 = dict.fromkeys(range(128, 256))


def colour_or_text(text: str) -> str:
    """The colour word that a text contains, else the text."""
    return next((colour for colour in _COLOURS if colour in text), text)


def similar(left: str, right: str) -> bool:
    """Whether the token-set ratio of two texts exceeds ``SIMILAR``."""
    return token_set_ratio(left, right) > SIMILAR


@lru_cache(maxsize=1 << 16)
def token_set_ratio(left: str, right: str) -> int:
    """How well two texts agree as sets of words, 0 to 100, as the library *thefuzz* computes it.

    With the sorted common words C, and A and B the sorted words of either text after C: the largest ratio of C and A,
    C and B, A and B, where the ratio of two strings is 2 · (longest common subsequence) / (sum of lengths). Case and
    punctuation do not count, characters U+0080–U+00FF are dropped. 0 where a text has no word.
    """
    words_left, words_right = (set(_WORD.findall(text.translate(_LATIN_1).lower())) for text in (left, right))
    common = words_left & words_right
    if not words_left or not words_right:
        return 0
    if common and common in (words_left, words_right):
        return 100
    base = " ".join(sorted(common))
    full_left, full_right = (
        " ".join((*sorted(common), *sorted(words - common))) for words in (words_left, words_right)
    )
    ratios = [_ratio(full_left, full_right)]
    if common:
        ratios += [_ratio(base, full_left), _ratio(base, full_right)]
    return round(max(ratios))


def _ratio(left: str, right: str) -> float:
    total = len(left) + len(right)
    return 100 * (1 - (total - 2 * _common_subsequence(left, right)) / total)


def _common_subsequence(left: str, right: str) -> int:
    """Length of the longest common subsequence, by Hyyrö's bit-parallel recursion: one addition per character.

    Bit i of ``row`` is 0 where the i-th character of the shorter string adds one to the length so far.
    """
    shorter, longer = sorted((left, right), key=len)
    places: dict[str, int] = {}
    for position, character in enumerate(shorter):
        places[character] = places.get(character, 0) | 1 << position
    full = (1 << len(shorter)) - 1
    row = full
    for character in longer:
        matched = row & places.get(character, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(shorter) - row.bit_count()
