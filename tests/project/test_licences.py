"""Licence report: nothing under the GPL comes with ``pip install stepcredit`` (no extras)."""

from __future__ import annotations

import re
from importlib import metadata

from packaging.requirements import Requirement


def base_install() -> set[str]:
    """Names of all distributions that stepcredit needs without extras, directly or not."""
    found: set[str] = set()
    pending = [("stepcredit", frozenset[str]())]
    while pending:
        name, extras = pending.pop()
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            needed = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}
            )
            if needed and requirement.name not in found:
                found.add(requirement.name)
                pending.append((requirement.name, frozenset(requirement.extras)))
    return found


def licences(name: str) -> str:
    """What the distribution declares: expression, classifiers, and the first line of the free text.

    Wheels put the licences of bundled files after that line: scipy's names the compiler's runtime library, which is
    under the GPL with the exception that lets anybody link it.
    """
    about = metadata.metadata(name)
    free_text = (about.get("License") or "").strip().partition("\n")[0]
    classifiers = [line for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    return "; ".join(filter(None, [about.get("License-Expression"), *classifiers, free_text]))


def test_base_install_is_found() -> None:
    assert {"numpy", "pydantic", "pydantic-core"} <= {name.replace("_", "-") for name in base_install()}


def test_base_install_declares_licences_without_gpl() -> None:
    report = {name: licences(name) for name in sorted(base_install())}
    assert [name for name, declared in report.items() if not declared] == []
    assert {name: declared for name, declared in report.items() if re.search("GPL|General Public", declared)} == {}
