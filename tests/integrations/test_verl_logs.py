"""verl itself writes dumps that ``convert`` reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="needs verl: scripts/test-engines verl")

FILES = Path(__file__).parent / "files"


def test_what_verl_dumps_now_is_what_the_tests_read(tmp_path: Path) -> None:
    sys.path.insert(0, str(FILES))
    try:
        from make_verl import write
    finally:
        sys.path.remove(str(FILES))
    write(tmp_path)
    for name in ("verl_v1.jsonl", "verl_v0.jsonl"):
        assert (tmp_path / name).read_text() == (FILES / name).read_text()
