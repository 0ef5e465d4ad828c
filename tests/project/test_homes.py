"""One concept, one home: methods and environments have all that belongs to them, and the README lists them right."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepcredit.credit.catalogue import METHODS
from stepcredit.environments.catalogue import ENVIRONMENTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", METHODS)
def test_method_has_page_reference_and_tests(name: str) -> None:
    page = ROOT / "docs" / "methods" / f"{name}.md"
    homes = (page, ROOT / "tests" / "reference" / f"{name}.py", ROOT / "tests" / "credit" / f"test_{name}.py")
    assert [path.relative_to(ROOT).as_posix() for path in homes if not path.is_file()] == []
    assert f"<!-- example: {name} -->" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_has_a_page(name: str) -> None:
    assert (ROOT / "docs" / "environments" / f"{name}.md").is_file()


def test_readme_lists_every_method_as_the_catalogue_does() -> None:
    rows = [
        f"| [`{method.name}`](docs/methods/{method.name}.md) | {method.family} | {method.summary} |"
        for method in METHODS.values()
    ]
    assert lines_with("](docs/methods/") == rows, "README.md should list:\n" + "\n".join(rows)


def test_readme_lists_every_environment_as_the_catalogue_does() -> None:
    rows = [
        f"| [`{name}`](docs/environments/{name}.md) | {environment.summary} |"
        for name, environment in ENVIRONMENTS.items()
    ]
    assert lines_with("](docs/environments/") == rows, "README.md should list:\n" + "\n".join(rows)


def lines_with(text: str) -> list[str]:
    """Lines of the README that contain a text."""
    return [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if text in line]
