"""How good an answer is: exact match and token F1 against any of the gold answers, as for SQuAD and HotpotQA."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golden: Sequence[str]) -> bool:
    """Whether the answer is one of the gold answers after normalisation."""
    normalized = normalize_answer(answer)
    return any(normalized == normalize_answer(gold) for gold in golden)


def token_f1(answer: str, golden: Sequence[str]) -> float:
    """The largest F1 of the answer's words and a gold answer's, in [0, 1].

    F1 = 2pr / (p + r) with p and r the shares of common words, counted with repetition. 0 where an answer has no words,
    and 1 where both have none.
    """
    return max((_f1(normalize_answer(answer).split(), normalize_answer(gold).split()) for gold in golden), default=0.0)


def _f1(answer: list[str], gold: list[str]) -> float:
    if not answer or not gold:
        return float(answer == gold)
    common = (Counter(answer) & Counter(gold)).total()
    return 2 * common / (len(answer) + len(gold))
