"""Porter's stemmer in the form of Lucene's ``PorterStemFilter``.

The algorithm of M. F. Porter, "An algorithm for suffix stripping" (1980), with the two later changes of its author
(step 2: *bli* → *ble* instead of *abli* → *able*, and *logi* → *log*). Characters outside a–z count as consonants.

Notation of the paper: a word is [C](VC)^m[V], where C and V are runs of consonants and vowels; m is its measure.
"""

from __future__ import annotations

_Rules = tuple[tuple[str, str], ...]

_STEP_2: dict[str, _Rules] = {
    "a": (("ational", "ate"), ("tional", "tion")),
    "c": (("enci", "ence"), ("anci", "ance")),
    "e": (("izer", "ize"),),
    "g": (("logi", "log"),),
    "l": (("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    "o": (("ization", "ize"), ("ation", "ate"), ("ator", "ate")),
    "s": (("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    "t": (("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
}
"""By the word's last letter but one: (suffix, replacement); the first suffix that fits decides."""

_STEP_3: dict[str, _Rules] = {
    "e": (("icate", "ic"), ("ative", ""), ("alize", "al")),
    "i": (("iciti", "ic"),),
    "l": (("ical", "ic"), ("ful", "")),
    "s": (("ness", ""),),
}
"""By the word's last letter."""

_STEP_4: dict[str, tuple[str, ...]] = {
    "a": ("al",),
    "c": ("ance", "ence"),
    "e": ("er",),
    "i": ("ic",),
    "l": ("able", "ible"),
    "n": ("ant", "ement", "ment", "ent"),
    "o": ("ion", "ou"),
    "s": ("ism",),
    "t": ("ate", "iti"),
    "u": ("ous",),
    "v": ("ive",),
    "z": ("ize",),
}
"""By the word's last letter but one."""


def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two characters are their own stem."""
    if len(word) < 3:
        return word
    word = _drop_inflection(word)
    if word[-1] == "y" and "v" in _pattern(word[:-1]):
        word = word[:-1] + "i"
    if len(word) > 1:
        word = _replace_suffix(word, _STEP_2.get(word[-2], ()))
    word = _replace_suffix(word, _STEP_3.get(word[-1], ()))
    if len(word) > 1:
        word = _drop_suffix(word, _STEP_4.get(word[-2], ()))
    return _drop_final(word)


def _pattern(word: str) -> str:
    """The word with "c" for each consonant and "v" for each vowel; y is a vowel after a consonant."""
    letters: list[str] = []
    previous = "v"
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and letters and previous == "c")
        previous = "v" if is_vowel else "c"
        letters.append(previous)
    return "".join(letters)


def _measure(word: str) -> int:
    return _pattern(word).count("vc")


def _ends_double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _pattern(word)[-1] == "c"


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant, where the last is not w, x or y."""
    return _pattern(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _drop_inflection(word: str) -> str:
    """Step 1a and 1b: plurals, -ed, -ing."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word[-1] == "s" and word[-2] != "s":
        word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    suffix = "ed" if word.endswith("ed") else "ing" if word.endswith("ing") else ""
    rest = word.removesuffix(suffix)
    if not suffix or "v" not in _pattern(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_double_consonant(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_short(rest) else rest


def _replace_suffix(word: str, rules: _Rules) -> str:
    """Steps 2 and 3: the first suffix that fits is replaced where what precedes it has measure > 0."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            return rest + replacement if _measure(rest) > 0 else word
    return word


def _drop_suffix(word: str, suffixes: tuple[str, ...]) -> str:
    """Step 4: the first suffix that fits is dropped where what precedes it has measure > 1; -ion only after s or t."""
    for suffix in suffixes:
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            if suffix == "ion" and not rest.endswith(("s", "t")):
                continue
            return rest if _measure(rest) > 1 else word
    return word


def _drop_final(word: str) -> str:
    """Step 5: a final -e, and one l of a final -ll."""
    measure = _measure(word)
    if word[-1] == "e" and (measure > 1 or (measure == 1 and not _ends_short(word[:-1]))):
        word = word[:-1]
    return word[:-1] if measure > 1 and word[-1] == "l" and _ends_double_consonant(word) else word
