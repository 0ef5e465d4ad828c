"""An expert that knows which passages support the answer, and the answer."""

from __future__ import annotations

from stepcredit.environments.search_qa.environment import SearchEnvironment
from stepcredit.environments.search_qa.tags import Command


class SearchExpert:
    """Searches for the title of each supporting passage not seen yet, once, then gives the first gold answer.

    Its commands are in lower case, as listed commands are.
    """

    def __init__(self, environment: SearchEnvironment) -> None:
        self._environment = environment
        self._searched: set[str] = set()

    def act(self) -> str | None:
        """The next command; None after the answer."""
        place, question = self._environment.place, self._environment.question
        if place.answer is not None:
            return None
        for title in question.titles:
            if title not in place.titles and title not in self._searched:
                self._searched.add(title)
                return str(Command("search", title.lower()))
        return str(Command("answer", question.answers[0].lower()))
