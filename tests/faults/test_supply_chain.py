"""What is installed and shipped: pinned, without the GPL, small, reproducible, and working as a wheel alone."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SET_UP_EXTRAS = ("train", "report", "embed", "dev")
MOST_BYTES = 150e6
"""An installation without extras."""


def pinned() -> dict[str, str]:
    """Name → exact version of the lock that setting up and CI use."""
    lines = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
    for one in requirements:
        assert re.fullmatch(r"==[\w.+!]+", str(one.specifier)), f"{one} is not pinned"
    return {canonicalize_name(one.name): str(one.specifier)[2:] for one in requirements}


def needed(extras: tuple[str, ...]) -> set[str]:
    """All distributions that stepcredit needs with these extras, directly or not, as far as they are installed."""
    found: set[str] = set()
    pending = [("stepcredit", frozenset(extras))]
    while pending:
        name, wanted = pending.pop()
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            marker = requirement.marker
            asked = marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted | {""})
            own = canonicalize_name(requirement.name)
            if asked and own not in found:
                try:
                    metadata.distribution(own)
                except metadata.PackageNotFoundError:
                    continue
                found.add(own)
                pending.append((own, frozenset(requirement.extras)))
    return found


def test_everything_the_tests_run_with_is_pinned_at_the_version_they_run_with() -> None:
    lock = pinned()
    installed = {name: metadata.version(name).partition("+")[0] for name in needed(SET_UP_EXTRAS)}
    script = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    assert f"torch=={installed.pop('torch')}" in script  # by itself, because its builds differ by machine
    assert set(installed) - set(lock) <= {"setuptools", "pip"}  # Python brings them; they only install
    assert {name: version for name, version in installed.items() if lock.get(name, version) != version} == {}


def test_setting_up_installs_by_the_lock() -> None:
    script = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    assert "--constraint requirements/constraints.txt" in script
    for extra in SET_UP_EXTRAS:
        assert extra in script
        assert extra in PROJECT["optional-dependencies"]


def test_no_gpl_in_the_default_install_nor_in_what_training_needs() -> None:
    for name in needed(("train", "report")):
        about = metadata.metadata(name)
        declared = [about.get("License-Expression") or "", (about.get("License") or "").strip().partition("\n")[0]]
        declared += [line for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
        assert not re.search(r"\bA?GPL|GNU (Affero )?General Public", "; ".join(declared)), (name, declared)


def size_of(name: str) -> int:
    """Bytes of a distribution's files."""
    files = metadata.files(name) or []
    paths = (Path(str(file.locate())) for file in files if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.is_file())


def test_the_default_install_is_small() -> None:
    sizes = {name: size_of(name) for name in needed(())}
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:4]
    assert sum(sizes.values()) < MOST_BYTES, largest


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel, built twice at different times."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    built = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
            check=True,
            cwd=ROOT,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
            capture_output=True,
        )
        built.append(next(folder.glob("*.whl")))
    return built


def test_two_builds_are_equal_byte_by_byte(wheels: list[Path]) -> None:
    assert wheels[0].name == wheels[1].name
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


def test_the_wheel_holds_the_package_and_nothing_else(wheels: list[Path]) -> None:
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"stepcredit", f"stepcredit-{PROJECT['version']}.dist-info"}
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    expected = {name for name in sources if "__pycache__" not in name}
    assert {name for name in names if name.startswith("stepcredit/")} == expected
    assert "stepcredit/py.typed" in names


def test_the_wheel_alone_with_the_default_install_works(wheels: list[Path], tmp_path: Path) -> None:
    """The checkout is not on the path, and nothing beyond the default install can be imported."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(site)
    allowed = {canonicalize_name(name) for name in needed(())} | {"stepcredit"}
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not any(canonicalize_name(owner) in allowed for owner in owners)
    }
    script = f"""
import sys
sys.path[:0] = [{str(site)!r}]
for module in {sorted(modules)!r}:
    sys.modules.setdefault(module, None)
import stepcredit
assert stepcredit.__file__.startswith({str(site)!r}), stepcredit.__file__
from stepcredit.cli import main
main(sys.argv[1:])
"""
    turn = {"observation": "o", "action": "a", "reward": 1.0}
    episode = {"task": "t", "parent": None, "turns": [turn], "final_observation": "", "success": True}
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps({**episode, "episode": name}) + "\n" for name in "ab"))
    small = ("--model", "linear", "--updates", "1", "--tasks-per-update", "1", "--group-size", "2", "--horizon", "2")
    for arguments in (
        ["methods"],
        ["assign", str(rollouts), "--method", "grpo"],
        ["train", *small, "--out", str(tmp_path / "run")],
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert list((tmp_path / "run" / "checkpoints").iterdir())
