"""JSON objects on disk: read whole or refused in one sentence; where two of them differ first."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepcredit.core.errors import CheckpointError
from stepcredit.core.objects import first_difference, read_object


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, "ü"]}', encoding="utf-8")
    assert read_object(tmp_path / "a.json", absent="") == {"a": [1, "ü"]}


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": ', b"\xff\xfe", b"[" * 200_000, b"\0"])
def test_what_is_no_json_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"a\.json' is not JSON \(.+\); restore it\."):
        read_object(tmp_path / "a.json", absent="")


def test_what_is_no_object_or_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(CheckpointError, match="holds no JSON object"):
        read_object(tmp_path / "a.json", absent="")
    with pytest.raises(CheckpointError, match=r"^nothing here\.$"):
        read_object(tmp_path / "b.json", absent="nothing here.")
    with pytest.raises(CheckpointError, match="Cannot read"):
        read_object(tmp_path, absent="")


def test_the_first_difference_of_two_trees() -> None:
    assert first_difference({"a": {"b": [1]}}, {"a": {"b": [1]}}) is None
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 2}}) == "a.b is 1 in one and 2 in the other"
    assert first_difference({"a": 1}, {"a": 1, "c": "x"}) == 'c is null in one and "x" in the other'
    assert first_difference({"a": {}}, {"a": None}) == "a is {} in one and null in the other"
    long = first_difference({"a": "x" * 100}, {"a": 1})
    assert long is not None
    assert len(long) < 120
