"""A chat model behind an OpenAI-compatible endpoint: a batch of conversations in, a reply or a fault for each out.

A conversation that gets no usable reply is a fault, a value that belongs to its own episode. Only what concerns every
conversation alike (the key is refused, no such model or address) is an error. The key is read from an environment
variable when a request is made; it is stored nowhere, and cut out of everything a server sends back.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypedDict
from urllib.parse import urlsplit

from stepcredit.core.errors import OptionError, check_least
from stepcredit.rollouts.calls import Fault, attempt_all, describe

_LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer; a longer one is cut there and is no JSON any more."""
_LONGEST_WAIT = 60.0
"""Seconds before a retry at most, whatever ``Retry-After`` says."""
_LONGEST_EXCERPT = 200
_RETRIED = {408, 425, 429}
"""Statuses below 500 that are worth another attempt."""


class Message(TypedDict):
    """One message of a conversation; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said.

    Attributes:
        text: the message; may be empty.
        truncated: the token limit ended it.
        tokens: generated tokens, where the server counts them.
    """

    text: str
    truncated: bool = False
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _Retry:
    """Worth another attempt: why, and after how many seconds where the server says so; whether nobody was there."""

    reason: str
    wait: float | None = None
    nobody: bool = False


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A fault that every other conversation would meet too, as a sentence."""

    sentence: str


class ChatEndpoint:
    """One model of one server.

    Args:
        base_url: address up to and without ``/chat/completions``, usually ending in ``/v1``; http or https.
        model: name the server knows the model by.
        key_variable: environment variable that holds the key; unset means that no key is sent.
        concurrency: requests in flight, at least 1.
        timeout: seconds one attempt may take, from the first byte sent to the last byte read.
        retries: further attempts after 408, 425, 429, any 5xx, a lost connection or a time-out, at least 0.
        backoff: seconds before the first of them; doubles with each, 60 at most. ``Retry-After`` comes first.

    Raises:
        OptionError: an address that is not http(s) or holds a password, or a number out of range.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        key_variable: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        timeout: float = 120.0,
        retries: int = 4,
        backoff: float = 1.0,
    ) -> None:
        self.base_url = _check_address(base_url)
        self.model = model
        self.key_variable = key_variable
        for name, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0), ("backoff", backoff, 0)):
            check_least(name, value, least)
        if not 0 < timeout < math.inf:
            raise OptionError(f"timeout is {timeout} s; expected a finite number above 0.")
        self._concurrency, self._timeout, self._retries, self._backoff = concurrency, timeout, retries, backoff
        # A redirect would carry the key to another host.
        self._opener = urllib.request.build_opener(_NoRedirects())

    def complete(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        temperature: float,
        max_tokens: int,
        seed: Sequence[int] | None = None,
    ) -> list[Reply | Fault]:
        """A reply or a fault for every conversation, in order.

        Args:
            conversations: each ends with the message to be answered.
            temperature: ≥ 0; 0 is greedy.
            max_tokens: tokens a reply may take.
            seed: one number per conversation, passed on; servers treat it as best effort.

        Raises:
            OptionError: nobody answers any of them, or the server refuses the key or knows no such model or address.
        """
        key = self._key()
        options = {"model": self.model, "temperature": temperature, "max_tokens": max_tokens}
        bodies: list[dict[str, Any]] = [{**options, "messages": list(messages)} for messages in conversations]
        if seed is not None:
            for body, number in zip(bodies, seed, strict=True):
                body["seed"] = number
        latest = self._attempt(bodies, key)
        for attempt in range(self._retries):
            pending = {index: one for index, one in enumerate(latest) if isinstance(one, _Retry)}
            if not pending:
                break
            usual = self._backoff * 2.0**attempt
            time.sleep(min(_LONGEST_WAIT, max(usual if one.wait is None else one.wait for one in pending.values())))
            answers = self._attempt([bodies[index] for index in pending], key)
            for index, answer in zip(pending, answers, strict=True):
                latest[index] = answer
        if bodies and all(isinstance(one, _Retry) and one.nobody for one in latest):
            raise OptionError(f"Nobody answers at {self.base_url}; start the server or check the address.")
        return [Fault(one.reason) if isinstance(one, _Retry) else one for one in latest]

    def _attempt(self, bodies: Sequence[dict[str, Any]], key: str) -> list[Reply | Fault | _Retry]:
        """One attempt at every request, several at once.

        Raises:
            OptionError: the server refuses one as it would all others.
        """
        calls = [partial(self._ask, body, key) for body in bodies]
        answers: list[Reply | Fault | _Retry] = []
        for answer in attempt_all(calls, concurrency=self._concurrency, timeout=self._timeout):
            if isinstance(answer, _Refusal):
                raise OptionError(answer.sentence)
            if isinstance(answer, Fault) and answer.hung:
                answers.append(_Retry(answer.reason))
            else:
                answers.append(answer)
        return answers

    def _key(self) -> str:
        """The key, or an empty text.

        Raises:
            OptionError: it could not stand in a header; the message does not show it.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise OptionError(f"The key in ${self.key_variable} holds characters that no key has; set it again.")
        return key

    def _ask(self, body: dict[str, Any], key: str) -> Reply | Fault | _Retry | _Refusal:
        """One attempt."""
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.base_url}/chat/completions", json.dumps(body).encode(), headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                text = answer.read(_LARGEST_ANSWER)
                if answer.length and len(text) < _LARGEST_ANSWER:
                    return _Retry(f"{self.base_url} broke off in the middle of an answer")
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error, key)
        except (OSError, http.client.HTTPException) as error:
            nobody = isinstance(getattr(error, "reason", error), ConnectionRefusedError | socket.gaierror)
            return _Retry(f"no answer from {self.base_url} ({_hide(describe(error), key)})", nobody=nobody)
        try:
            return _read_reply(text, key)
        except (ValueError, RecursionError) as error:
            return Fault(f"unusable answer from {self.base_url} ({_hide(str(error), key)})")

    def _refused(self, error: urllib.error.HTTPError, key: str) -> Fault | _Retry | _Refusal:
        """What an error status comes to."""
        if error.code == 401:  # its text may show parts of the key
            hint = "check it" if key else "set it to your key"
            return _Refusal(f"{self.base_url} refuses the key in ${self.key_variable} (status 401); {hint}.")
        try:
            excerpt = " ".join(error.read(_LARGEST_ANSWER).decode(errors="replace").split())
        except (OSError, http.client.HTTPException):
            excerpt = ""
        # Cut after hiding: half a key would not be found.
        said = _hide(excerpt, key)[:_LONGEST_EXCERPT]
        if error.code == 404:
            return _Refusal(
                f"{self.base_url} knows no model {self.model!r}, or is not the address of an OpenAI-compatible "
                f"endpoint (status 404: {said}); check the address and the name."
            )
        reason = f"status {error.code} from {self.base_url}: {said}"
        if error.code in _RETRIED or error.code >= 500:
            return _Retry(reason, _retry_after(error.headers.get("Retry-After")))
        return Fault(reason)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _check_address(base_url: str) -> str:
    """The address without a slash at its end.

    Raises:
        OptionError: it is not http(s), names no host, or holds a user or password.
    """
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise OptionError(f"{base_url!r} is no address of an endpoint; expected http(s)://HOST[:PORT]/v1.")
    if "@" in parts.netloc:
        raise OptionError("An endpoint's address may not hold a user or password; put the key into a variable.")
    return base_url.rstrip("/")


def _read_reply(text: bytes, key: str) -> Reply:
    """The first choice of an answer.

    Raises:
        ValueError: the answer has another form; says how.
    """
    try:
        answer = json.loads(text)
    except ValueError:
        raise ValueError(f"no JSON: {text[:_LONGEST_EXCERPT].decode(errors='replace')!r}") from None
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if choice is None or not isinstance(content, str):
        raise ValueError("no text at choices[0].message.content")
    content = content.encode(errors="replace").decode()  # lone surrogates cannot be written to a file
    usage = answer.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return Reply(
        text=_hide(content, key),
        truncated=choice.get("finish_reason") == "length",
        tokens=tokens if type(tokens) is int and tokens >= 0 else None,
    )


def _hide(text: str, key: str) -> str:
    return text.replace(key, "[key]") if key else text


def _retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for: a number, or a date from now; None where it cannot be read."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
