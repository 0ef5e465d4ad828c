"""Prompts: one turn's request as text, from a built-in template or a user's own template file.

A template is plain text with slots. An *append-only* template gives the text that one turn adds to a growing context;
any other template gives a self-contained message that shows a bounded window of past turns itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepcredit.core.errors import InputError, OptionError, unknown_name
from stepcredit.rollouts.responses import ResponseFormat
from stepcredit.rollouts.types import PastTurn, Request

SLOTS = ("goal", "step", "horizon", "history", "observation", "admissible")
REQUIRED_SLOTS = ("goal", "observation")

# Braces around something that starts like a name are a slot; all others ({"a": 1}, {}) are ordinary text.
_SLOT = re.compile(r"\{\s*([A-Za-z_][^{}\n\"']*)\}")

# The task stands before every observation: without that a tiny model does not bind what it sees to what it is asked.
# Admissible commands are left out, because decoding is constrained to them; ">" marks where the command is due.
_COMPACT = "{goal}\n{observation}\n>"

_CHAT = """\
You act in a text environment, one command a turn, until the task is done.
Task: {goal}
This is turn {step} of at most {horizon}.

What happened before:
{history}

What you see now:
{observation}

Commands that do something now:
{admissible}

"""

_INSTRUCTIONS: dict[ResponseFormat, str] = {
    "action": "Answer with one of these commands and nothing else.",
    "think-action": (
        "First reason about the next step between <think> and </think>. "
        "Then give exactly one of these commands between <action> and </action>. Write nothing outside the two tags."
    ),
}

BUILT_IN = ("chat", "compact")
"""Names of the built-in templates: ``compact`` for the tiny model, ``chat`` for instruction-tuned models."""


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """Text with slots, and what happens to earlier turns.

    Slots: ``{goal}`` the task's sentence, ``{step}`` the number of this turn (from 1), ``{horizon}`` turns the episode
    may take, ``{history}`` the last ``history`` turns, ``{observation}`` what is seen now, ``{admissible}`` the
    commands that do something now, one a line. ``{goal}`` and ``{observation}`` are required. What fills a slot is
    never searched for slots again, so braces in observations are ordinary text.

    Attributes:
        text: the template.
        append_only: True: ``render`` gives what this turn adds and earlier turns stay in the context, so there is no
            ``{history}`` slot. False: ``render`` gives a whole message.
        history: past turns that ``{history}`` shows, turns ≥ 0.

    Raises:
        OptionError: an unknown slot, a missing required one, ``{history}`` in an append-only template, or a negative
            window.
    """

    text: str
    append_only: bool = False
    history: int = 2

    def __post_init__(self) -> None:
        slots = _slots(self.text)
        for slot in slots:
            if slot not in SLOTS:
                raise unknown_name("template slot", slot, SLOTS)
        for slot in REQUIRED_SLOTS:
            if slot not in slots:
                raise OptionError(f"The prompt template has no slot {{{slot}}}; add {{{slot}}} where it belongs.")
        if self.append_only and "history" in slots:
            raise OptionError(
                "An append-only prompt template keeps earlier turns in the context; remove the slot {history}."
            )
        if self.history < 0:
            raise OptionError(f"The prompt's history is {self.history} turns; expected 0 or more.")

    def render(self, request: Request) -> str:
        """This turn's message: the whole prompt, or what the turn adds where the template is append-only."""

        def fill(slot: re.Match[str]) -> str:
            match slot.group(1).rstrip():
                case "goal":
                    return request.goal
                case "step":
                    return str(len(request.history) + 1)
                case "horizon":
                    return str(request.horizon)
                case "history":
                    return _render_history(request.history, self.history)
                case "observation":
                    return request.observation
                case _:
                    return "\n".join(request.admissible) or "(any text)"

        return _SLOT.sub(fill, self.text)


def load_template(name: str, *, response_format: ResponseFormat = "action", history: int = 2) -> PromptTemplate:
    """A built-in template by name, or a template file by path.

    A file with a ``{history}`` slot is self-contained; a file without one is append-only, since its earlier turns
    would be lost otherwise.

    Args:
        name: one of ``BUILT_IN``, or the path of a UTF-8 text file.
        response_format: what the built-in ``chat`` template asks for; a file states its own instructions.
        history: past turns shown by ``{history}``, turns.

    Raises:
        OptionError: no such template or file, or the template's slots do not fit.
        InputError: the file cannot be read or is not UTF-8.
    """
    if name == "compact":
        return PromptTemplate(_COMPACT, append_only=True)
    if name == "chat":
        return PromptTemplate(_CHAT + _INSTRUCTIONS[response_format], history=history)
    path = Path(name)
    if not path.exists():
        raise unknown_name("prompt template", name, BUILT_IN)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"Cannot read the prompt template {name!r}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"The prompt template {name!r} is not UTF-8 text (byte {error.start}); save it as UTF-8."
        ) from None
    return PromptTemplate(text, append_only="history" not in _slots(text), history=history)


def _slots(text: str) -> list[str]:
    return [slot.rstrip() for slot in _SLOT.findall(text)]


def _render_history(history: Sequence[PastTurn], window: int) -> str:
    shown = history[max(len(history) - window, 0) :]
    first = len(history) - len(shown) + 1
    lines = [
        f"Turn {number} saw: {past.observation}\nTurn {number} did: {past.action}"
        for number, past in enumerate(shown, first)
    ]
    return "\n".join(lines) or "(nothing)"
