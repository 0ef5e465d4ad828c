"""Everything that reads what strangers may have written: how to feed it, an honest input, and inputs made to hurt."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import zlib
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepcredit.core.errors import StepcreditError
from stepcredit.core.files import read_episodes, read_turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.household.generator import generate
from stepcredit.environments.household.problem import parse_problem
from stepcredit.environments.household.sources import FileGames
from stepcredit.environments.search_qa.corpus import read_corpus
from stepcredit.environments.search_qa.questions import read_questions
from stepcredit.environments.search_qa.tags import parse_command
from stepcredit.environments.shopping.products import load_human_instructions, load_products
from stepcredit.integrations.convert.conversion import READERS as FORMATS
from stepcredit.integrations.convert.conversion import Choices, convert
from stepcredit.report.sources import report_about
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.responses import parse_response
from stepcredit.training.config import load_config

ROOT = Path(__file__).resolve().parents[2]

EPISODE = {
    "task": "t",
    "episode": "a",
    "parent": None,
    "turns": [
        {"observation": "door", "action": "open", "reward": 0.5, "penalty": 0.1, "valid": False, "logprobs": [-1, -2]},
        {"observation": "hall", "action": "go", "nll": 0.3, "entropy": 1.5, "state": "h", "response": "go"},
    ],
    "final_observation": "out",
    "success": True,
    "score": 0.5,
    "stop": "won",
}
BRANCH = {**EPISODE, "episode": "b", "parent": {"episode": "a", "turn": 1}}
PRODUCT = {
    "asin": "B1",
    "name": "Shoe",
    "full_description": "red",
    "small_description": ["fits"],
    "pricing": "$1$2.5",
    "product_category": "a › b",
    "category": "fashion",
    "query": "shoes",
    "customization_options": {"Size": [{"value": "4/5"}]},
}
HUMAN = {"B1": [{"instruction": "buy", "instruction_attributes": ["red"], "instruction_options": ["4"]}]}
NOTES = {"B1": {"attributes": ["red"], "instruction": "buy", "instruction_attributes": ["red"]}}
LOGS = ("verl_v0.jsonl", "verl_v1.jsonl", "traces.jsonl", "openai_chat.jsonl", "skyrl.jsonl")


UNITS = (b"[", b"{", b'{"a":', b"(", b"<", b"<action>", b"</think>", b"\n", b" ", b"9", b'"', b"\\", b"a.", b"{a ")
"""What files made of nothing else try the patience of parsers with."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader.

    Attributes:
        read: reads a file to its end and drops what it found; raises nothing but our errors.
        seeds: honest inputs.
        suffix: end of the file's name.
    """

    read: Callable[[Path], object]
    seeds: tuple[bytes, ...]
    suffix: str


def _lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _rollouts(path: Path) -> None:
    turns = read_turns(path)
    assert len(turns) == sum(len(episode.turns) for episode in read_episodes(path))
    if len(turns):
        assign(turns, "graft")


def _games(path: Path) -> None:
    games = FileGames(path)
    for split in games.splits():
        for _ in games.games(split, lambda warning: None):
            pass


def _game_tree(path: Path) -> None:
    folder = path.parent / f"{path.name}.tree" / "train" / "task" / "trial"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "game.tw-pddl").write_bytes(path.read_bytes())
    _games(folder.parents[2])


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _response(path: Path) -> None:
    text = _text(path)
    for response_format in ("action", "think-action"):
        for strict in (True, False):
            parsed = parse_response(text, ("go to desk 1", "search[<words>]"), response_format, strict)  # type: ignore[arg-type]
            assert parsed.valid or parsed.reason
    parse_command(text)


def _products(path: Path) -> None:
    notes, human = path.with_name("notes.json"), path.with_name("human.json")
    notes.write_bytes(json.dumps(NOTES).encode())
    human.write_bytes(json.dumps(HUMAN).encode())
    load_human_instructions(human, load_products(path, notes))


def _notes(path: Path) -> None:
    items = path.with_name("items.json")
    items.write_bytes(json.dumps([PRODUCT]).encode())
    products = load_products(items, path)
    load_human_instructions(path, products)


def _logs(path: Path) -> None:
    error: StepcreditError | None = None
    for name in (None, *FORMATS):
        try:
            convert([path], path.with_name("converted.jsonl"), Choices(name))
        except StepcreditError as found:
            error = found
    if error is not None:
        raise error


def _prompt(path: Path) -> None:
    load_template(str(path))


def _request(path: Path) -> None:
    """The body of a request to the retrieval server, which must never be the server's fault."""
    from stepcredit.environments.search_qa.corpus import make_passage
    from stepcredit.environments.search_qa.retrievers import CorpusRetriever
    from stepcredit.environments.search_qa.server import Limits, make_app

    retriever = CorpusRetriever.in_memory([make_passage("1", "Town\nlies on a river")])
    body, statuses = path.read_bytes(), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(message.get("status", 200))

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/retrieve",
        "raw_path": b"/retrieve",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "scheme": "http",
        "http_version": "1.1",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(make_app(retriever, token=None, limits=Limits(threads=1))(scope, receive, send))
    assert statuses[0] < 500


def _seeds() -> dict[str, tuple[bytes, ...]]:
    problem, sentence = generate(0, "small", "train", "clean", 0)
    official = {"pddl_problem": problem, "grammar": f'x "Your task is to: {sentence}"', "solvable": True}
    folder = ROOT / "tests" / "integrations" / "files"
    return {
        "rollouts": (_lines(EPISODE, BRANCH),),
        "credit": (_lines({"episode": "a", "turn": 0, "advantage": 1.5, "components": {"step": None}}),),
        "games": (_lines({"id": "train/a", "problem": problem, "task": sentence}),),
        "game-tree": (json.dumps(official).encode(),),
        "problem": (problem.encode(),),
        "response": (b"<think>it is shut</think>\n<action>go to desk 1</action>", b"<search>who?</search>"),
        "products": (_lines([PRODUCT]),),
        "notes": (_lines(NOTES), _lines(HUMAN)),
        "corpus": (_lines({"id": "1", "contents": '"Title"\ntext'}, {"id": 2, "contents": "text"}),),
        "questions": (
            _lines({"id": "q", "question": "who?", "golden_answers": ["me"], "supporting_facts": {"title": ["T"]}}),
            _lines({"prompt": [{"content": "Question: who?"}], "reward_model": {"ground_truth": {"target": "me"}}}),
        ),
        "logs": tuple((folder / name).read_bytes()[:20_000] for name in LOGS),
        "recipe": (b'model = "linear"\nupdates = 3\n[method_options]\ngamma = 0.9\n',),
        "prompt": (b"Task: {goal}\n{history}\n{observation} { 1: {} }",),
        "request": (b'{"queries": ["river", "town"], "topk": 2, "return_scores": true}', b'{"query": "town"}'),
    }


_READ: dict[str, tuple[Callable[[Path], object], str]] = {
    "rollouts": (_rollouts, ".jsonl"),
    "credit": (lambda path: report_about([path]), ".jsonl"),
    "games": (_games, ".jsonl"),
    "game-tree": (_game_tree, ".json"),
    "problem": (lambda path: parse_problem(_text(path), "clean it"), ".pddl"),
    "response": (_response, ".txt"),
    "products": (_products, ".json"),
    "notes": (_notes, ".json"),
    "corpus": (read_corpus, ".jsonl"),
    "questions": (read_questions, ".jsonl"),
    "logs": (_logs, ".jsonl"),
    "recipe": (lambda path: load_config(path, {}), ".toml"),
    "prompt": (_prompt, ".txt"),
    "request": (_request, ".json"),
}

_MISSING = set() if importlib.util.find_spec("uvicorn") else {"request"}
READERS: dict[str, Reader] = {
    name: Reader(_READ[name][0], seeds, _READ[name][1]) for name, seeds in _seeds().items() if name not in _MISSING
}
"""By name. A stranger's file may reach any of them; the server's needs the extra ``serve``."""


def feed(name: str, content: bytes, folder: Path) -> StepcreditError | None:
    """Let a reader read some bytes; our error where it refuses them, any other error passes through."""
    path = folder / f"input{READERS[name].suffix}"
    path.write_bytes(content)
    try:
        READERS[name].read(path)
    except StepcreditError as error:
        return error
    return None


def giants(name: str, size: int) -> Iterator[tuple[str, bytes]]:
    """Inputs of about ``size`` bytes for a reader, each with a name: monotonous, nested, repeated, endless."""
    seed = READERS[name].seeds[0]
    for unit in (
        b"[",
        b"{",
        b'{"a":',
        b"(",
        b"<",
        b"<action>",
        b"</think>",
        b"\n",
        b" ",
        b"9",
        b'"',
        b"\\",
        b"a.",
        b"{a ",
    ):
        yield f"only {unit.decode()!r}", unit * (size // len(unit))
    yield "nested lists", b"[" * (size // 2) + b"]" * (size // 2)
    yield "nested value", _within(seed, b"[" * (size // 2) + b"]" * (size // 2))
    yield "a long text", _within(seed, json.dumps("x" * size).encode())
    yield "a long blank", _within(seed, json.dumps("x" + " " * size + "x").encode())
    yield "a long number", _within(seed, b"1" * size)
    yield "the honest one over and over", seed * (size // len(seed))
    yield "the honest one, long", _stretched(name, seed, size)


def _within(seed: bytes, value: bytes) -> bytes:
    """The honest input with its first JSON string in the place of a value replaced."""
    start = seed.find(b': "')
    if start < 0:
        return seed + value
    end = seed.index(b'"', start + 3)
    return seed[: start + 2] + value + seed[end + 1 :]


def _stretched(name: str, seed: bytes, size: int) -> bytes:
    """One record that is as large as all: many turns, many facts, many options."""
    if name == "rollouts":
        turn = json.dumps(EPISODE["turns"])[1:-1]
        return json.dumps(EPISODE).replace(turn, ", ".join([turn] * (size // len(turn)))).encode() + b"\n"
    if name == "problem":
        return _long_problem(size)
    if name == "games":
        return _lines({"id": "train/a", "problem": _long_problem(size).decode(), "task": "clean it"})
    if name == "game-tree":
        grammar = "Your task is to: " * (size // 17)
        return json.dumps({"pddl_problem": "", "grammar": grammar}).encode()
    if name == "products":
        values = [{"value": f"v{number}"} for number in range(size // 20)]
        return _lines([{**PRODUCT, "customization_options": {"size": values}}])
    if name == "recipe":
        return b"method_options" + b".a" * (size // 2) + b" = 1\n"
    if name == "prompt":
        return b"{goal}{observation}{a" + b" " * size
    if name == "response":
        return b"<think>" + b"<action>a</action>" * (size // 18) + b"</think>"
    return seed + b" " * size


def _long_problem(size: int) -> bytes:
    """A room of thousands of receptacles, each at a place of its own."""
    count = size // 160
    declared = "".join(f" loc_bar_{n} - location\n cab_bar_{n} - receptacle\n" for n in range(count))
    facts = "".join(f" (receptacleAtLocation cab_bar_{n} loc_bar_{n})\n (openable cab_bar_{n})\n" for n in range(count))
    problem = generate(0, "small", "train", "clean", 0)[0]
    return problem.replace("(:objects", f"(:objects\n{declared}").replace("(:init", f"(:init\n{facts}").encode()


def bomb(unpacked: int, line: bytes = b"") -> bytes:
    """A gzip file that unpacks to ``unpacked`` bytes of zeros, or of one line over and over."""
    packer = zlib.compressobj(9, wbits=31)
    block = (line * ((1 << 20) // len(line) + 1)) if line else bytes(1 << 20)
    pieces = [packer.compress(block) for _ in range(-(-unpacked // len(block)))]
    return b"".join([*pieces, packer.flush()])


def packed(content: bytes) -> bytes:
    """Gzipped."""
    return gzip.compress(content, mtime=0)
