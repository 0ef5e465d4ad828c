"""Products made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepcredit.environments.shopping.products import Product

Files = Callable[..., dict[str, str]]
"""Writes official files; see the fixture ``catalogue_files``."""


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
