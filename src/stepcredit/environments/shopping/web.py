"""The shop served to a person's browser: the same session as an agent's, on this machine only."""

from __future__ import annotations

import io
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any
from urllib.parse import parse_qs

from stepcredit.environments.protocol import Task
from stepcredit.environments.shopping.environment import search_command
from stepcredit.environments.shopping.suite import ShoppingSuite
from stepcredit.environments.shopping.web_page import STYLE, document

ADDRESS = "127.0.0.1"
_LARGEST_FORM = 64 * 1024
"""Bytes."""
_SECONDS_TO_SEND = 10.0
"""For a whole request, however it trickles in."""
_MOST_VISITORS = 256
"""Connections at once; more are closed unanswered."""
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class ShopServer(ThreadingHTTPServer):
    """Serves one visit after the other to whoever opens ``url`` on this machine.

    Args:
        suite: the shop.
        tasks: what customers want, one after the other, again from the first after the last; not empty.
        port: 0 for a free one.
    """

    daemon_threads = True
    request_queue_size = _MOST_VISITORS

    def __init__(self, suite: ShoppingSuite, tasks: Sequence[Task], port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.url = f"http://{ADDRESS}:{self.server_port}/"
        self.hosts = tuple(f"{name}:{self.server_port}" for name in (ADDRESS, "localhost"))
        self._suite = suite
        self._customers = cycle(tasks)
        self._token = secrets.token_urlsafe()
        self._turn = 0
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_VISITORS)
        self._welcome()

    def page(self) -> str:
        """The present page."""
        with self._lock:
            return document(self.environment, {"token": self._token, "turn": str(self._turn)})

    def submit(self, form: Mapping[str, str]) -> bool:
        """Act on a form; False where it did not come from one of our pages.

        A form of an earlier page, as another tab would send it, does nothing.
        """
        if not secrets.compare_digest(form.get("token", "").encode(), self._token.encode()):
            return False
        with self._lock:
            if form.get("turn") == str(self._turn):
                self._act(form)
                self._turn += 1
        return True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, while there are not too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error; anything else is."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def _act(self, form: Mapping[str, str]) -> None:
        session = self.environment.session
        clicked = form.get("click", "")
        if "next" in form:
            self._welcome()
        elif clicked.isdecimal() and len(clicked) < 9:
            for text in session.clickables[int(clicked) : int(clicked) + 1]:
                session.act(f"click[{text}]")
        elif session.visit.page == "search":
            session.act(search_command(form.get("search", "")))

    def _welcome(self) -> None:
        self.environment = self._suite.make(next(self._customers))
        self.environment.reset()


class _Handler(BaseHTTPRequestHandler):
    server: ShopServer
    timeout = _SECONDS_TO_SEND

    def setup(self) -> None:
        """Give the whole request the time of one."""
        super().setup()
        self.rfile = io.BufferedReader(_UntilDeadline(self.connection, time.monotonic() + _SECONDS_TO_SEND))

    def do_GET(self) -> None:
        if not self._is_local():
            return
        if self.path == "/":
            self._answer(HTTPStatus.OK, "text/html", self.server.page())
        elif self.path == "/style.css":
            self._answer(HTTPStatus.OK, "text/css", STYLE)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        if not self._is_local():
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length[:9]) > _LARGEST_FORM:
            self.close_connection = True
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        body = self.rfile.read(int(length)).decode("utf-8", "replace")
        form = {name: values[-1] for name, values in parse_qs(body, max_num_fields=8).items()}
        if not self.server.submit(form):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the pages are the output."""

    def _is_local(self) -> bool:
        """Whether the request names this server itself; a page elsewhere that borrows its address is refused."""
        if self.headers.get("Host") in self.server.hosts:
            return True
        self.send_error(HTTPStatus.FORBIDDEN)
        return False

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in _SECURITY.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _UntilDeadline(io.RawIOBase):
    """What a socket receives until a moment, after which reading raises TimeoutError."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
