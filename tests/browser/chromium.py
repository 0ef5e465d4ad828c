"""A headless Chromium, driven through its debugging pipe: JSON messages, each ended by a zero byte."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

COMMAND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""The browser's path; None where there is none."""
PATIENCE = 30.0
"""Seconds until a condition that does not come true fails a test."""


class Browser:
    """One page of one browser, with everything its console said and every address it asked for."""

    def __init__(self, folder: Path, *, width: int = 1400, height: int = 900) -> None:
        assert COMMAND is not None
        read_commands, self._write = os.pipe()
        self._read, write_answers = os.pipe()

        def connect() -> None:
            # Via high numbers: the pipes may themselves be 3 and 4, in either order.
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 64) for end in (read_commands, write_answers)]
            for number, end in zip((3, 4), ends, strict=True):
                os.dup2(end, number)

        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
        self._process = subprocess.Popen(
            [
                COMMAND,
                *options,
                f"--window-size={width},{height}",
                "--remote-debugging-pipe",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer = b""
        self._sent = 0
        self._session: dict[str, str] = {}
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loads = 0
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(self, file: Path, fragment: str = "") -> None:
        """Load a page from disk and wait until its script has drawn it."""
        self._call("Page.navigate", url="about:blank")  # else a new fragment would not load the page anew
        self._call("Page.navigate", url=f"{file.as_uri()}{fragment}")
        self.wait("document.readyState === 'complete' && document.querySelector('main').childElementCount > 0")

    def visit(self, url: str) -> None:
        """Load a page of a server."""
        loads = self._loads
        self._call("Page.navigate", url=url)
        self._await_load(loads)

    def submit(self, expression: str) -> None:
        """Evaluate what leads to another page, and wait for that."""
        loads = self._loads
        self.evaluate(expression)
        self._await_load(loads)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are waited for."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until a JavaScript condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"never true: {condition}; console: {self.complaints}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": text} if kind == "keyDown" else {}))

    def point(self, selector: str) -> None:
        """Move the pointer onto the middle of an element."""
        box = self.evaluate(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)}); "
            "found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def media(self, **features: str) -> None:
        """Pretend that the user prefers something: ``prefers_color_scheme="dark"``."""
        chosen = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", features=chosen)

    def screenshot(self, file: Path) -> None:
        """What the window shows, as PNG."""
        file.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters, **self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _await_load(self, before: int) -> None:
        while self._loads == before:  # counted, since it may already have come with an answer
            self._receive()

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            received = os.read(self._read, 1 << 16)
            assert received, "the browser went away"
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        self._note(answer.get("method"), answer.get("params", {}))
        return answer

    def _note(self, event: str | None, about: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loads += 1
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description", details["text"])))
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([part.get("value") for part in about["args"]]))
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
