"""A retrieval server that speaks Search-R1's protocol, for stacks that ask one.

``POST /retrieve`` with ``{"queries": [text, …]}`` or ``{"query": text}``, and "topk" and "return_scores" if wanted,
answers ``{"result": [[hit, …], …]}``: one list a query, a hit being ``{"document": {"id", "contents"}, "score"}``, or
the document alone without scores. ``GET /health`` tells how many passages there are.

Every resource a client can take is bounded: the size of a request and of its answer, the time to send the one and to
take the other, threads, connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

import h11
import orjson
import uvicorn
from pydantic import BaseModel, Field, ValidationError, model_validator
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepcredit.core.errors import InputError, OptionError
from stepcredit.environments.search_qa.corpus import Passage
from stepcredit.environments.search_qa.remote import TOKEN_VARIABLE
from stepcredit.environments.search_qa.retrievers import CorpusRetriever

DEFAULT_TOPK = 3
_MOST_QUERIES, _MOST_PASSAGES, _LONGEST_QUERY = 1024, 4096, 4096
"""Of one request: queries, passages in the answer, characters of a query."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take.

    Attributes:
        request_bytes: size of a request's body.
        send_seconds: time to send a request's head, and again to send its body.
        take_seconds: time to take what does not fit into the connection's buffer.
        answer_seconds: time until a request is answered, waiting for a thread included.
        connections: open at once; more are answered with 503.
        threads: searches at once.
        stop_seconds: time for requests under way when the server is told to stop.
    """

    request_bytes: int = 4 * 1024 * 1024
    send_seconds: float = 10.0
    take_seconds: float = 10.0
    answer_seconds: float = 30.0
    connections: int = 512
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    stop_seconds: int = 3


class _Asked(BaseModel):
    """A request in either dialect."""

    queries: Annotated[list[str], Field(min_length=1, max_length=_MOST_QUERIES)] | None = None
    query: str | None = None
    topk: Annotated[int, Field(ge=1, le=100)] | None = None
    return_scores: bool = False

    @model_validator(mode="after")
    def _fits(self) -> _Asked:
        if (self.queries is None) == (self.query is None):
            raise ValueError('expected either "queries", a list of text, or "query", a text')
        if len(self.texts) * self.limit > _MOST_PASSAGES:
            raise ValueError(f"expected at most {_MOST_PASSAGES} passages in all; send fewer queries at a time")
        if max(map(len, self.texts)) > _LONGEST_QUERY:
            raise ValueError(f"expected queries of at most {_LONGEST_QUERY} characters")
        return self

    @property
    def texts(self) -> Sequence[str]:
        """What is searched for."""
        return [self.query or ""] if self.queries is None else self.queries

    @property
    def limit(self) -> int:
        """Passages a query."""
        return DEFAULT_TOPK if self.topk is None else self.topk


def serve(
    load: Callable[[], CorpusRetriever],
    *,
    host: str,
    port: int,
    token: str | None,
    ready: Callable[[str, int], None],
    limits: Limits | None = None,
) -> None:
    """Serve until interrupted or terminated; requests under way are finished first.

    Args:
        load: gives the retriever, once the address is known to be free.
        host: address to listen on.
        port: 0 for a free one.
        token: what clients must send as ``Authorization: Bearer …``; None asks for none.
        ready: called with the address of ``/retrieve`` and the number of passages once it answers.
        limits: what one client may take.

    Raises:
        OptionError: an address other than this machine's own without a token, or one that cannot be listened on.
        InputError: a corpus without passages.
    """
    limits = limits or Limits()
    if token is None and not is_loopback(host):
        raise OptionError(f"Serving at {host!r}, which others can reach, needs a token: set {TOKEN_VARIABLE}.")
    if not 0 <= port < 1 << 16:
        raise OptionError(f"port is {port}; expected 0 to 65535, 0 for a free one.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=limits.connections)
    except OSError as error:
        raise OptionError(f"Cannot listen on {host}, port {port}: {error.strerror}; choose another port.") from None
    with listening:
        retriever = load()
        if not len(retriever):
            raise InputError("The corpus holds no passage; expected one JSON object a line.")
        server = uvicorn.Server(make_config(retriever, token=token, limits=limits))
        host, port = listening.getsockname()[:2]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/retrieve", len(retriever))
        with suppress(KeyboardInterrupt):  # which uvicorn raises once it has stopped
            server.run(sockets=[listening])


def make_config(retriever: CorpusRetriever, *, token: str | None, limits: Limits) -> uvicorn.Config:
    """What uvicorn is to run; ``serve`` explains the arguments."""
    return uvicorn.Config(
        make_app(retriever, token=token, limits=limits),
        http=_impatient(limits),
        ws="none",
        loop="asyncio",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=limits.stop_seconds,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def make_app(retriever: CorpusRetriever, *, token: str | None, limits: Limits) -> Starlette:
    """The application; ``serve`` explains the arguments."""
    pool = ThreadPoolExecutor(limits.threads, "retrieve")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        pool.shutdown(wait=False, cancel_futures=True)

    async def retrieve(request: Request) -> Response:
        _admit(request, token)
        asked = _parse(await _body(request, limits))
        loop = asyncio.get_running_loop()
        searches = (loop.run_in_executor(pool, retriever.retrieve, text, asked.limit) for text in asked.texts)
        try:
            async with asyncio.timeout(limits.answer_seconds):
                found = await asyncio.gather(*searches)
        except TimeoutError:
            raise HTTPException(503, f"busy: no answer within {limits.answer_seconds:g} s") from None
        return _json({"result": [[_hit(one, scored=asked.return_scores) for one in hits] for hits in found]})

    async def health(request: Request) -> Response:
        _admit(request, token)
        return _json({"status": "ok", "passages": len(retriever)})

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _json({"detail": error.detail}, error.status_code, {"Connection": "close", **(error.headers or {})})

    return Starlette(
        routes=[Route("/retrieve", retrieve, methods=["POST"]), Route("/health", health)],
        exception_handlers={HTTPException: refuse},
        lifespan=lifespan,
    )


def _admit(request: Request, token: str | None) -> None:
    """Refuse who lacks the token; without one, who calls this machine by a name of his own, as a hostile page may."""
    if token is None:
        if not _names_loopback(request.headers.get("Host", "")):
            raise HTTPException(403, "expected a name of this machine as the host")
        return
    sent = request.headers.get("Authorization", "")
    if not secrets.compare_digest(sent.encode(), f"Bearer {token}".encode()):
        raise HTTPException(401, "expected the server's token", {"WWW-Authenticate": "Bearer"})


def _names_loopback(host: str) -> bool:
    """Whether a ``Host`` header names this machine."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


async def _body(request: Request, limits: Limits) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(limits.send_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.request_bytes:
                    raise HTTPException(413, f"expected at most {limits.request_bytes} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the request was not sent within {limits.send_seconds:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request was not sent to its end") from None
    return bytes(body)


def _parse(body: bytes) -> _Asked:
    try:
        return _Asked.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise HTTPException(400, f"{place}: {first['msg']}" if place else first["msg"]) from None


def _hit(passage: Passage, *, scored: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scored else document


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


def _impatient(limits: Limits) -> type[H11Protocol]:
    """uvicorn's HTTP protocol, which itself waits forever for a request's head and for a client to take its answer."""

    class Impatient(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._sending = _Deadline(limits.send_seconds, transport.abort)
            self._taking = _Deadline(limits.take_seconds, transport.abort)
            self._sending.start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:  # the head is not complete
                self._sending.start()
            else:
                self._sending.stop()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._taking.start()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._taking.stop()

        def connection_lost(self, exc: Exception | None) -> None:
            self._sending.stop()
            self._taking.stop()
            super().connection_lost(exc)

    return Impatient


class _Deadline:
    """Acts unless it is stopped in time. Starting it again changes nothing."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._seconds = seconds
        self._act = act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._act)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
