"""Importing the package is light: whoever only assigns credit never waits for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "scipy", "pandas", "matplotlib", "sklearn", "sentence_transformers")


@pytest.mark.parametrize("module", ["stepcredit", "stepcredit.core", "stepcredit.credit", "stepcredit.cli"])
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
