"""Corpus and question files, the generated world, and retrievers over them."""

from __future__ import annotations

import gzip
import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from stepcredit.core.errors import EnvironmentFaultError, FileFormatError, InputError, MissingExtraError
from stepcredit.environments.search_qa.corpus import LONGEST_PASSAGE, Passage, make_passage, read_corpus
from stepcredit.environments.search_qa.facts import generate_world
from stepcredit.environments.search_qa.questions import Question, make_question, read_questions
from stepcredit.environments.search_qa.retrievers import Bm25Retriever, ServerRetriever

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

    def test_parquet(self, tmp_path: Path):
        path = tmp_path / "train.parquet"
        if importlib.util.find_spec("pyarrow") is None:
            with pytest.raises(MissingExtraError, match=r"stepcredit\[search\]"):
                read_questions(path)
            return
        import pyarrow
        import pyarrow.parquet

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
        assert len(texts) == len(world.passages) == 300
        assert len({question.text for question in world.questions}) == len(world.questions) == 60 * 5 + 120 * 4
        for question in world.questions:
            (answer,) = question.answers
            *bridges, last = question.titles
            assert question.titles[0] in question.text
            assert answer in texts[last]
            for title, following in zip(question.titles, question.titles[1:], strict=False):
                assert following in texts[title]
            for title in bridges:
                assert answer not in texts[title]
            assert answer not in question.text
            assert answer.lower() in world.names

    def test_names_stand_for_one_thing(self):
        world = generate_world(0)
        assert len(set(world.names)) == len(world.names) == 60 + 60 + 120 + 120 + 120 + 8
        assert all(name.isalpha() and name == name.lower() for name in world.names)


class TestBm25:
    def test_best_first(self, tmp_path: Path):
        retriever = Bm25Retriever.in_memory(read_corpus(write_lines(tmp_path / "corpus.jsonl", LINES)))
        found = retriever.retrieve("Which FOX is red?", 5)
        assert [passage.title for passage in found] == ["Red Fox", "no title, one line about a fox"]
        assert found[0].score > found[1].score > 0
        assert retriever.retrieve("fox", 1) == retriever.retrieve("fox", 5)[:1]
        assert retriever.retrieve("the in", 5) == []

    def test_the_disk_gives_the_same(self, tmp_path: Path):
        corpus = write_lines(tmp_path / "corpus.jsonl", LINES)
        memory = Bm25Retriever.in_memory(read_corpus(corpus))
        for _ in range(2):  # built, then opened
            disk = Bm25Retriever.on_disk(corpus, tmp_path / "index")
            for query in ("fox", "whale sea", "nothing"):
                assert disk.retrieve(query, 3) == memory.retrieve(query, 3)
        assert not (tmp_path / "index.unfinished").exists()

    def test_an_index_belongs_to_its_corpus(self, tmp_path: Path):
        Bm25Retriever.on_disk(write_lines(tmp_path / "corpus.jsonl", LINES), tmp_path / "index")
        other = write_lines(tmp_path / "other.jsonl", LINES[:2])
        with pytest.raises(InputError, match="index of another corpus"):
            Bm25Retriever.on_disk(other, tmp_path / "index")
        (tmp_path / "index" / "offsets.npy").unlink()
        with pytest.raises(InputError, match="build the index again"):
            Bm25Retriever.on_disk(tmp_path / "corpus.jsonl", tmp_path / "index")

    def test_what_cannot_be_indexed_on_disk(self, tmp_path: Path):
        packed = tmp_path / "corpus.jsonl.gz"
        packed.write_bytes(gzip.compress(b"{}"))
        with pytest.raises(InputError, match="is packed"):
            Bm25Retriever.on_disk(packed, tmp_path / "index")
        with pytest.raises(InputError, match="No such file"):
            Bm25Retriever.on_disk(tmp_path / "none.jsonl", tmp_path / "index")
        assert not (tmp_path / "index").exists()

    def test_real_paragraphs(self, shared_data: Path):
        """A search for a supporting title finds its paragraph among the first three for nearly all of 100 questions."""
        folder = shared_data / "searchqa"
        passages = read_corpus(folder / "hotpotqa_100_corpus.jsonl.gz")
        questions = read_questions(folder / "hotpotqa_100_questions.jsonl.gz")
        assert len(questions) == 100
        retriever = Bm25Retriever.in_memory(passages)
        titles = [title for question in questions for title in question.titles]
        found = sum(title in [one.title for one in retriever.retrieve(title, 3)] for title in titles)
        assert found >= 0.97 * len(titles)


class Answering(BaseHTTPRequestHandler):
    """Answers with the class's ``reply`` and remembers what was asked."""

    reply: bytes = b""
    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        type(self).asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(type(self).reply)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Answering]]]:
    class Handler(Answering):
        asked: list[dict[str, Any]] = []  # noqa: RUF012  # of this class alone

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

    def test_nobody_there(self):
        with pytest.raises(EnvironmentFaultError, match="failed"):
            ServerRetriever("http://127.0.0.1:9/retrieve", timeout=2).retrieve("fox", 3)
