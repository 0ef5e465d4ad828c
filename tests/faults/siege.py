"""Many clients at one server, and some that hardly send: what it answers, what it grows by, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SLOW_CLIENTS = 20
PATIENCE = 30.0
"""Seconds after which a slow client must have been cut."""


def besiege(command: Sequence[str], request: bytes, *, clients: int, seconds: float) -> dict[str, Any]:
    """Start ``stepcredit COMMAND``, which says its address on standard error, and besiege it.

    Args:
        command: a verb that serves.
        request: what a client sends, ``{host}`` standing for the server's; a fresh connection each time.
        clients: at once.
        seconds: how long.

    Returns:
        ``requests``, ``errors``, ``slowest_ms``; ``grown_mb`` of memory between the first quarter and the end;
        ``slow_clients`` and how many of them were cut; ``stop_seconds`` from the interruption to the end, in the
        presence of a slow client.
    """
    server = subprocess.Popen(
        [sys.executable, "-m", "stepcredit.cli", *command],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        found = re.search(r"http://\S+?(?=[/;\s])", said)
        assert found is not None, said + server.stderr.read()
        address = urlsplit(found[0])
        host, port = address.hostname or "", address.port or 80
        figures = asyncio.run(_siege(server.pid, host, port, request, clients, seconds))
        with contextlib.closing(_slow_connection(host, port)):
            began = time.monotonic()
            server.send_signal(signal.SIGINT)
            server.wait(60)
            figures["stop_seconds"] = round(time.monotonic() - began, 2)
        return figures
    finally:
        server.kill()
        server.communicate()


async def _siege(process: int, host: str, port: int, request: bytes, clients: int, seconds: float) -> dict[str, Any]:
    content = request.replace(b"{host}", f"{host}:{port}".encode())
    until = time.monotonic() + seconds
    times: list[float] = []
    errors: list[str] = []

    async def ask() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                answer = await asyncio.wait_for(_request(host, port, content), 60)
            except (OSError, TimeoutError) as error:
                errors.append(repr(error))
                continue
            times.append(time.monotonic() - began)
            if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
                errors.append(answer[:80].decode("latin-1"))

    async def early() -> float:
        await asyncio.sleep(seconds / 4)
        return _resident(process)

    before, *_ = await asyncio.gather(early(), *(ask() for _ in range(clients)))
    grown = _resident(process) - before
    cut = await asyncio.gather(*(_trickle(host, port) for _ in range(SLOW_CLIENTS)))
    return {
        "clients": clients,
        "seconds": seconds,
        "requests": len(times),
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "slowest_ms": round(max(times, default=0) * 1e3),
        "grown_mb": round(grown / 1e6, 2),
        "slow_clients": len(cut),
        "slow_clients_cut": sum(cut),
    }


async def _request(host: str, port: int, content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(content)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()


async def _trickle(host: str, port: int) -> bool:
    """Whether a client that sends one byte of a header a second is cut in time."""
    reader, writer = await asyncio.open_connection(host, port)
    closed = asyncio.create_task(reader.read())
    try:
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(int(PATIENCE)):
            with contextlib.suppress(OSError):
                writer.write(b"x")
                await writer.drain()
            done, _ = await asyncio.wait({closed}, timeout=1.0)
            if done:
                return True
        return False
    finally:
        closed.cancel()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await closed
        writer.close()


def _slow_connection(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.sendall(b"GET / HTTP/1.1\r\nX: ")
    return connection


def _resident(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())
