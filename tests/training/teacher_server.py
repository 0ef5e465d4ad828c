"""A chat server on the loopback whose answers a function gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Messages = list[dict[str, str]]
Brain = Callable[[Messages], str | int]
"""What is said to a conversation, or the status that refuses it."""


class TeacherServer(ThreadingHTTPServer):
    """Remembers every conversation it was asked."""

    daemon_threads = True

    def __init__(self, brain: Brain) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.brain = brain
        self.asked: list[Messages] = []
        self.bodies: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: TeacherServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(body["messages"])
            self.server.bodies.append(body)
            said = self.server.brain(body["messages"])
        if isinstance(said, int):
            self._send(said, b"no")
        else:
            choice = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            self._send(200, json.dumps({"choices": [choice]}).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def teacher_server(brain: Brain) -> Iterator[TeacherServer]:
    """A running server."""
    server = TeacherServer(brain)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
