"""Responses: the command out of a policy's text, and whether the response was valid.

Parsing takes time linear in the text and the admissible commands, and never raises: a response is data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from stepcredit.core.errors import unknown_name
from stepcredit.environments.protocol import PLACEHOLDER

ResponseFormat = Literal["action", "think-action"]
RESPONSE_FORMATS: tuple[ResponseFormat, ...] = get_args(ResponseFormat)

_TAGS = ("<think>", "</think>", "<action>", "</action>")
_CJK = re.compile("[\u4e00-\u9fff]")
_TAIL = 30
"""Characters that the released rule submits where it finds no pair of action tags."""


def concrete(admissible: Sequence[str]) -> tuple[str, ...]:
    """The admissible commands that can be said as they are: those without a placeholder."""
    return tuple(command for command in admissible if PLACEHOLDER not in command)


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """What a response comes to.

    Attributes:
        action: what is submitted to the environment, also when the response is invalid; may be empty.
        valid: format and admissibility.
        reason: why it is invalid, as a short phrase; empty where valid.
    """

    action: str
    valid: bool
    reason: str = ""


def check_response_format(name: str) -> ResponseFormat:
    """The response format of that name.

    Raises:
        OptionError: there is none.
    """
    for known in RESPONSE_FORMATS:
        if name == known:
            return known
    raise unknown_name("response format", name, RESPONSE_FORMATS)


def parse_response(
    text: str, admissible: Sequence[str], response_format: ResponseFormat, strict: bool = True
) -> ParsedResponse:
    """The command of a response and whether the response is valid (TSBPO, appendix D).

    ``think-action`` is valid with exactly one ``<think>…</think>`` followed by exactly one ``<action>…</action>``, only
    white space outside, no character in U+4E00–U+9FFF, and an admissible command. ``action`` is the same without tags:
    the whole text is the command.

    A command is compared with the admissible ones lower-cased and with white space folded, and submitted in the
    environment's own spelling. An admissible entry with a placeholder in angle brackets (``search[<words>]``) stands
    for every non-empty text in that place. Where no command is listed, any non-empty text is admissible as it stands.

    Args:
        text: the response.
        admissible: commands that do something now; empty where any text is accepted.
        response_format: ``action`` or ``think-action``.
        strict: False reproduces the rule of released agent code for comparisons: the first opening and the first
            closing action tag count wherever they stand, think tags only have to occur, admissibility is not checked.
    """
    if not strict:
        return _parse_released(text, response_format)
    command, reason = (text, "") if response_format == "action" else _between_tags(text)
    if not reason and _CJK.search(text):
        reason = "a character in U+4E00-U+9FFF"
    if not command.strip():
        return ParsedResponse("", False, reason or "no command")
    submitted, known = _admit(command, admissible)
    if not reason and not known:
        reason = "the command is not admissible"
    return ParsedResponse(submitted, not reason, reason)


def _between_tags(text: str) -> tuple[str, str]:
    """The command between the first pair of action tags, and what is wrong with the tags ("" for nothing)."""
    _, opened, rest = text.partition("<action>")
    command, closed, after = rest.partition("</action>")
    if not (opened and closed):
        command = ""
    for tag in _TAGS:
        count = text.count(tag)
        if count != 1:
            return command, f"{count} × {tag} instead of one"
    before, _, rest = text.partition("<think>")
    _, ended, between = rest.partition("</think>")
    between, opened, _ = between.partition("<action>")
    if not (ended and opened and closed):
        return command, "tags out of order"
    if before.strip() or between.strip() or after.strip():
        return command, "text outside the tags"
    return command, ""


def _admit(command: str, admissible: Sequence[str]) -> tuple[str, bool]:
    """What is submitted for a command, and whether it is admissible."""
    if not admissible:
        return command.strip(), True
    folded = _fold(command)
    if folded in admissible:
        return folded, True
    for candidate in admissible:
        if _fold(candidate) == folded:
            return candidate, True
    return folded, any(_fills(folded, candidate) for candidate in admissible)


def _fold(text: str) -> str:
    return " ".join(text.lower().split())


def _fills(command: str, pattern: str) -> bool:
    """Whether the command is the pattern with non-empty text in place of its placeholder."""
    head, hole, tail = pattern.lower().partition(PLACEHOLDER)
    if not hole:
        return False
    if len(command) <= len(head) + len(tail) or not (command.startswith(head) and command.endswith(tail)):
        return False
    return bool(command[len(head) : len(command) - len(tail)].strip())


def _parse_released(text: str, response_format: ResponseFormat) -> ParsedResponse:
    lowered = text.lower()
    reason = "a character in U+4E00-U+9FFF" if _CJK.search(text) else ""
    if response_format == "action":
        return ParsedResponse(lowered.strip(), not reason, reason)
    start, end = lowered.find("<action>"), lowered.find("</action>")
    if "<think>" not in text or "</think>" not in text:
        reason = "no think tags"
    if start < 0 or end < 0:
        return ParsedResponse(lowered[-_TAIL:], False, "no action tags")
    return ParsedResponse(lowered[start + len("<action>") : end].strip(), not reason, reason)
