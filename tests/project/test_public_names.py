"""The public surface: what ``stepcredit.__all__`` lists is sorted, documented, and on the API page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import stepcredit

ROOT = Path(__file__).resolve().parents[2]
EXPORTED = [name for name in stepcredit.__all__ if name != "__version__"]


def test_names_are_sorted_and_exist() -> None:
    assert list(stepcredit.__all__) == sorted(stepcredit.__all__)
    assert [name for name in stepcredit.__all__ if not hasattr(stepcredit, name)] == []


def test_api_page_lists_exactly_the_public_names() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: stepcredit\.(\w+)$", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(EXPORTED)


def test_every_public_class_and_function_has_its_own_docstring() -> None:
    bare = []
    for name in EXPORTED:
        value = getattr(stepcredit, name)
        if inspect.isclass(value):
            members = {f"{name}.{key}": member for key, member in vars(value).items() if not key.startswith("_")}
            documented = {key: member for key, member in members.items() if _is_code(member)}
            bare += [key for key, member in documented.items() if not inspect.getdoc(member)]
            # A dataclass without a docstring gets its signature as one.
            bare += [name] if (value.__doc__ or f"{name}(").startswith(f"{name}(") else []
        elif callable(value) and not inspect.getdoc(value):
            bare.append(name)
    assert bare == []


def _is_code(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
