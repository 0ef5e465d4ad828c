"""Shops to test in: generated, official, and made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shopping.entries import Files
from stepcredit.environments.shopping.suite import ShoppingSuite


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
