"""Rules for the files of the repository: sizes, nothing of the machine they were written on, links, changelog."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Written in two halves where this file would otherwise contain what it forbids.
MACHINE_PATHS = r"(?:^|(?<=[\s\"'`(=:,]))/(?:" + "|".join(("work", "tmp", "root", "home", "Users", "opt")) + r")\b"
HOSTS = r"\b(?:" + "|".join(
    host.replace(" ", r"\.")
    for host in (
        "pypi org",
        "files pythonhosted org",
        "download pytorch org",
        "registry npmjs org",
        "deb debian org",
        "conda anaconda org",
    )
) + r")\b"  # fmt: skip
WORKPLACE = "|".join(("shared" + "/docs", r"\.lib" + "rary", r"\bfarm" + "-", r"\bissues" + " show"))
FORBIDDEN = re.compile("|".join((MACHINE_PATHS, HOSTS, WORKPLACE)), flags=re.MULTILINE)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def repository_files() -> list[Path]:
    """Every file that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    # A file that was deleted and not yet committed is still listed.
    return [path for name in sorted(done.stdout.split("\0")) if name and (path := ROOT / name).is_file()]


def test_files_and_functions_are_short() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "sizes.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_forbidden_text_is_recognised() -> None:
    for text in ("see /" + "tmp/x", "'/" + "work/main'", "https://pypi" + ".org/simple", "shared" + "/docs/format.md"):
        assert FORBIDDEN.search(text), text
    for text in ("docs/work/page.md", "a fraction 3/work", "go to drawer 1", "/worker"):
        assert not FORBIDDEN.search(text), text


def test_no_machine_paths_registry_hosts_or_workplace_names(repository_files: list[Path]) -> None:
    found = []
    for path in repository_files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary
        for match in FORBIDDEN.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line}: {match[0]}")
    assert found == []


def test_relative_links_of_markdown_files_resolve(repository_files: list[Path]) -> None:
    broken = []
    for path in repository_files:
        if path.suffix != ".md":
            continue
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in LINK.findall(text):
            file = target.partition("#")[0]
            if file and not re.match(r"[a-z]+:", target) and not (path.parent / file).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def test_changelog_has_the_current_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(version)}\b", changelog, flags=re.MULTILINE)


def test_log_entries_are_named_by_date() -> None:
    for path in (ROOT / "docs" / "log").iterdir():
        assert re.fullmatch(r"index|\d{4}-\d{2}-\d{2}-[a-z0-9-]+", path.stem), path.name
