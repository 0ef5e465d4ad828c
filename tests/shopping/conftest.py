"""Shops to test in: generated, official, and made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepcredit.environments.shopping.products import Product
from stepcredit.environments.shopping.suite import ShoppingSuite

Files = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def generated() -> ShoppingSuite:
    return ShoppingSuite(nouns="light")


@pytest.fixture(scope="session")
def official(shared_data: Path) -> ShoppingSuite:
    return ShoppingSuite(items=str(shared_data / "webshop" / "items.json.gz"), nouns="light")


@pytest.fixture
def catalogue_files(tmp_path: Path) -> Files:
    """Writes official files; returns the suite options that point to them."""

    def write(
        items: Sequence[Mapping[str, Any]], notes: Mapping[str, Any], human: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        contents = {"items": items, "instructions": notes, **({} if human is None else {"human": human})}
        for name, content in contents.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        return {name: str(tmp_path / f"{name}.json") for name in contents}

    return write


def item(asin: str, name: str = "Red Shoe", **fields: Any) -> dict[str, Any]:
    """An entry of the official file of products."""
    return {
        "asin": asin,
        "name": name,
        "full_description": "",
        "small_description": ["Fits well."],
        "pricing": "$20.00",
        "product_category": "Clothing › Shoes › Running",
        "category": "fashion",
        "query": "Running Shoes ",
        "customization_options": {},
        "images": ["x"],
        **fields,
    }


def product(asin: str = "A", name: str = "Red Shoe", **fields: Any) -> Product:
    """A product with plain fields."""
    defaults: dict[str, Any] = {
        "description": "",
        "bullets": ("Fits well.",),
        "options": {},
        "prices": (20.0,),
        "query": "running shoes",
        "category": "fashion",
        "categories": ("Clothing", "Shoes", "Running"),
        "attributes": (),
        "instruction": None,
        "instruction_attributes": (),
    }
    return Product(asin=asin, name=name, **{**defaults, **fields})
