"""Search QA as a suite of tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from stepcredit.core.errors import OptionError, unknown_name
from stepcredit.environments.protocol import Environment, Task
from stepcredit.environments.search_qa.corpus import Retriever, read_corpus
from stepcredit.environments.search_qa.environment import SearchEnvironment
from stepcredit.environments.search_qa.expert import SearchExpert
from stepcredit.environments.search_qa.names import NameFinder
from stepcredit.environments.search_qa.questions import Question, read_questions
from stepcredit.environments.search_qa.remote import TOKEN_VARIABLE, Dialect, ServerRetriever
from stepcredit.environments.search_qa.retrievers import CorpusRetriever, Kind

if TYPE_CHECKING:
    from stepcredit.environments.search_qa.facts import World

GENERATED_TEST = 200
"""Generated questions that are for testing."""
_REMEMBERED_SEARCHES = 1 << 14


class SearchSuite:
    """Questions to be answered with a retriever.

    Args:
        questions: file of training questions, JSON lines or Search-R1's parquet; without it questions about a generated
            world are asked, whose passages are the corpus.
        test_questions: file of test questions; with it there is a split ``test``.
        corpus: file of passages, JSON lines ``{"id", "contents"}``.
        index: folder for the corpus's index on disk, built where it is absent; without it the corpus is indexed in
            memory.
        retriever: how passages of a corpus are found: ``bm25`` by their words, ``dense`` by sentence embeddings.
        server: address of a retrieval server to ask instead of a corpus. It gets the token that the environment
            variable ``STEPCREDIT_RETRIEVER_TOKEN`` holds, if any.
        dialect: what its requests hold: ``batch``: "queries", a list; ``single``: "query", a text.
        topk: passages shown for a search.
        commands: ``free``: any words may be searched for and answered; ``suggested``: the names seen so far are listed,
            for agents that choose among listed commands. By default ``suggested`` for the generated world, which alone
            knows its names.
        seed: of the generated world.

    Raises:
        OptionError: options that do not fit each other.
        InputError: a file cannot be read or lacks its form.
        MissingExtraError: parquet without the extra ``search``, ``dense`` without ``embed``.
    """

    name = "search_qa"
    horizon = 4

    def __init__(
        self,
        *,
        questions: Annotated[str | None, "file of training questions; a generated world without it"] = None,
        test_questions: Annotated[str | None, "file of test questions"] = None,
        corpus: Annotated[str | None, "file of passages, JSON lines"] = None,
        index: Annotated[str | None, "folder for the corpus's index on disk; in memory without it"] = None,
        retriever: Annotated[Kind, "how passages are found: by words, or by sentence embeddings"] = "bm25",
        server: Annotated[str | None, "address of a retrieval server"] = None,
        dialect: Annotated[Dialect, "what requests to the server hold"] = "batch",
        topk: Annotated[int, Field(ge=1, le=100), "passages shown for a search"] = 3,
        commands: Annotated[Literal["free", "suggested"] | None, "which commands are listed"] = None,
        seed: Annotated[int, Field(ge=0), "of the generated world"] = 0,
    ) -> None:
        self.warnings: list[str] = []
        self._world = _generate(seed) if questions is None else None
        if self._world is not None and test_questions is not None:
            raise OptionError("Test questions belong to a file of training questions; set questions as well.")
        if commands == "suggested" and self._world is None:
            raise OptionError("Only the generated world knows which names to suggest; use commands = 'free'.")
        self._names = None if self._world is None or commands == "free" else NameFinder(self._world.names)
        source = _make_retriever(self._world, corpus, index, server, dialect, retriever)
        self._search = lru_cache(maxsize=_REMEMBERED_SEARCHES)(lambda words: tuple(source.retrieve(words, topk)))
        self._questions = _split_questions(self._world, questions, test_questions)

    def splits(self) -> tuple[str, ...]:
        """Names of the splits, training first."""
        return tuple(self._questions)

    def tasks(self, split: str) -> Sequence[Task]:
        """The questions of a split, in the order of their file.

        Raises:
            OptionError: no such split.
        """
        if split not in self._questions:
            raise unknown_name("split", split, self._questions)
        return [Task(f"{split}/{one.id}", one.family, one.text) for one in self._questions[split].values()]

    def make(self, task: Task) -> SearchEnvironment:
        """A fresh environment for a task of this suite.

        Raises:
            OptionError: no such task.
        """
        split, _, identifier = task.id.partition("/")
        question = self._questions.get(split, {}).get(identifier)
        if question is None:
            raise OptionError(f"Unknown task {task.id!r}; expected SPLIT/ID with the identifier of a question.")
        return SearchEnvironment(task, question, self._search, self._names)

    def expert(self, environment: Environment) -> SearchExpert:
        """An expert that plays the given environment from its present state.

        Raises:
            OptionError: the environment is of another suite.
        """
        if not isinstance(environment, SearchEnvironment):
            raise OptionError(f"The search expert cannot play a {type(environment).__name__}.")
        return SearchExpert(environment)

    def entities(self) -> tuple[str, ...]:
        """Names of the generated world; else none."""
        return () if self._world is None else self._world.names


def _generate(seed: int) -> World:
    from stepcredit.environments.search_qa.facts import generate_world  # its facts are a package of their own

    return generate_world(seed)


def _make_retriever(
    world: World | None, corpus: str | None, index: str | None, server: str | None, dialect: Dialect, kind: Kind
) -> Retriever:
    if server is not None:
        if corpus is not None or index is not None:
            raise OptionError("A server has its own corpus; set either server or corpus and index.")
        return ServerRetriever(server, dialect, token=os.environ.get(TOKEN_VARIABLE))
    if corpus is not None:
        if index is not None:
            return CorpusRetriever.on_disk(Path(corpus), Path(index), kind)
        return CorpusRetriever.in_memory(read_corpus(Path(corpus)), kind)
    if index is not None:
        raise OptionError("An index belongs to a corpus; set corpus as well.")
    if world is None:
        raise OptionError("Questions from a file need something to search in; set corpus or server.")
    return CorpusRetriever.in_memory(world.passages, kind)


def _split_questions(
    world: World | None, questions: str | None, test_questions: str | None
) -> dict[str, dict[str, Question]]:
    """Split → identifier → question."""
    if world is not None:
        train, test = world.questions[GENERATED_TEST:], world.questions[:GENERATED_TEST]
        splits: dict[str, Sequence[Question]] = {"train": train, "test": test}
    else:
        files = {"train": questions, "test": test_questions}
        splits = {split: read_questions(Path(file)) for split, file in files.items() if file is not None}
    return {split: {question.id: question for question in found} for split, found in splits.items()}
