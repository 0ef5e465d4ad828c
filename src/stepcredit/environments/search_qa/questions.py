"""Questions and the files they come from: JSON lines, and the parquet layout of Search-R1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from stepcredit.core.errors import FileFormatError, InputError, missing_extra
from stepcredit.environments.search_qa.corpus import read_json_lines
from stepcredit.environments.texts import writable

_MARK = "Question:"
"""Precedes the question in Search-R1's prompts."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question.

    Attributes:
        id: distinct within its file.
        answers: gold answers, any of which counts; at least one.
        family: its kind or source.
        titles: titles of the passages that support the answer, each once, in order; empty where they are not known.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    family: str = "question"
    titles: tuple[str, ...] = ()


def read_questions(path: Path) -> list[Question]:
    """The questions of a file: ``.parquet`` in Search-R1's layout, else JSON lines, gzipped or not.

    A JSON line is ``{"id", "question", "golden_answers"}``; ``type`` (or ``data_source``) and HotpotQA's
    ``supporting_facts`` are used where present.

    Raises:
        InputError: the file cannot be read, or repeats an identifier.
        FileFormatError: a line or row does not have that form.
        MissingExtraError: parquet without pyarrow.
    """
    rows = (
        _parquet_rows(path)
        if path.suffix == ".parquet"
        else ((line.where, line.entry) for line in read_json_lines(path))
    )
    questions: dict[str, Question] = {}
    for where, row in rows:
        question = make_question(where, row, default_id=str(len(questions)))
        if question.id in questions:
            raise FileFormatError(f"{where}: id: {question.id!r} occurs twice; expected distinct identifiers.")
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path} has no question; expected at least one.")
    return list(questions.values())


def make_question(where: str, row: Mapping[str, Any], *, default_id: str) -> Question:
    """A question from a line or a parquet row.

    Raises:
        FileFormatError: question or gold answers are missing; the message starts with ``where``.
    """
    text = row.get("question") or _from_prompt(row.get("prompt"))
    if not isinstance(text, str) or not text.strip():
        raise FileFormatError(f"{where}: question: got {text!r:.40}, expected text.")
    answers = row.get("golden_answers")
    if answers is None:
        answers = _target(row.get("reward_model"))
    answers = [answers] if isinstance(answers, str) else answers
    if (
        not isinstance(answers, Iterable)
        or not (listed := list(answers))
        or not all(isinstance(one, str) for one in listed)
    ):
        raise FileFormatError(f"{where}: golden_answers: got {answers!r:.40}, expected a list of text, not empty.")
    identifier, family = row.get("id"), row.get("type") or row.get("data_source")
    supporting = row.get("supporting_facts")
    titles = supporting.get("title", ()) if isinstance(supporting, Mapping) else ()
    if isinstance(titles, str) or not isinstance(titles, Iterable):
        raise FileFormatError(f"{where}: supporting_facts.title: got {titles!r:.40}, expected a list of text.")
    return Question(
        id=default_id if identifier is None else writable(str(identifier)),
        text=writable(text).strip(),
        answers=tuple(map(writable, listed)),
        family=writable(str(family or "question")),
        titles=tuple(dict.fromkeys(map(str, titles))),
    )


def _from_prompt(prompt: Any) -> str | None:
    """The question of a chat prompt: what follows the last ``Question:`` of its last message."""
    messages = list(prompt) if isinstance(prompt, Iterable) and not isinstance(prompt, str) else []
    content = messages[-1].get("content") if messages and isinstance(messages[-1], Mapping) else None
    return content.rpartition(_MARK)[2] if isinstance(content, str) else None


def _target(reward_model: Any) -> Any:
    truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    return truth.get("target") if isinstance(truth, Mapping) else truth


def _parquet_rows(path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise missing_extra("pyarrow", "parquet", "Reading parquet files") from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a parquet file that can be read ({error}).") from None
    return ((f"{path}:{number}", row) for number, row in enumerate(rows, 1))
