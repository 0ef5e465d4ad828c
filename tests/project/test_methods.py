"""One method, one home: what belongs to a method of the catalogue is there, and the README's table agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepcredit.credit.catalogue import METHODS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", METHODS)
def test_method_has_page_reference_and_tests(name: str) -> None:
    page = ROOT / "docs" / "methods" / f"{name}.md"
    homes = (page, ROOT / "tests" / "reference" / f"{name}.py", ROOT / "tests" / "credit" / f"test_{name}.py")
    assert [path.relative_to(ROOT).as_posix() for path in homes if not path.is_file()] == []
    assert f"<!-- example: {name} -->" in page.read_text(encoding="utf-8")


def test_readme_lists_every_method_as_the_catalogue_does() -> None:
    rows = [
        f"| [`{method.name}`](docs/methods/{method.name}.md) | {method.family} | {method.summary} |"
        for method in METHODS.values()
    ]
    listed = [
        line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "](docs/methods/" in line
    ]
    assert listed == rows, "README.md should list:\n" + "\n".join(rows)
