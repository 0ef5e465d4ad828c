"""Chats as turns: every message the policy wrote is a turn, what stands between two of them is an observation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stepcredit.core.episodes import Turn
from stepcredit.integrations.convert.records import Record, compact

POLICY = "assistant"
INSTRUCTIONS = ("system", "developer")
"""Roles that instruct the policy; what they say is no observation."""

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    Attributes:
        role: ``assistant`` is the policy.
        text: what it says, text parts only.
        calls: tools it calls, each as ``name(arguments)``.
        sampled: whether the policy wrote it in this episode; False for examples and copied context.
        logprobs: of its tokens, nats; empty where they were not recorded.
        reward: of this turn, where the log gives rewards to turns.
        source: plain values to keep with the turn.
    """

    role: str
    text: str
    calls: tuple[str, ...] = ()
    sampled: bool = True
    logprobs: tuple[float, ...] = ()
    reward: float = 0.0
    source: tuple[tuple[str, Any], ...] = ()


def read_message(record: Record) -> Message:
    """A message in the form of OpenAI's chat API: ``role``, ``content`` and ``tool_calls``, flat calls included."""
    role: str = record.required("role", str, "a string")
    calls = record.children("tool_calls") if record.values.get("tool_calls") is not None else []
    return Message(role, record.text("content"), tuple(_call(call) for call in calls))


def _call(record: Record) -> str:
    function = record.child("function") or record
    name: str = function.required("name", str, "a string")
    return call_text(name, function.values.get("arguments"), function)


def call_text(name: str, arguments: Any, record: Record) -> str:
    """A tool call as a command, ``name(arguments)``; a single text argument stands bare."""
    if isinstance(arguments, dict):
        # Parquet gives every call the arguments of all calls of its column, null where they are not its own.
        arguments = {key: value for key, value in arguments.items() if value is not None}
    return f"{name}({'' if arguments in (None, {}) else compact(arguments, record)})"


def to_turns(messages: Iterable[Message]) -> tuple[tuple[Turn, ...], str | None]:
    """The turns of a chat, and what stands after the last of them (None: nothing).

    The observation of a turn is everything that others said since the message before it, instructions left out. Where
    that is nothing at all, the state key is made of the turn before, so that silence does not look like one state.
    """
    turns: list[Turn] = []
    seen: list[str] = []
    for message in messages:
        if message.role != POLICY:
            if message.role not in INSTRUCTIONS:
                seen.append(message.text)
            continue
        if message.sampled:
            silent = bool(turns) and not seen
            turns.append(_turn(message, "\n".join(seen), _after(turns[-1]) if silent else None))
        seen = []
    return tuple(turns), "\n".join(seen) if seen else None


def _turn(message: Message, observation: str, state: str | None) -> Turn:
    said = message.text.strip()
    if message.calls:
        action = "\n".join(message.calls)
    else:
        tagged = _ACTION.findall(said)
        action = tagged[0].strip() if len(tagged) == 1 else said
    extra = dict(message.source)
    if said and said != action:
        extra["response"] = message.text
    return Turn(observation, action, message.reward, logprobs=message.logprobs or None, state=state, extra=extra)


def _after(turn: Turn) -> str:
    """A key for "nothing was shown after this turn"."""
    text = f"{turn.state_key}\0{turn.action}".encode(errors="surrogatepass")
    return f"after {hashlib.blake2b(text, digest_size=12).hexdigest()}"
