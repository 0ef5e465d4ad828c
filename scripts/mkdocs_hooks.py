"""What the documentation computes while it is built: the navigation by folders and the worked examples of the methods.

* A navigation entry ``Title: folder/`` of mkdocs.yml becomes all pages of that folder, ``index.md`` first.
* ``<!-- example: NAME -->`` in a page becomes the worked example of method NAME, computed by ``docs_examples``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import docs_examples  # mkdocs puts this folder on the path while it loads the hook
from mkdocs.config.defaults import MkDocsConfig

EXAMPLE = re.compile(r"<!-- example: (\w+) -->")


def pages(docs: Path, folder: str) -> list[str]:
    """Pages of a folder relative to ``docs``, by name, its index first."""
    found = sorted((docs / folder).glob("*.md"), key=lambda page: (page.name != "index.md", page.name))
    return [page.relative_to(docs).as_posix() for page in found]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand the folders of the navigation."""
    docs = Path(config.docs_dir)
    config.nav = [
        {title: pages(docs, target) if target.endswith("/") else target}
        for entry in config.nav or []
        for title, target in entry.items()
    ]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the worked examples in."""
    return EXAMPLE.sub(lambda match: docs_examples.example(match[1]), markdown)
