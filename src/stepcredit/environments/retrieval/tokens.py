"""Words of a text, as Lucene's ``StandardTokenizer`` cuts them (version 8: Unicode word breaks with emoji).

The word-break rules of Unicode Standard Annex 29 are a grammar over character classes. A text is therefore translated
into a string of one-letter classes, one regular expression cuts that string, and the cuts are applied to the text. The
classes come from ``unicodedata`` (general category and name) and, for emoji, from a table of ranges.

Not reproduced: quotation marks inside Hebrew acronyms.
"""

from __future__ import annotations

import re
import unicodedata

MAX_LENGTH = 255
"""A longer word is cut into pieces of this length."""

# Classes: a letter, n digit, k Katakana, w connector ("_"), l : between letters, m , between digits, p . between
# either, q ', i ideograph, j Hiragana, s South-East Asian, r regional indicator, e emoji, b emoji that takes a skin
# tone, t skin tone, # key-cap base, x extending mark, c key-cap mark, v emoji presentation, z zero-width joiner, T
# emoji tag, and "-" for everything else.
_EXTENDS = "[xczvT]*+"
_EXTENDS_EMOJI = "(?:[xcT]|z++(?![ebt]))*+"


def _token_pattern() -> re.Pattern[str]:
    """A token in group 1, or a run that belongs to none (which else would be scanned again from each of its places)."""
    letter, digit, katakana, connector = (f"{c}{_EXTENDS}" for c in ("a++", "n++", "k++", "w"))
    connectors = f"(?:{connector})*+"
    letters = f"{letter}(?:(?:{connectors}|[lpq]{_EXTENDS}){letter})*"
    digits = f"{digit}(?:(?:{connectors}|[mpq]{_EXTENDS}){digit})*"
    run = f"(?:{katakana}(?:{connectors}{katakana})*|(?:{digits}|{letters})+)"
    word = f"{connectors}{run}(?:{connector}{connectors}{run})*{connectors}"
    emoji = f"z*+(?:(?:b{_EXTENDS_EMOJI})?t{_EXTENDS_EMOJI}|[eb]{_EXTENDS_EMOJI}v?)"
    emojis = f"{emoji}(?:z{emoji})*"
    key_cap = f"#{_EXTENDS_EMOJI}v?c{_EXTENDS}"
    flag = f"(?:r{_EXTENDS}){{2}}"
    token = f"{word}|{emojis}|{key_cap}|{flag}|(?:s{_EXTENDS})+|[ij]{_EXTENDS}"
    return re.compile(f"({token})|(?:{connector})++|z++|-++")


_TOKEN = _token_pattern()


def tokens(text: str) -> list[str]:
    """The words, numbers, ideographs and emoji of a text, in order and unchanged."""
    cuts = (match.span(1) for match in _TOKEN.finditer(text.translate(_CLASSES)) if match[1])
    found = [text[start:end] for start, end in cuts]
    if all(len(token) <= MAX_LENGTH for token in found):
        return found
    return [token[at : at + MAX_LENGTH] for token in found for at in range(0, len(token), MAX_LENGTH)]


def _ranges(table: str) -> frozenset[int]:
    """The code points of hexadecimal numbers and ranges."""
    points: set[int] = set()
    for part in table.split():
        first, _, last = part.partition("-")
        points.update(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(points)


# Unicode property Extended_Pictographic, without the letters among them.
_EMOJI = _ranges(
    "a9 ae 203c 2049 2122 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa 25aa-25ab 25b6 25c0 "
    "25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 274c "
    "274e 2753-2755 2757 2763-2767 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 "
    "3299 1f000-1f0ff 1f10d-1f10f 1f12f 1f16c-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a "
    "1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f 1f7d5-1f7ff "
    "1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a 1f93c-1f945 1f947-1faff 1fc00-1fffd"
)
# Unicode property Emoji_Modifier_Base.
_EMOJI_BASE = _ranges(
    "261d 26f9 270a-270d 1f385 1f3c2-1f3c4 1f3c7 1f3ca-1f3cc 1f442-1f443 1f446-1f450 1f466-1f478 1f47c 1f481-1f483 "
    "1f485-1f487 1f48f 1f491 1f4aa 1f574-1f575 1f57a 1f590 1f595-1f596 1f645-1f647 1f64b-1f64f 1f6a3 1f6b4-1f6b6 1f6c0 "
    "1f6cc 1f90c 1f90f 1f918-1f91f 1f926 1f930-1f939 1f93c-1f93e 1f977 1f9b5-1f9b6 1f9b8-1f9b9 1f9bb 1f9cd-1f9cf "
    "1f9d1-1f9dd 1fac3-1fac5 1faf0-1faf6"
)
_PUNCTUATION = {
    **dict.fromkeys(":··՟״‧︓﹕：", "l"),
    **dict.fromkeys(",;;։،؍٬߸⁄︐︔﹐﹔，；", "m"),
    **dict.fromkeys(".‘’․﹒＇．", "p"),
    **dict.fromkeys("#*", "#"),
    "'": "q",
    "\u200b": "-",
    "\u200c": "x",
    "\u200d": "z",
    "\u202f": "w",
    "\u20e3": "c",
    "\ufe0f": "v",
}
_SOUTH_EAST_ASIAN = ("THAI ", "LAO ", "MYANMAR ", "KHMER ", "TAI ", "NEW TAI LUE ", "AHOM ")
_IDEOGRAPHS = ("CJK ", "KANGXI ", "IDEOGRAPHIC ", "HANGZHOU ")
_KATAKANA = ("KATAKANA", "HALFWIDTH KATAKANA")


class _Classes(dict[int, str]):
    """Class of each code point, worked out when it is first met."""

    def __missing__(self, point: int) -> str:
        self[point] = found = _classify(chr(point))
        return found


_CLASSES = _Classes()


def _classify(character: str) -> str:
    if character in _PUNCTUATION:
        return _PUNCTUATION[character]
    point = ord(character)
    if 0x1F3FB <= point <= 0x1F3FF:
        return "t"
    if 0x1F1E6 <= point <= 0x1F1FF:
        return "r"
    if 0xE0020 <= point <= 0xE007F:
        return "T"
    if point in _EMOJI:
        return "b" if point in _EMOJI_BASE else "e"
    category = unicodedata.category(character)
    name = unicodedata.name(character, "")
    if category[0] in "LM" and name.startswith(_SOUTH_EAST_ASIAN):
        return "s"
    if category[0] == "M" or category == "Cf" or (name.startswith("HALFWIDTH KATAKANA") and "SOUND MARK" in name):
        return "x"
    if category[0] == "L" or category == "Nl" or 0x24B6 <= point <= 0x24E9:
        return _letter_class(name)
    if name.startswith("KATAKANA-HIRAGANA") and category == "Sk":
        return "k"
    return {"Nd": "n", "Pc": "w"}.get(category, "-")


def _letter_class(name: str) -> str:
    if name.startswith(_IDEOGRAPHS):
        return "i"
    if name.startswith("HIRAGANA"):
        return "j"
    return "k" if name.startswith(_KATAKANA) else "a"
