"""The page's script is plain JavaScript with types in comments; the TypeScript compiler checks them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import stepcredit.report

COMPILER = shutil.which("tsc")


@pytest.mark.skipif(COMPILER is None, reason="no TypeScript compiler installed (tsc)")
def test_script_types() -> None:
    scripts = sorted((Path(stepcredit.report.__file__).parent / "page").glob("*.js"))
    assert scripts
    options = (
        "--noEmit",
        "--allowJs",
        "--checkJs",
        "--strict",
        "--target",
        "es2022",
        "--lib",
        "es2022,dom,dom.iterable",
    )
    done = subprocess.run([str(COMPILER), *options, *map(str, scripts)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
