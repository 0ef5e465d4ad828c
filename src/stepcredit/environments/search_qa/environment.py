"""One question being answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepcredit.environments.protocol import Info, Task
from stepcredit.environments.search_qa.corpus import Passage
from stepcredit.environments.search_qa.names import NameFinder
from stepcredit.environments.search_qa.questions import Question
from stepcredit.environments.search_qa.scoring import exact_match, token_f1
from stepcredit.environments.search_qa.tags import (
    FREE_COMMANDS,
    NOT_UNDERSTOOD,
    Command,
    parse_command,
    show_evidence,
)

Search = Callable[[str], Sequence[Passage]]

_ANSWERED = "The answer was given."


@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode is; a snapshot.

    Attributes:
        observation: what was shown last.
        titles: titles of the passages seen so far.
        names: known names seen so far, in the question too, in lower case.
        answer: the final answer; None before it.
    """

    observation: str
    titles: frozenset[str]
    names: frozenset[str]
    answer: str | None = None


class SearchEnvironment:
    """Answers one question by ``<search>words</search>`` and, in the end, ``<answer>text</answer>``.

    The reward is 1 for an answer that matches a gold answer exactly. Anything else than one search or one answer
    changes nothing and is answered with a hint.

    Args:
        task: the task being played.
        question: what is asked.
        search: words → passages, best first.
        names: finds the names that may be searched for and answered: those seen so far are listed as admissible
            commands, for agents that choose among listed ones. None: any words are admissible.
    """

    def __init__(self, task: Task, question: Question, search: Search, names: NameFinder | None = None) -> None:
        self.task = task
        self.question = question
        self._search = search
        self._names = names
        self._start = Place(question.text, frozenset(), self._names_in(question.text))
        self.place = self._start

    def reset(self) -> tuple[str, Info]:
        """Back to the question."""
        self.place = self._start
        return self.place.observation, self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Search, or answer; the reward comes with the answer."""
        before = self.place
        if before.answer is None:
            self.place = self._after(parse_command(action))
        info = self._info()
        answered = self.place.answer is not None
        reward = float(info["won"]) if answered and before.answer is None else 0.0
        return self.place.observation, reward, answered, False, info

    def snapshot(self) -> Place:
        """The present place, immutable."""
        return self.place

    def restore(self, snapshot: object) -> None:
        """Return to a place of this task.

        Raises:
            TypeError: not a snapshot of a search environment.
        """
        if not isinstance(snapshot, Place):
            raise TypeError(f"Cannot restore a {type(snapshot).__name__}; expected what snapshot() gave.")
        self.place = snapshot

    def close(self) -> None:
        """Nothing is held."""

    def _after(self, command: Command | None) -> Place:
        place = self.place
        if command is None:
            return Place(NOT_UNDERSTOOD, place.titles, place.names)
        if command.kind == "answer":
            return Place(_ANSWERED, place.titles, place.names, answer=command.text)
        found = self._search(command.text)
        seen = show_evidence(found)
        titles = place.titles | {passage.title for passage in found}
        return Place(seen, titles, place.names | self._names_in(seen))

    def _names_in(self, text: str) -> frozenset[str]:
        return frozenset() if self._names is None else self._names(text)

    def _info(self) -> Info:
        answer, golden = self.place.answer, self.question.answers
        if answer is not None:
            return {"admissible": (), "won": exact_match(answer, golden), "score": token_f1(answer, golden)}
        if self._names is None:
            return {"admissible": FREE_COMMANDS, "won": False}
        commands = [str(Command(kind, name)) for kind in ("answer", "search") for name in self.place.names]
        return {"admissible": sorted(commands), "won": False}
