"""Servers under siege, for seconds; ``benchmarks/soak.py servers`` lets 200 clients in for a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.siege import besiege

SHOP = (["play", "shopping", "--web"], b"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
RETRIEVER = (
    ["serve-retriever", "corpus.jsonl", "--port", "0"],
    b"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Length: 29\r\nConnection: close\r\n\r\n"
    b'{"queries": ["river 7 town"]}',
)


@pytest.mark.parametrize(("command", "request_"), [SHOP, RETRIEVER], ids=["shop", "retriever"])
def test_a_siege_brings_no_error_no_growth_and_no_hanger_on(
    command: list[str], request_: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command[0] == "serve-retriever":
        pytest.importorskip("uvicorn", reason="the extra serve is not installed")
        lines = (f'{{"id": "{n}", "contents": "Town {n}\\nTown {n} lies on river {n % 7}."}}\n' for n in range(50))
        (tmp_path / "corpus.jsonl").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    figures = besiege(command, request_, clients=20, seconds=2.0)
    assert (figures["errors"], figures["first_error"]) == (0, "")
    assert figures["requests"] > 20
    assert figures["slow_clients_cut"] == figures["slow_clients"]
    assert figures["grown_mb"] < 20
    assert figures["stop_seconds"] < 5
