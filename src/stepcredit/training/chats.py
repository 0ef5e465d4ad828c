"""Demonstrations as chat files: JSON Lines in the style of ShareGPT, one conversation a line.

    {"id": "TASK#0/2", "task": "TASK", "conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}

With a self-contained prompt every turn is a conversation of its own; with an append-only prompt an episode is one. An
answer that must not be learnt (a random command of a noisy demonstration) has ``"weight": 0`` and is context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import FileFormatError, InputError
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import PastTurn, Request, Response, Rollout

CHAT = PromptTemplate("{goal}{observation}", append_only=True)
"""Template of a policy that learns from a chat file: what the human says is the prompt."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation.

    Attributes:
        id: names it.
        task: what it is about; conversations of one task stay on one side of a split.
        prompts: what the human says.
        answers: what is answered to each.
        weights: of each answer in the loss; 0: context alone.
    """

    id: str
    task: str
    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    weights: tuple[float, ...]

    def to_json(self) -> bytes:
        """The line, with its line break."""
        messages: list[dict[str, Any]] = []
        for prompt, answer, weight in zip(self.prompts, self.answers, self.weights, strict=True):
            said: dict[str, Any] = {"from": "gpt", "value": answer}
            messages += [{"from": "human", "value": prompt}, said if weight == 1 else {**said, "weight": weight}]
        return orjson.dumps({"id": self.id, "task": self.task, "conversations": messages}) + b"\n"


def rollout_chats(rollout: Rollout, weight: Sequence[float], template: PromptTemplate, horizon: int) -> Iterator[Chat]:
    """A demonstration as conversations; those without anything to learn are left out.

    Args:
        rollout: a root whose turns tell what was admissible (``extra["admissible"]``).
        weight: ``[turns]``.
        template: how the learner will be asked.
        horizon: turns the episode could take.
    """
    episode = rollout.episode
    history: list[PastTurn] = []
    prompts = []
    for turn, response in zip(episode.turns, rollout.responses, strict=True):
        admissible = turn.extra.get("admissible", ())
        prompts.append(template.render(Request(0, rollout.goal, tuple(history), turn.observation, admissible, horizon)))
        history.append(PastTurn(turn.observation, response, turn.action))
    answers = tuple(response.text for response in rollout.responses)
    if template.append_only:
        yield Chat(episode.episode, episode.task, tuple(prompts), answers, tuple(map(float, weight)))
        return
    for number, (prompt, answer, own) in enumerate(zip(prompts, answers, weight, strict=True)):
        if own:
            yield Chat(f"{episode.episode}/{number}", episode.task, (prompt,), (answer,), (float(own),))


def chat_rollouts(chats: Sequence[Chat]) -> tuple[list[Rollout], FloatArray]:
    """Conversations as rollouts of a policy with the template ``CHAT``, and the weight of every answer."""
    rollouts = []
    for chat in chats:
        turns = tuple(Turn(prompt, answer) for prompt, answer in zip(chat.prompts, chat.answers, strict=True))
        responses = tuple(Response(answer, (), 0.0) for answer in chat.answers)
        rollouts.append(Rollout(Episode(chat.task, chat.id, turns, "", success=True), "", responses))
    return rollouts, np.array([weight for chat in chats for weight in chat.weights], dtype=np.float64)


def read_chats(path: Path) -> list[Chat]:
    """The conversations of a file, of ours or another in ShareGPT's form.

    Raises:
        InputError: the file cannot be read, or holds none.
        FileFormatError: a line has another form; names file and line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"Cannot read the demonstrations {str(path)!r}: {error.strerror}.") from None
    chats = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not chats:
        raise InputError(f"{str(path)!r} holds no conversation; collect some with `stepcredit demonstrate`.")
    return chats


def _parse(line: bytes, place: str) -> Chat:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise FileFormatError(f"{place}: not JSON: {error}.") from None
    messages = row.get("conversations") if isinstance(row, dict) else None
    if not isinstance(messages, list) or not messages or len(messages) % 2:
        raise FileFormatError(f"{place}: conversations: expected a list of messages, human and gpt in turn.")
    for index, message in enumerate(messages):
        expected = ("human", "gpt")[index % 2]
        got = message.get("from") if isinstance(message, Mapping) else None
        if got != expected or not isinstance(message.get("value"), str):
            raise FileFormatError(
                f"{place}: conversations[{index}]: got a message from {got!r}; expected one from {expected!r} with its "
                "text in 'value' (put what a system message says into the first human one)."
            )
    weights = tuple(_weight(message, place) for message in messages[1::2])
    name = str(row.get("id", place))
    prompts, answers = (tuple(message["value"] for message in messages[first::2]) for first in (0, 1))
    return Chat(name, str(row.get("task", name)), prompts, answers, weights)


def _weight(message: Mapping[str, Any], place: str) -> float:
    weight = message.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
        raise FileFormatError(f"{place}: weight: got {weight!r}; expected a number of at least 0.")
    return float(weight)
