"""Prompting baselines: ReAct, which thinks aloud before it acts, and the texts of Reflexion's retrials.

ReAct (arXiv 2210.03629) keeps its thoughts in the context: each prompt shows the last turns with what was thought in
them. Reflexion (arXiv 2303.11366) plays a failed task again, reminded of what the agent itself wrote about the failure.
Both answer with ``<think>…</think><action>…</action>``, so that validity is judged as for every other agent.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepcredit.core.episodes import Episode
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import PastTurn, Policy, Request, Response, Session

VERBATIM = PromptTemplate("{goal}{observation}", history=0)
"""Template of a policy that is asked with whole messages (``message_request``)."""

RESPONSE_FORMAT = "think-action"

_REACT = """\
You solve a task in a text environment. In every turn you first think, then give one command.

Task: {goal}

This is turn {step} of at most {horizon}. {history}
You see now:
{observation}

Commands that do something now:
{admissible}

Write your reasoning between <think> and </think>: what you know, what is missing, what to do next and why. Then write
exactly one of the commands between <action> and </action>, and nothing else.
"""

_REFLECT = """\
You tried a task in a text environment and did not finish it.

Task: {goal}

What you did:
{history}
At the end you saw:
{observation}

Say in a few sentences where the attempt went wrong and what you will do differently next time. Name places and things.
Write nothing but this advice to yourself.
"""

_LESSONS = "\n\nYou tried this before without success, and then wrote down:\n"
_NOTHING = "nothing, because the answer held no command"
_LONGEST_LESSON = 2_000
"""Characters of a lesson that are kept; a model that rambles must not fill later prompts."""
_REVIEWED = 50
"""Turns of a failed attempt that its review shows, the last ones."""


class ReActPolicy:
    """Plays by thinking aloud.

    Args:
        speaker: answers whole messages (``VERBATIM``); a local model or an endpoint.
        history: past turns a prompt shows, with their thoughts.
    """

    def __init__(self, speaker: Policy, *, history: int) -> None:
        self._speaker = speaker
        self._history = history

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Session:
        """Start answering a batch of episodes."""
        return _ReActSession(self._speaker.session(seed, temperature=temperature), self._history)


class _ReActSession:
    def __init__(self, inner: Session, history: int) -> None:
        self._inner = inner
        self._history = history

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        return self._inner.respond(
            [message_request(request.key, react_message(request, self._history)) for request in requests]
        )

    def finish(self, key: int) -> None:
        self._inner.finish(key)


def message_request(key: int, message: str) -> Request:
    """A request that a policy with the template ``VERBATIM`` reads as just this message; any answer is accepted."""
    return Request(key=key, goal="", history=(), observation=message, admissible=(), horizon=1)


def react_message(request: Request, history: int) -> str:
    """This turn's whole message, showing the last ``history`` turns with their thoughts."""
    shown = request.history[max(len(request.history) - history, 0) :]
    first = len(request.history) - len(shown) + 1
    past = "\n".join(_past_turn(number, turn) for number, turn in enumerate(shown, first))
    return _REACT.format(
        goal=request.goal,
        step=len(request.history) + 1,
        horizon=request.horizon,
        history=f"What happened before:\n{past}\n" if past else "",
        observation=request.observation,
        admissible="\n".join(request.admissible) or "(any text)",
    )


def reflection_message(goal: str, episode: Episode) -> str:
    """What asks for a lesson from a failed episode."""
    first = max(len(episode.turns) - _REVIEWED, 0)
    lines = [
        f"Turn {number} saw: {turn.observation}\nTurn {number} did: {turn.action or _NOTHING}"
        for number, turn in enumerate(episode.turns[first:], first + 1)
    ]
    return _REFLECT.format(goal=goal, history="\n".join(lines), observation=episode.final_observation)


def reflect(
    speaker: Policy, goals: Sequence[str], episodes: Sequence[Episode], *, seed: Sequence[int], temperature: float
) -> list[str]:
    """A lesson from each failed episode, in order; empty where the speaker failed to answer."""
    session = speaker.session(seed, temperature=temperature)
    messages = [reflection_message(goal, episode) for goal, episode in zip(goals, episodes, strict=True)]
    answers = session.respond([message_request(key, message) for key, message in enumerate(messages)])
    for key in range(len(messages)):
        session.finish(key)
    return [" ".join(answer.text.split())[:_LONGEST_LESSON] for answer in answers]


def goal_with_lessons(goal: str, lessons: Sequence[str]) -> str:
    """The task's sentence, followed by the lessons of earlier trials."""
    written = [f"{number}. {lesson}" for number, lesson in enumerate(filter(None, lessons), 1)]
    return goal + _LESSONS + "\n".join(written) if written else goal


def _past_turn(number: int, past: PastTurn) -> str:
    lines = [f"Turn {number} saw: {past.observation}"]
    thought = _thought(past.response.text)
    if thought:
        lines.append(f"Turn {number} thought: {thought}")
    lines.append(f"Turn {number} did: {past.action or _NOTHING}")
    return "\n".join(lines)


def _thought(text: str) -> str:
    """What stands between the first pair of think tags."""
    _, opened, rest = text.partition("<think>")
    thought, closed, _ = rest.partition("</think>")
    return " ".join(thought.split()) if opened and closed else ""
