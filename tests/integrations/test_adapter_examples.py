"""Every example of an adapter runs as it stands where the package it needs is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "environments"
EXAMPLES = {
    "gymnasium_text": ("gymnasium", "update 20: "),
    "as_gymnasium": ("gymnasium", "\nwon"),
    "openenv_server": ("openenv", "turns of 8 episodes over the wire"),
    "trl_factory": ("stepcredit", "Nothing happens."),
    "textworld_game": ("textworld", "4 branches"),
    "alfworld_game": ("alfworld", "won with the same texts"),
    "scienceworld_task": ("scienceworld", "mean |advantage|"),
}
"""Every example with the package it needs, and what it prints among other things."""


def test_every_example_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_adapter_example_runs(name: str, tmp_path: Path) -> None:
    package, printed = EXAMPLES[name]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    command = [sys.executable, FOLDER / f"{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert printed in done.stdout
