"""Keys come from the environment and stay there: planted ones appear in nothing that any verb prints or writes."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from faults.killing import LOG, SMALL, Unhurt
from faults.nursery import Ended, Nursery
from stepcredit.cli import VERBS

KEY = "sk-planted-7f3a91c5d2e84b60"
VARIABLES = (
    *("OPENAI_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "ANTHROPIC_API_KEY"),
    *("STEPCREDIT_RETRIEVER_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"),
)
PLANTED = dict.fromkeys(VARIABLES, KEY)
SERVES = {"serve-retriever"}
"""Ends only when it is stopped; what it says is in ``test_servers``."""


class Talkative(BaseHTTPRequestHandler):
    """A server that answers with whatever it was sent, headers included."""

    status = 401

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        said = json.dumps({"error": {"message": f"You sent {dict(self.headers)} and {body}"}}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(params=[401, 400, 500])
def talkative(request: pytest.FixtureRequest) -> Iterator[str]:
    handler = type("Handler", (Talkative,), {"status": request.param})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def assert_unseen(ended: Ended, folder: Path) -> None:
    """The key is neither in what was printed nor in any file."""
    assert KEY not in ended.out + ended.err
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert KEY.encode() not in content, file
            if content[:2] == b"\x1f\x8b":
                assert KEY.encode() not in gzip.decompress(content), file


def commands(run: Path, folder: Path) -> dict[str, list[str | Path]]:
    """Verbs at work; the others are called without arguments."""
    rollouts = run / "rollouts" / "000001.jsonl.gz"
    (folder / "actions").write_text("look\n")
    game = ("--game", "generated-0/small/train/clean/0", "--actions", folder / "actions")
    evaluation = ("--split", "valid_unseen", "--tasks", "2", "--horizon", "2", "--resamples", "10")
    return {
        "train": ["train", *SMALL, "--updates", "1", "--out", folder / "run"],
        "evaluate": ["evaluate", run, *evaluation, "--out", folder / "one"],
        "compare": ["compare", folder / "one", folder / "one"],
        "select": ["select", run],
        "assign": ["assign", rollouts, "--method", "gigpo", "--json"],
        "convert": ["convert", LOG, "--out", folder / "rollouts.jsonl"],
        "report": ["report", run, "--out", folder / "page"],
        "compare-runs": ["compare-runs", run, run, "--out", folder / "runs"],
        "watch": ["watch", run, "--once"],
        "methods": ["methods", "--json"],
        "envs": ["envs", "--json"],
        "play": ["play", "shopping", "--split", KEY[:3]],
        "replay": ["replay", "household", *game],
        "check-env": ["check-env", "household", "--tasks", "1"],
    }


def test_no_verb_shows_or_stores_a_key(nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path) -> None:
    tried = commands(trained[0] / "run", tmp_path)
    assert tried.keys() <= VERBS.keys()
    for verb in (verb for verb in VERBS if verb not in SERVES):
        arguments = tried.get(verb, [verb])
        ended = nursery.run(arguments, watched=tmp_path, environment=PLANTED)
        assert ended.status in (0, 2), (verb, ended.err)
        assert "Traceback" not in ended.err, (verb, ended.err)
        assert_unseen(ended, tmp_path)


def test_a_server_that_repeats_the_key_is_not_quoted_with_it(nursery: Nursery, talkative: str, tmp_path: Path) -> None:
    arguments = [
        *("evaluate", "some-model", "--endpoint", talkative, "--split", "valid_unseen", "--tasks", "1"),
        *("--horizon", "1", "--resamples", "10", "--out", str(tmp_path / "evaluation")),
    ]
    ended = nursery.run(arguments, watched=tmp_path, environment=PLANTED)
    assert "Traceback" not in ended.err
    assert_unseen(ended, tmp_path)
