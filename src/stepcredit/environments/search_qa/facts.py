"""A generated world of countries, cities and people: a corpus about it, and questions with known answers.

All names are made up, so nothing can be answered from memory, and each stands for one thing only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

from stepcredit.environments.search_qa.corpus import Passage
from stepcredit.environments.search_qa.questions import Question

COUNTRIES = 60
CITIES = 120
"""The first ``COUNTRIES`` of them are capitals."""

_SYLLABLES = ("ba", "do", "fe", "gi", "ka", "lo", "mu", "ne", "pi", "ra", "so", "ti", "va", "ze")
_ENDINGS = {"country": "ria", "city": "ton", "river": "sk", "currency": "lin", "person": "ms"}
_PROFESSIONS = ("baker", "composer", "gardener", "painter", "printer", "sailor", "surgeon", "weaver")


@dataclass(frozen=True, slots=True)
class World:
    """A corpus, the questions it answers, and the names that can be answers.

    Attributes:
        names: every name and profession, in lower case, sorted.
    """

    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    names: tuple[str, ...]


def generate_world(seed: int) -> World:
    """Countries with capital and currency, cities with river and founder, founders with a profession.

    Five kinds of questions need one passage, three need two, one needs three, and no passage names what the next but
    one is about: each hop takes a search. The order of the questions is shuffled.
    """
    rng = random.Random(f"search world {seed}")
    stems = ["".join(syllables) for syllables in product(_SYLLABLES, repeat=2)]
    named = {kind: [f"{stem}{end}".title() for stem in rng.sample(stems, CITIES)] for kind, end in _ENDINGS.items()}
    countries, currencies = named["country"][:COUNTRIES], named["currency"][:COUNTRIES]
    cities, rivers, people = named["city"], named["river"], named["person"]
    professions = [rng.choice(_PROFESSIONS) for _ in people]
    texts: dict[str, str] = {}
    asked: list[tuple[str, str, str, tuple[str, ...]]] = []
    for country, capital, currency, river, founder, profession in zip(
        countries, cities, currencies, rivers, people, professions, strict=False
    ):
        texts[country] = f"{country} is a country. Its capital is {capital}. Its currency is the {currency}."
        way = (country, capital, founder)
        asked += [
            ("capital", f"What is the capital of {country}?", capital, way[:1]),
            ("currency", f"What is the currency of {country}?", currency, way[:1]),
            ("capital river", f"On which river does the capital of {country} lie?", river, way[:2]),
            ("capital founder", f"Who founded the capital of {country}?", founder, way[:2]),
            ("capital profession", f"What was the founder of the capital of {country}?", profession, way),
        ]
    for city, river, founder, profession in zip(cities, rivers, people, professions, strict=True):
        texts[city] = f"{city} is a city. It lies on the river {river}. It was founded by {founder}."
        texts[founder] = f"{founder} was a {profession} and founded a city."
        asked += [
            ("river", f"On which river does {city} lie?", river, (city,)),
            ("founder", f"Who founded {city}?", founder, (city,)),
            ("profession", f"What was {founder}?", profession, (founder,)),
            ("founder profession", f"What was the founder of {city}?", profession, (city, founder)),
        ]
    rng.shuffle(asked)
    return World(
        passages=tuple(Passage(str(number), title, text) for number, (title, text) in enumerate(texts.items())),
        questions=tuple(
            Question(str(number), text, (answer,), family, titles)
            for number, (family, text, answer, titles) in enumerate(asked)
        ),
        names=tuple(sorted({name.lower() for name in (*texts, *rivers, *currencies, *_PROFESSIONS)})),
    )
