"""Products: the official catalogue files, read unchanged.

A catalogue is two or three JSON files, plain or gzipped: the products (``items_shuffle*.json``), their attributes and
synthetic instructions (``items_ins_v2*.json``), and human-written instructions (``items_human_ins.json``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepcredit.core.errors import InputError
from stepcredit.core.packed import BROKEN, read_bytes
from stepcredit.environments.texts import writable

DEFAULT_PRICE = 100.0
"""Dollars a product costs whose price is not known."""
NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""Attributes of a product that the attribute file does not list."""

_LONGEST_ASIN = 10
_PARENT_ASIN = "nan"
_NOT_A_NUMBER = re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class Product:
    """One product.

    Attributes:
        asin: its identifier.
        options: option name → its values, in the order of the file; names and values in lower case.
        prices: one price, or two between which the price is drawn, dollars.
        query: what it was found with, in lower case: its kind.
        category: department, one of a handful.
        categories: path of categories, widest first.
        instruction: synthetic instruction, without options and price; None where there is none.
        instruction_attributes: the attributes that instruction asks for.
    """

    asin: str
    name: str
    description: str
    bullets: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    prices: tuple[float, ...]
    query: str
    category: str
    categories: tuple[str, ...]
    attributes: tuple[str, ...]
    instruction: str | None
    instruction_attributes: tuple[str, ...]

    @property
    def price_tag(self) -> str:
        """The price as pages show it."""
        return " to ".join(f"${price}" for price in self.prices)

    def option_of(self, value: str) -> str:
        """The option that choosing a value sets: the last one that has it."""
        return [name for name, values in self.options.items() if value in values][-1]

    @property
    def search_text(self) -> str:
        """What the search engine knows of it: name, description, first bullet and options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.name, self.description, self.bullets[0] if self.bullets else "", options)).lower()


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """What one annotator asked for: a sentence, the attributes and the option values it names."""

    asin: str
    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


def load_products(items: Path, instructions: Path, *, count: int | None = None) -> list[Product]:
    """The products of an official catalogue.

    Products whose identifier is "nan", longer than ten characters or already seen are left out.

    Args:
        items: file of products.
        instructions: file of attributes and synthetic instructions.
        count: read only the first ``count`` entries; None: all.

    Raises:
        InputError: a file cannot be read or lacks the official form.
    """
    entries = _read(items, list)[:count]
    notes = _read(instructions, dict)
    products: dict[str, Product] = {}
    for number, entry in enumerate(entries):
        try:
            asin = entry["asin"]
            if asin != _PARENT_ASIN and len(asin) <= _LONGEST_ASIN and asin not in products:
                products[asin] = _product(entry, notes.get(asin) or {})
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(f"{items}: product {number} does not have WebShop's form: {_fault(error)}.") from None
    return list(products.values())


def load_human_instructions(path: Path, products: Iterable[Product]) -> list[HumanInstruction]:
    """The human-written instructions for these products, product by product; those without attributes are left out.

    Raises:
        InputError: the file cannot be read or lacks the official form.
    """
    entries = _read(path, dict)
    found = []
    for product in products:
        listed = entries.get(product.asin, [])
        if not isinstance(listed, list):
            raise InputError(f"{path}: got {listed!r:.40} for {product.asin}, expected a list of instructions.")
        for entry in listed:
            try:
                attributes, options = _texts(entry["instruction_attributes"]), _texts(entry["instruction_options"])
                text = _text(entry["instruction"])
            except (KeyError, TypeError) as error:
                raise InputError(
                    f"{path}: an instruction for {product.asin} does not have WebShop's form: {_fault(error)}."
                ) from None
            if attributes:
                found.append(HumanInstruction(product.asin, text, attributes, options))
    return found


def parse_prices(pricing: str | None) -> tuple[float, ...]:
    """The first two prices of "$19.99$27.99", dollars; ``DEFAULT_PRICE`` where there is none."""
    numbers = [_NOT_A_NUMBER.sub("", part) for part in (pricing or "").split("$")[1:]]
    prices = [float(number) for number in numbers if number.count(".") <= 1 and number.strip(".")]
    return tuple(prices[:2]) or (DEFAULT_PRICE,)


def _product(entry: Mapping[str, Any], notes: Mapping[str, Any]) -> Product:
    bullets = entry["small_description"]
    instruction = notes.get("instruction")
    attributes = notes.get("attributes")
    return Product(
        asin=_text(entry["asin"]),
        name=_text(entry["name"]),
        description=_text(entry["full_description"]),
        bullets=_texts(bullets) if isinstance(bullets, list) else (_text(bullets),),
        options=_options(entry["customization_options"]),
        prices=parse_prices(entry.get("pricing")),
        query=_text(entry["query"]).lower().strip(),
        category=_text(entry["category"]),
        categories=tuple(part.strip() for part in _text(entry["product_category"]).split("›")),
        attributes=NO_ATTRIBUTES if attributes is None else _texts(attributes),
        instruction=None if instruction is None else _text(instruction),
        instruction_attributes=_texts(notes.get("instruction_attributes") or ()),
    )


def _options(entry: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    return {
        _text(name).lower(): tuple(_text(value["value"]).strip().replace("/", " | ").lower() for value in values)
        for name, values in (entry or {}).items()
        if values is not None
    }


def _text(value: Any) -> str:
    """A text that can be written; nothing is an empty one."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"got {value!r:.40} where text is expected")
    return writable(value)


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _fault(error: Exception) -> str:
    return f"no field {error}" if isinstance(error, KeyError) else str(error)


def _read(path: Path, form: type[Any]) -> Any:
    """A JSON file, gzipped or not, whose outermost value is a ``form``."""
    try:
        content = json.loads(read_bytes(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; expected one of WebShop's JSON files.") from None
    except InputError:
        raise
    except (*BROKEN, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); expected one of WebShop's files, plain or gzipped.") from None
    if not isinstance(content, form):
        kind = "list" if form is list else "object"
        raise InputError(f"{path}: the outermost value is not a JSON {kind}; expected one of WebShop's files.")
    return content
