"""What the documentation computes while it is built.

* A navigation entry ``Title: folder/`` of mkdocs.yml becomes all pages of that folder, ``index.md`` first.
* ``<!-- example: NAME -->`` in a page becomes the worked example of method NAME, computed by ``docs_examples``.
* ``<!-- recipe keys -->`` becomes the table of all recipe keys.
* A link to a file of the repository outside ``docs/`` becomes its text: the built pages stand alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import docs_examples  # mkdocs puts this folder on the path while it loads the hook
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

from stepcredit.training.config import TrainConfig

EXAMPLE = re.compile(r"<!-- example: (\w+) -->")
RECIPE_KEYS = "<!-- recipe keys -->"
RELATIVE_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand the folders of the navigation."""
    docs = Path(config.docs_dir)
    config.nav = [
        {title: pages(docs, target) if target.endswith("/") else target}
        for entry in config.nav or []
        for title, target in entry.items()
    ]
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Put the computed parts in, take links out of ``docs/`` out."""
    markdown = EXAMPLE.sub(lambda match: docs_examples.example(match[1]), markdown)
    if RECIPE_KEYS in markdown:
        markdown = markdown.replace(RECIPE_KEYS, recipe_keys())
    docs = Path(config.docs_dir).resolve()
    folder = (docs / page.file.src_uri).parent

    def inside(match: re.Match[str]) -> str:
        return match[0] if (folder / match[2]).resolve().is_relative_to(docs) else match[1]

    return RELATIVE_LINK.sub(inside, markdown)


def pages(docs: Path, folder: str) -> list[str]:
    """Pages of a folder relative to ``docs``, by name, its index first."""
    found = sorted((docs / folder).glob("*.md"), key=lambda page: (page.name != "index.md", page.name))
    return [page.relative_to(docs).as_posix() for page in found]


def recipe_keys() -> str:
    """All recipe keys with default and meaning, a Markdown table."""
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for key, field in TrainConfig.model_fields.items():
        default = json.dumps(field.get_default(call_default_factory=True), ensure_ascii=False)
        rows.append(f"| `{key}` | `{default}` | {field.description} |")
    return "\n".join(rows)
