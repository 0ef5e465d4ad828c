"""Many clients at once against ``stepcredit serve-retriever``, all on this machine, for a bounded time.

    python benchmarks/serve_load.py [--clients 200] [--seconds 60] [--json FILE]

Starts the server as a process of its own over 1,000 drawn passages, keeps ``--clients`` connections busy with one
request after the other, and beside them keeps ten connections that never finish a request. Counts answers and what was
wrong with them, and reads the server's memory before and after. At the end it is told to stop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from rich.console import Console
from rich.table import Table
from search_speed import write_corpus

PASSAGES, IDLE = 1_000, 10


async def client(port: int, query: str, end: float, latencies: list[float], wrong: list[str]) -> None:
    """Ask the same thing over and over; all answers must be alike."""
    body = json.dumps({"query": query, "topk": 3, "return_scores": True}).encode()
    request = f"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    first = None
    while time.monotonic() < end:
        started = time.monotonic()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        answer = await reader.readexactly(int(length[1]) if length else 0)
        latencies.append(time.monotonic() - started)
        first = answer if first is None else first
        if not head.startswith(b"HTTP/1.1 200") or answer != first or not json.loads(answer)["result"][0]:
            wrong.append(head.split(b"\r\n", 1)[0].decode())
    writer.close()


async def dawdler(port: int, end: float) -> int:
    """Send a head byte by byte, again whenever the server hangs up; how often it did."""
    cut = 0
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /retrieve HTTP/1.1\r\nX-Slow: ")
        reading = asyncio.ensure_future(reader.read())
        while time.monotonic() < end and not reading.done():
            writer.write(b"x")
            await asyncio.sleep(0.5)
        cut += reading.done()
        reading.cancel()
        writer.close()
    return cut


async def load(port: int, queries: list[str], clients: int, seconds: float) -> tuple[list[float], list[str], int]:
    """Latencies, wrong answers, and how often a dawdler was cut off."""
    latencies: list[float] = []
    wrong: list[str] = []
    end = time.monotonic() + seconds
    busy = [client(port, queries[number % len(queries)], end, latencies, wrong) for number in range(clients)]
    *_, cuts = await asyncio.gather(*busy, asyncio.gather(*(dawdler(port, end) for _ in range(IDLE))))
    return latencies, wrong, sum(cuts)


def memory_mb(process: int) -> float:
    """Resident memory of a process (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def measure(clients: int, seconds: float) -> dict[str, float]:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        queries = write_corpus(corpus, PASSAGES)
        command = [sys.executable, "-m", "stepcredit.cli", "serve-retriever", str(corpus), "--port", "0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        port = urlsplit(server.stderr.readline().split()[4].rstrip(";")).port
        assert port is not None
        asyncio.run(load(port, queries, clients, 1.0))
        before = memory_mb(server.pid)
        latencies, wrong, cuts = asyncio.run(load(port, queries, clients, seconds))
        after = memory_mb(server.pid)
        stopped = time.monotonic()
        server.send_signal(signal.SIGINT)
        server.communicate()
        stopped = time.monotonic() - stopped
    return {
        "answers per second": len(latencies) / seconds,
        "wrong answers": len(wrong),
        "latency, median, ms": float(np.median(latencies)) * 1e3,
        "latency, 99 %, ms": float(np.quantile(latencies, 0.99)) * 1e3,
        "dawdlers cut off": cuts,
        "server's memory before, MB": before,
        "server's memory after, MB": after,
        "time to stop, s": stopped,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures = measure(arguments.clients, arguments.seconds)
    table = Table(title=f"{arguments.clients} clients for {arguments.seconds:g} s")
    for column in ("figure", "measured"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.1f}")
    Console().print(table)
    if arguments.json is not None:
        record = {
            "clients": arguments.clients,
            "seconds": arguments.seconds,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "stepcredit": figures,
        }
        arguments.json.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
