"""The retrieval server, as a process of its own, asked by our client and by clients that mean it no good."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from stepcredit.core.errors import EnvironmentFaultError, InputError, OptionError
from stepcredit.environments.search_qa.corpus import make_passage
from stepcredit.environments.search_qa.remote import TOKEN_VARIABLE, ServerRetriever
from stepcredit.environments.search_qa.retrievers import CorpusRetriever
from stepcredit.environments.search_qa.suite import SearchSuite

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("starlette", reason="the extra serve is not installed")

from stepcredit.environments.search_qa import server as served

LINES = [
    {"id": "a", "contents": '"Red Fox"\nThe red fox lives in the forest.'},
    {"id": "b", "contents": '"Blue Whale"\nThe whale lives in the sea \ud800\x00</information>.'},
]
RETRIEVER = CorpusRetriever.in_memory([make_passage(line["id"], line["contents"]) for line in LINES])
QUICK = served.Limits(send_seconds=0.5, take_seconds=0.5, answer_seconds=5)


@dataclass
class Running:
    """A server: in a process of its own, or in a thread with limits of the test's choice."""

    url: str
    process: subprocess.Popen[str] | None = None
    connections: Callable[[], set[Any]] = set

    def ask(self, body: bytes | dict[str, Any], *, method: str = "POST", path: str = "", **headers: str) -> Any:
        """Status and JSON answer."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path or parts.path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def connect(self) -> socket.socket:
        """A bare connection."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return socket.create_connection((parts.hostname, parts.port), timeout=20)


@contextmanager
def process(folder: Path, *options: str, **environment: str) -> Iterator[Running]:
    """``stepcredit serve-retriever`` on a free port."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    command = [sys.executable, "-m", "stepcredit.cli", "serve-retriever", str(corpus), "--port", "0", *options]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert started.stderr is not None
    try:
        line = started.stderr.readline()
        address = re.fullmatch(r"Serving 2 passages at (http://\S+/retrieve); Ctrl-C stops it\.\n", line)
        assert address is not None, line
        yield Running(address[1], started)
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate()


@contextmanager
def thread(retriever: Any = RETRIEVER, limits: served.Limits = QUICK) -> Iterator[Running]:
    """The application with limits of the test's choice, in a thread."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = served.make_config(retriever, token=None, limits=limits)
    server = served.uvicorn.Server(config)
    worker = threading.Thread(target=server.run, args=([listening],))
    worker.start()
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/retrieve"
        yield Running(url, connections=lambda: server.server_state.connections)
    finally:
        server.should_exit = True
        worker.join()
        listening.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with thread() as started:
        yield started


class TestProcess:
    def test_our_own_client_and_both_dialects(self, tmp_path: Path) -> None:
        with process(tmp_path) as running:
            for dialect in ("batch", "single"):
                client = ServerRetriever(running.url, dialect)
                assert client.retrieve("fox", 3) == RETRIEVER.retrieve("fox", 3)
                assert client.retrieve("nothing", 3) == []
            suite = SearchSuite(server=running.url)
            environment = suite.make(suite.tasks("train")[0])
            assert "Doc 1(Title: Red Fox)" in environment.step("<search>a fox</search>")[0]
            assert urlsplit(running.url).hostname == "127.0.0.1"

    @pytest.mark.parametrize(("how", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
    def test_it_stops_within_five_seconds(self, tmp_path: Path, how: signal.Signals, status: int) -> None:
        with process(tmp_path, "--index", str(tmp_path / "index")) as running, running.connect() as lingering:
            lingering.sendall(b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            assert running.ask({"query": "fox"})[0] == 200
            assert running.process is not None
            running.process.send_signal(how)
            assert running.process.wait(timeout=5) == status

    def test_others_are_let_in_by_token_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(OptionError, match=r"'0\.0\.0\.0', which others can reach, needs a token: set STEPCREDIT"):
            served.serve(lambda: RETRIEVER, host="0.0.0.0", port=0, token=None, ready=lambda *_: None)
        with process(tmp_path, "--host", "0.0.0.0", **{TOKEN_VARIABLE: "s3cret"}) as running:
            url = running.url.replace("0.0.0.0", "127.0.0.1")
            running = replace(running, url=url)
            assert running.ask({"query": "fox"})[0] == 401
            assert running.ask({"query": "fox"}, Authorization="Bearer s3cre")[0] == 401
            assert running.ask(b"", method="GET", path="/health")[0] == 401
            assert running.ask({"query": "fox"}, Authorization="Bearer s3cret")[0] == 200
            with pytest.raises(EnvironmentFaultError, match="401"):
                ServerRetriever(url).retrieve("fox", 1)
            monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
            suite = SearchSuite(server=url)
            assert "Red Fox" in suite.make(suite.tasks("train")[0]).step("<search>fox</search>")[0]

    def test_a_taken_port_is_told_before_the_corpus_is_read(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OptionError, match="choose another port"):
            served.serve(pytest.fail, host="127.0.0.1", port=taken.getsockname()[1], token=None, ready=lambda *_: None)

    @pytest.mark.parametrize("port", [-1, 99999])
    def test_a_port_that_does_not_exist_is_refused(self, port: int) -> None:
        with pytest.raises(OptionError, match=f"port is {port}; expected 0 to 65535"):
            served.serve(pytest.fail, host="127.0.0.1", port=port, token=None, ready=lambda *_: None)

    def test_a_corpus_of_nothing_is_not_served(self) -> None:
        with pytest.raises(InputError, match="holds no passage"):
            served.serve(lambda: CorpusRetriever.in_memory([]), host="127.0.0.1", port=0, token=None, ready=print)

    def test_without_the_extra_the_error_says_what_to_install(self, tmp_path: Path) -> None:
        program = (
            "import sys; sys.modules['uvicorn'] = None; from stepcredit.cli import main; "
            f"main(['serve-retriever', {str(tmp_path / 'x')!r}])"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "pip install 'stepcredit[serve]'" in done.stderr


class TestProtocol:
    FOX = {"id": "a", "contents": '"Red Fox"\nThe red fox lives in the forest.'}  # noqa: RUF012  # never changed

    def test_answers(self, running: Running) -> None:
        (hit,) = RETRIEVER.retrieve("fox", 1)
        scored = {"document": self.FOX, "score": hit.score}
        status, answer = running.ask({"queries": ["fox", "none", "fox"], "topk": 1, "return_scores": True})
        assert (status, answer) == (200, {"result": [[scored], [], [scored]]})
        assert running.ask({"queries": ["fox"]}) == (200, {"result": [[self.FOX]]})
        assert running.ask({"query": "fox", "topk": None, "other": 1}) == (200, {"result": [[self.FOX]]})
        status, answer = running.ask({"query": "whale"})
        assert (
            answer["result"][0][0]["contents"] == '"Blue Whale"\nThe whale lives in the sea \ufffd\x00</information>.'
        )
        assert running.ask(b"", method="GET", path="/health") == (200, {"status": "ok", "passages": 2})

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            (b"", "EOF"),
            (b"[" * 100_000, "recursion limit"),
            (b"\xff", "Invalid"),
            ({}, 'either "queries"'),
            ({"query": "x", "queries": ["x"]}, 'either "queries"'),
            ({"queries": []}, "queries"),
            ({"queries": ["x"] * 1025}, "queries"),
            ({"queries": ["x"] * 100, "topk": 100}, "at most 4096 passages"),
            ({"query": "x" * 5000}, "at most 4096 characters"),
            ({"query": "x", "topk": 0}, "topk"),
            ({"query": "x", "topk": 101}, "topk"),
            ({"query": ["x"]}, "query"),
        ],
    )
    def test_what_is_not_understood(self, running: Running, body: Any, complaint: str) -> None:
        status, answer = running.ask(body)
        assert status == 400
        assert complaint in answer["detail"]

    def test_what_is_refused(self, running: Running) -> None:
        assert running.ask(b"x" * (4 * 1024 * 1024 + 1))[0] == 413
        assert running.ask({"query": "x"}, Host="example.org")[0] == 403
        assert running.ask({"query": "x"}, Host="[::1")[0] == 403
        assert running.ask({"query": "x"}, path="/other")[0] == 404
        assert running.ask(b"", method="GET")[0] == 405


class TestLimits:
    """A client that takes its time is cut off; the others do not notice."""

    @pytest.mark.parametrize(
        "slow",
        [b"", b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"\r\n"],
        ids=["nothing", "half a head", "a blank line"],
    )
    def test_heads_have_a_deadline(self, running: Running, slow: bytes) -> None:
        with running.connect() as connection:
            connection.sendall(slow)
            assert cut_off(connection, drip=b"x" if slow.endswith(b" ") else b"")
        assert running.ask({"query": "fox"})[0] == 200

    def test_so_has_the_head_after_an_answer(self, running: Running) -> None:
        with running.connect() as connection:
            body = b'{"query": "fox"}'
            connection.sendall(b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n" + body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(b"POST /retr")
            assert cut_off(connection, drip=b"x")

    def test_bodies_have_a_deadline(self, running: Running) -> None:
        with running.connect() as connection:
            connection.sendall(b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            assert connection.recv(65536).startswith(b"HTTP/1.1 408")
            assert cut_off(connection, drip=b"")

    def test_answers_must_be_taken(self) -> None:
        """An answer of 16 MB that nobody reads does not stay in memory."""
        long = CorpusRetriever.in_memory([make_passage("a", "fox\n" + "x" * 4000)] * 100)
        with thread(long) as running, running.connect() as connection:
            body = json.dumps({"queries": ["fox"] * 40, "topk": 100}).encode()
            head = f"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            wait_until(lambda: not running.connections())

    def test_a_search_that_takes_too_long(self) -> None:
        release = threading.Event()

        class Stuck:
            def __len__(self) -> int:
                return 1

            def retrieve(self, query: str, limit: int) -> list[Any]:
                release.wait(20)
                return []

        with thread(Stuck(), replace(QUICK, answer_seconds=0.3, threads=1)) as running:
            status, answer = running.ask({"queries": ["fox"] * 50})
            release.set()
            assert (status, answer) == (503, {"detail": "busy: no answer within 0.3 s"})
            assert running.ask({"query": "fox"})[0] == 200

    def test_more_connections_than_allowed_are_told_so(self) -> None:
        with thread(limits=replace(QUICK, connections=5, send_seconds=5)) as running, ExitStack() as idle:
            for _ in range(5):
                idle.enter_context(running.connect())
            wait_until(lambda: status_of(running) == 503)

    def test_two_hundred_clients_at_once(self) -> None:
        """Each asks five times; all get the right answer, and no more threads search than allowed."""
        searching, most = threading.Semaphore(3), []

        class Counting:
            def __len__(self) -> int:
                return 2

            def retrieve(self, query: str, limit: int) -> Any:
                most.append(searching.acquire(blocking=False))
                try:
                    return RETRIEVER.retrieve(query, limit)
                finally:
                    searching.release()

        with thread(Counting(), replace(QUICK, threads=3, send_seconds=10, answer_seconds=30)) as running:
            port = urlsplit(running.url).port
            assert port is not None
            answers = asyncio.run(_ask_all(port, clients=200, each=5))
        assert len(answers) == 1000
        assert {json.dumps(answer) for answer in answers} == {json.dumps({"result": [[TestProtocol.FOX]]})}
        assert len(most) == 1000
        assert all(most)


async def _ask_all(port: int, *, clients: int, each: int) -> list[Any]:
    body = b'{"query": "fox"}'
    request = f"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def client() -> list[Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = []
        for _ in range(each):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            found.append(json.loads(await reader.readexactly(int(length[1]))))
        writer.close()
        await writer.wait_closed()
        return found

    answers = await asyncio.gather(*(client() for _ in range(clients)))
    return [answer for one in answers for answer in one]


def status_of(running: Running) -> int:
    connection = http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=20)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status


def cut_off(connection: socket.socket, *, drip: bytes) -> bool:
    """Whether the server ends the connection, though a byte comes now and then."""
    connection.settimeout(0.1)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if drip:
                connection.sendall(drip)
            if connection.recv(65536) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
