"""What environments answer, checked part by part: a wrong type or number is a fault of that environment alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stepcredit.environments.protocol import Info

Step = tuple[str, float, bool, bool, Info]


def check_step(answer: object) -> Step:
    """An environment's five-tuple, checked.

    Raises:
        TypeError: a part of another type than the protocol says.
        ValueError: a reward that is not finite, a score outside [0, 1], or text that is not Unicode.
    """
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise TypeError(f"step answered {_type(answer)}; expected (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = answer
    check_start((observation, info))
    value = check_number("reward", reward)
    return observation, value, _truth("terminated", terminated), _truth("truncated", truncated), info


def check_start(answer: object) -> tuple[str, Info]:
    """A reset's (observation, info), checked.

    Raises:
        TypeError: a part of another type than the protocol says.
        ValueError: a score outside [0, 1], or text that is not Unicode.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError(f"reset answered {_type(answer)}; expected (observation, info)")
    observation, info = answer
    check_text("observation", observation)
    if not isinstance(info, Mapping) or "won" not in info or "admissible" not in info:
        raise TypeError("info lacks admissible or won")
    commands = info["admissible"]
    if isinstance(commands, str) or not isinstance(commands, Sequence) or not set(map(type, commands)) <= {str}:
        raise TypeError(f"info['admissible'] is {_type(commands)}; expected a sequence of str")
    _truth("won", info["won"])
    if info.get("score") is not None:
        score = check_number("score", info["score"])
        if not 0 <= score <= 1:
            raise ValueError(f"score is {score}; expected a number in [0, 1]")
    if info.get("state") is not None:
        check_text("state", info["state"])
    return observation, info  # type: ignore[return-value]  # checked above, key by key


def check_text(name: str, text: object) -> None:
    """Refuse what is not text, or text that UTF-8 cannot express.

    Raises:
        TypeError, UnicodeEncodeError: such a value.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} is {_type(text)}; expected str")
    if not text.isascii():
        text.encode()


def _truth(name: str, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    if isinstance(value, str) or value not in (True, False):  # numpy's truth values are welcome
        raise TypeError(f"{name} is {_type(value)}; expected true or false")
    return bool(value)


def check_number(name: str, value: Any) -> float:
    """A finite number as a float.

    Raises:
        TypeError, ValueError: anything else.
    """
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {_type(value)}; expected a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; expected a finite number")
    return number


def _type(value: object) -> str:
    return f"of type {type(value).__name__}"
