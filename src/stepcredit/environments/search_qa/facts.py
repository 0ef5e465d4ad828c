"""A world of countries and provinces: a corpus about it, and questions with known answers.

The facts are those of the package *countryinfo*; they are what it says, right or not. Only countries of which it knows
capital, region and currency take part, and only names that stand for one thing.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from countryinfo import CountryInfo

from stepcredit.environments.search_qa.corpus import Passage
from stepcredit.environments.search_qa.names import name_key
from stepcredit.environments.search_qa.questions import Question

_PROVINCES = 2
"""Provinces of a country, at most."""
_LONGEST_NAME = 3
"""Words."""
_PLAIN = re.compile(r"[A-Za-z]+(?:[ -][A-Za-z]+)*")


@dataclass(frozen=True, slots=True)
class World:
    """A corpus, the questions it answers, and the names that can be answers.

    Attributes:
        names: every name in it, in lower case, sorted.
    """

    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Country:
    """What is told about a country.

    Attributes:
        neighbour: the largest of its neighbours; empty where that one takes no part.
    """

    name: str
    capital: str
    region: str
    currency: str
    neighbour: str
    provinces: tuple[str, ...]

    @property
    def text(self) -> str:
        facts = [f"{self.name} is a country in {self.region}.", f"Its capital is {self.capital}."]
        facts.append(f"Its currency is {self.currency}.")
        if self.neighbour:
            facts.append(f"Its largest neighbour is {self.neighbour}.")
        return " ".join(facts)


def generate_world(seed: int) -> World:
    """Countries with region, capital, currency and largest neighbour, and some of their provinces.

    Five kinds of questions need one passage, three need two, one needs three, and no passage names what the next but
    one is about: each hop takes a search.

    Args:
        seed: draws the provinces that take part and shuffles the questions.
    """
    rng = random.Random(f"search world {seed}")
    countries = _countries(rng)
    texts = {country.name: country.text for country in countries.values()}
    texts |= {
        province: f"{province} is a province of {country.name}."
        for country in countries.values()
        for province in country.provinces
    }
    asked = [question for country in countries.values() for question in _questions(country, countries)]
    rng.shuffle(asked)
    told = [name for one in countries.values() for name in (one.capital, one.region, one.currency)]
    return World(
        passages=tuple(Passage(str(number), title, text) for number, (title, text) in enumerate(texts.items())),
        questions=tuple(
            Question(str(number), text, (answer,), family, titles)
            for number, (family, text, answer, titles) in enumerate(asked)
        ),
        names=tuple(sorted({name.lower() for name in (*texts, *told)})),
    )


def _countries(rng: random.Random) -> dict[str, _Country]:
    """The countries that take part, by name in alphabetical order."""
    known = sorted(CountryInfo.all().values(), key=lambda entry: entry["name"])
    area = {entry["ISO"].get("alpha3"): entry.get("area") or 0 for entry in known}
    told = [entry for entry in known if _is_told(entry)]
    meanings = Counter(name_key(entry[role]) for entry in told for role in ("name", "capital"))
    told = [entry for entry in told if meanings[name_key(entry["name"])] == meanings[name_key(entry["capital"])] == 1]
    words = Counter(word for key in meanings for word in key.split())
    words += Counter(
        word for entry in told for name in dict.fromkeys(entry["provinces"]) for word in name_key(name).split()
    )
    by_code = {entry["ISO"]["alpha3"]: entry["name"] for entry in told}
    countries = {}
    for entry in told:
        largest = max(entry.get("borders") or [""], key=lambda code: area.get(code, 0))
        provinces = [
            name
            for name in entry["provinces"]
            if _is_plain(name) and all(words[word] == 1 for word in name_key(name).split())
        ]
        countries[entry["name"]] = _Country(
            name=entry["name"],
            capital=entry["capital"],
            region=entry["subregion"],
            currency=entry["currencies"][0],
            neighbour=by_code.get(largest, ""),
            provinces=tuple(rng.sample(provinces, min(_PROVINCES, len(provinces)))),
        )
    return countries


def _is_told(entry: Mapping[str, Any]) -> bool:
    """Whether enough is known of a country, in names that a text can mention."""
    told = all(entry.get(role) for role in ("subregion", "currencies", "provinces")) and entry["ISO"].get("alpha3")
    return bool(told) and _is_plain(entry["name"]) and _is_plain(entry.get("capital"))


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and len(name.split()) <= _LONGEST_NAME and bool(_PLAIN.fullmatch(name))


_Asked = tuple[str, str, str, tuple[str, ...]]
"""Family, question, answer, titles of the supporting passages."""


def _questions(country: _Country, countries: Mapping[str, _Country]) -> Iterator[_Asked]:
    name, beside = country.name, countries.get(country.neighbour)
    if beside is not None and (beside.neighbour == name or set(name.split()) & set(beside.name.split())):
        beside = None  # a search for the one would show the other as well
    yield "capital", f"What is the capital of {name}?", country.capital, (name,)
    yield "currency", f"What is the currency of {name}?", country.currency, (name,)
    yield "region", f"Which region is {name} in?", country.region, (name,)
    if beside is not None:
        yield "neighbour", f"What is the largest neighbour of {name}?", beside.name, (name,)
        question = f"What is the capital of the largest neighbour of {name}?"
        yield "neighbour capital", question, beside.capital, (name, beside.name)
    for province in country.provinces:
        there = f"the country of which {province} is a province"
        yield "country", f"Which country is {province} a province of?", name, (province,)
        yield "country capital", f"What is the capital of {there}?", country.capital, (province, name)
        yield "country currency", f"What is the currency of {there}?", country.currency, (province, name)
        if beside is not None:
            question = f"What is the capital of the largest neighbour of {there}?"
            yield "country neighbour capital", question, beside.capital, (province, name, beside.name)
