"""Any retrieval server that speaks Search-R1's protocol, ours included (``stepcredit serve-retriever``)."""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Literal

from stepcredit.core.errors import EnvironmentFaultError, OptionError
from stepcredit.environments.search_qa.corpus import Passage, make_passage

Dialect = Literal["batch", "single"]
"""What a request to a server holds: ``batch``: "queries", a list; ``single``: "query", a text."""

TOKEN_VARIABLE = "STEPCREDIT_RETRIEVER_TOKEN"
"""Environment variable with the token that a server asks of its clients."""

_LARGEST_ANSWER = 8 * 1024 * 1024
"""Bytes read of a server's answer."""
_READ_AT_ONCE = 1 << 16


class ServerRetriever:
    """Asks a server: ``POST`` of ``{"queries": […], "topk": k, "return_scores": true}``, or of ``{"query": …, …}``.

    Args:
        url: the whole address, usually ending in ``/retrieve``.
        dialect: see ``Dialect``.
        timeout: seconds a request may take.
        token: sent as ``Authorization: Bearer …`` to this address only; None sends none.

    Raises:
        OptionError: the address is not one of HTTP.
    """

    def __init__(
        self, url: str, dialect: Dialect = "batch", *, timeout: float = 20.0, token: str | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise OptionError(
                f"Retrieval server: got {url!r}; expected an address such as http://127.0.0.1:8000/retrieve."
            )
        self._url = url
        self._dialect = dialect
        self._timeout = timeout
        self._token = token

    def retrieve(self, query: str, limit: int) -> list[Passage]:
        """The server's passages, at most ``limit``.

        Raises:
            EnvironmentFaultError: no answer in time, or one that cannot be understood.
        """
        asked = {"queries": [query]} if self._dialect == "batch" else {"query": query}
        body = json.dumps({**asked, "topk": limit, "return_scores": True}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            return _read_hits(json.loads(self._answer(request)))[:limit]
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            raise EnvironmentFaultError(f"The retriever at {self._url} failed: {error}.") from None

    def _answer(self, request: urllib.request.Request) -> bytes:
        """The body of the answer; the time limit holds for all of it, not for each of its pieces."""
        end = time.monotonic() + self._timeout
        answer = bytearray()
        with urllib.request.urlopen(request, timeout=self._timeout) as response:
            while piece := response.read1(_READ_AT_ONCE):
                answer += piece
                if time.monotonic() > end:
                    raise TimeoutError(f"its answer took more than {self._timeout:g} s")
                if len(answer) > _LARGEST_ANSWER:
                    raise ValueError(f"its answer has more than {_LARGEST_ANSWER} bytes")
        return bytes(answer)


def _read_hits(answer: Any) -> list[Passage]:
    """The passages of the first query of an answer, with or without scores, with or without the outer list.

    Raises:
        ValueError: the answer has another form.
    """
    hits = answer.get("result") if isinstance(answer, dict) else None
    if isinstance(hits, list) and hits and isinstance(hits[0], list):
        hits = hits[0]
    if not isinstance(hits, list):
        raise ValueError('it answered without a list "result"')  # noqa: TRY004  # one error for all it may answer
    return [_read_hit(hit) for hit in hits]


def _read_hit(hit: Any) -> Passage:
    document = hit.get("document", hit) if isinstance(hit, dict) else None
    contents = document.get("contents") if isinstance(document, dict) else None
    if document is None or not isinstance(contents, str):
        raise ValueError('a document of its answer has no text "contents"')
    score = hit.get("score")
    if not (isinstance(score, int | float) and math.isfinite(score)):
        score = 0.0
    return make_passage(str(document.get("id", "")), contents, float(score))
