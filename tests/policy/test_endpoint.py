"""The chat client against a server on the loopback that misbehaves in every way a conversation asks for."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.policy.endpoint import ChatEndpoint, Message, Reply
from stepcredit.policy.endpoint_policy import Counted, EndpointPolicy
from stepcredit.rollouts.calls import Fault
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import Request

KEY = "sk-secret-0123456789"
VARIABLE = "STEPCREDIT_TEST_KEY"


class Server(ThreadingHTTPServer):
    """Answers as the last message asks; remembers requests; ``gate`` ends everything that hangs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.gate = threading.Event()
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wanted = body["messages"][-1]["content"]
        with self.server.lock:
            self.server.asked.append(body)
            self.server.times.append(time.monotonic())
            self.server.headers.append(dict(self.headers))
            before = sum(one["messages"][-1]["content"] == wanted for one in self.server.asked) - 1
        self._answer(wanted, before)

    def _answer(self, wanted: str, before: int) -> None:
        kind, _, times = wanted.partition(" ")
        if times.isdigit() and before >= int(times):
            kind = "fine"
        match kind:
            case "429":
                self._send(429, b'{"error": "slow down"}', {"Retry-After": "0.3"})
            case "429-date":
                self._send(429, b"", {"Retry-After": formatdate(time.time() + 2, usegmt=True)})
            case "500":
                self._send(500, f"broken for {self.headers['Authorization']}".encode())
            case "400":
                self._send(400, f"your header was {self.headers['Authorization']}".encode())
            case "401":
                self._send(401, f"wrong key {KEY[:9]}".encode())
            case "404":
                self._send(404, b"no such model")
            case "redirect":
                self._send(302, b"", {"Location": f"{self.server.url}/elsewhere"})
            case "json":
                self._send(200, f"<html>{self.headers['Authorization']}</html>".encode())
            case "shape":
                self._send(200, b'{"choices": []}')
            case "null":
                self._send(200, b'{"choices": [{"message": {"content": null}}]}')
            case "deep":
                self._send(200, b"[" * 200_000)
            case "hang":
                self.server.gate.wait(30)
            case "drip":
                self._drip()
            case "cut":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"choices"')
            case "slow":
                self._work()
                self._speak("slow")
            case "echo":
                self._speak(f"you sent {self.headers['Authorization']}")
            case "long":
                self._speak("cut off", finish_reason="length")
            case "surrogate":
                self._send(200, b'{"choices": [{"message": {"content": "a\\ud800b"}}]}')
            case _:
                self._speak(f"answer to {wanted}")

    def _work(self) -> None:
        with self.server.lock:
            self.server.running += 1
            self.server.most = max(self.server.most, self.server.running)
        time.sleep(0.1)
        with self.server.lock:
            self.server.running -= 1

    def _drip(self) -> None:
        """Never silent for long, never done: only a limit on the whole answer ends this."""
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        while not self.server.gate.wait(0.05):
            self.wfile.write(b" ")
            self.wfile.flush()

    def _speak(self, text: str, finish_reason: str = "stop") -> None:
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
        self._send(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": 7}}).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.gate.set()
    running.shutdown()
    thread.join()
    running.server_close()


def ask(server: Server, *contents: str, complete: dict[str, Any] | None = None, **options: Any) -> list[Reply | Fault]:
    options = {"key_variable": VARIABLE, "backoff": 0.01, "retries": 2, "timeout": 10.0, **options}
    endpoint = ChatEndpoint(server.url, "some-model", **options)
    conversations = [[Message(role="user", content=content)] for content in contents]
    return endpoint.complete(conversations, temperature=0.4, max_tokens=16, **(complete or {}))


def test_replies_come_in_order_with_what_the_server_says_of_them(server: Server) -> None:
    replies = ask(server, "one", "long", "two")
    assert replies == [
        Reply("answer to one", False, 7),
        Reply("cut off", True, 7),
        Reply("answer to two", False, 7),
    ]


def test_requests_say_what_was_asked(server: Server) -> None:
    ask(server, "one", complete={"seed": [5]})
    assert server.asked == [
        {
            "model": "some-model",
            "messages": [{"role": "user", "content": "one"}],
            "temperature": 0.4,
            "max_tokens": 16,
            "seed": 5,
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_no_key_no_header(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    ask(server, "one")
    assert "Authorization" not in server.headers[0]


def test_waits_as_long_as_the_server_says_and_asks_again(server: Server) -> None:
    replies = ask(server, "429 1", "one")
    assert [reply.text for reply in replies if isinstance(reply, Reply)] == ["answer to 429 1", "answer to one"]
    assert len(server.asked) == 3
    assert server.times[2] - server.times[0] >= 0.29


def test_waits_until_a_date(server: Server) -> None:
    assert isinstance(ask(server, "429-date 1")[0], Reply)
    assert server.times[1] - server.times[0] >= 0.9  # a header's date has whole seconds


def test_backs_off_longer_each_time_and_gives_up(server: Server) -> None:
    (reply,) = ask(server, "500", backoff=0.1)
    assert isinstance(reply, Fault)
    assert reply.reason.startswith("status 500 from http://127.0.0.1")
    assert len(server.asked) == 3
    first, second, third = server.times
    assert second - first >= 0.1
    assert third - second >= 0.2


@pytest.mark.parametrize(
    ("content", "attempts", "reason"),
    [
        ("400", 1, "status 400"),
        ("redirect", 1, "status 302"),
        ("json", 1, "no JSON"),
        ("deep", 1, "unusable answer"),
        ("shape", 1, r"no text at choices\[0\].message.content"),
        ("null", 1, r"no text at choices\[0\].message.content"),
        ("cut", 3, "broke off"),
        ("hang", 3, "no answer"),
        ("drip", 3, "no answer within 0.5 s"),
    ],
)
def test_what_goes_wrong_is_a_fault_of_its_own_conversation(
    server: Server, content: str, attempts: int, reason: str
) -> None:
    fault, reply = ask(server, content, "fine", timeout=0.5 if content in ("hang", "drip") else 10.0)
    assert isinstance(fault, Fault)
    assert re.search(reason, fault.reason), fault.reason
    assert isinstance(reply, Reply)
    assert len(server.asked) == attempts + 1
    assert KEY not in repr(fault)


def test_a_server_that_is_not_there_stops_everything() -> None:
    endpoint = ChatEndpoint("http://127.0.0.1:9/v1", "m", backoff=0.0, retries=1, timeout=5.0)
    with pytest.raises(OptionError, match=r"Nobody answers at http://127\.0\.0\.1:9/v1; start the server"):
        endpoint.complete([[Message(role="user", content="a")]], temperature=0, max_tokens=1)
    assert endpoint.complete([], temperature=0, max_tokens=1) == []


def test_a_refused_key_stops_everything_and_is_not_shown(server: Server) -> None:
    with pytest.raises(OptionError, match=rf"refuses the key in \${VARIABLE} \(status 401\); check it") as refused:
        ask(server, "401", "fine")
    assert KEY[:9] not in str(refused.value)


def test_a_model_that_is_not_there_stops_everything(server: Server) -> None:
    with pytest.raises(OptionError, match="knows no model 'some-model'"):
        ask(server, "404")


def test_the_key_is_cut_out_of_whatever_the_server_sends_back(server: Server) -> None:
    for content in ("echo", "400", "500", "json"):
        (answer,) = ask(server, content)
        assert KEY not in repr(answer)
    (reply,) = ask(server, "echo")
    assert isinstance(reply, Reply)
    assert reply.text == "you sent Bearer [key]"


def test_a_key_that_cannot_be_a_header_is_refused_unseen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{KEY}\nX-Other: 1")
    with pytest.raises(OptionError, match="holds characters that no key has") as refused:
        ask(server, "one")
    assert KEY not in str(refused.value)
    assert server.asked == []


def test_no_more_requests_in_flight_than_allowed(server: Server) -> None:
    ask(server, *[f"slow {number}" for number in range(100, 106)], concurrency=2)
    assert server.most <= 2
    assert len(server.asked) == 6


def test_text_that_no_file_could_hold_is_mended(server: Server) -> None:
    (reply,) = ask(server, "surrogate")
    assert isinstance(reply, Reply)
    assert reply.text == "a?b"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/v1", "is no address of an endpoint"),
        ("localhost:8000", "is no address of an endpoint"),
        ("http://", "is no address of an endpoint"),
        ("http://host:port/v1", "is no address of an endpoint"),
        (f"https://user:{KEY}@host/v1", "may not hold a user or password"),
    ],
)
def test_addresses_are_checked(url: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        ChatEndpoint(url, "m")
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"retries": -1}, {"timeout": 0.0}, {"backoff": float("nan")}])
def test_numbers_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="expected a finite number"):
        ChatEndpoint("http://host/v1", "m", **options)


def requests(count: int) -> list[Request]:
    return [Request(key, "goal", (), f"seen {key}", ("go",), 5) for key in range(count)]


def test_as_a_policy_it_answers_requests(server: Server) -> None:
    endpoint = ChatEndpoint(server.url, "m", key_variable=VARIABLE)
    policy = EndpointPolicy(endpoint, PromptTemplate("{goal}: {observation}"), max_response_tokens=9)
    session = policy.session([3], temperature=0.5)
    answers = session.respond(requests(2))
    assert [answer.text for answer in answers] == ["answer to goal: seen 0", "answer to goal: seen 1"]
    assert [answer.record for answer in answers] == [Counted(7)] * 2
    session.respond(requests(1))
    seeds = [body["seed"] for body in server.asked]
    assert len(set(seeds)) == 3
    again = policy.session([3], temperature=0.5)
    again.respond(requests(2))
    assert sorted(body["seed"] for body in server.asked[3:]) == sorted(seeds[:2])


def test_as_a_policy_it_fails_single_responses(server: Server) -> None:
    endpoint = ChatEndpoint(server.url, "m", key_variable=VARIABLE, retries=0)
    policy = EndpointPolicy(endpoint, PromptTemplate("{observation}{goal}", history=0), max_response_tokens=9)
    asked = [Request(0, "", (), "json", (), 5), Request(1, "", (), "fine", (), 5)]
    broken, fine = policy.session([0]).respond(asked)
    assert broken.failure.startswith("unusable answer")
    assert fine.text == "answer to fine"
    assert not fine.failure


def test_as_a_policy_it_refuses_what_does_not_fit() -> None:
    endpoint = ChatEndpoint("http://host/v1", "m")
    with pytest.raises(OptionError, match="not append-only"):
        EndpointPolicy(endpoint, PromptTemplate("{goal}{observation}", append_only=True), max_response_tokens=9)
    for numbers, message in (((0, 0), "max_response_tokens is 0; expected at least 1"), ((9, -1), "repairs is -1")):
        with pytest.raises(OptionError, match=message):
            EndpointPolicy(
                endpoint, PromptTemplate("{goal}{observation}"), max_response_tokens=numbers[0], repairs=numbers[1]
            )
