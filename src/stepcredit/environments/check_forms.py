"""What is wrong with the form of a suite or of an answer: types, ranges, order. One sentence a fault."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepcredit.core.errors import OptionError
from stepcredit.environments.protocol import TaskSuite
from stepcredit.environments.texts import writable


def suite_faults(suite: TaskSuite) -> Iterator[str]:
    """What is wrong with a suite itself."""
    splits = suite.splits()
    if not isinstance(suite.name, str) or not suite.name:
        yield f"name is {suite.name!r}; expected a name."
    if not isinstance(suite.horizon, int) or suite.horizon < 1:
        yield f"horizon is {suite.horizon!r}; expected a number of turns."
    if not isinstance(suite.warnings, list) or not all(isinstance(one, str) for one in suite.warnings):
        yield "warnings is not a list of texts."
    if not splits or len(set(splits)) < len(splits) or not all(isinstance(split, str) for split in splits):
        yield f"splits() gave {splits!r}; expected distinct names, training first."
    if not all(isinstance(name, str) and name for name in suite.entities()):
        yield "entities() gave something else than names."
    seen: dict[str, str] = {}
    for split in splits:
        tasks = suite.tasks(split)
        if not isinstance(tasks, Sequence) or not tasks:
            yield f"tasks({split!r}) is empty or no sequence."
        elif list(tasks[:5]) != list(suite.tasks(split)[:5]):
            yield f"tasks({split!r}) gave other tasks when asked again; expected a fixed order."
        for task in tasks:
            if not all(isinstance(text, str) for text in (task.id, task.family, task.goal)) or not task.id:
                yield f"tasks({split!r}) has a task whose id, family or goal is no text: {task!r:.80}."
            elif seen.setdefault(task.id, split) != split:
                yield f"Task {task.id!r} is in {seen[task.id]!r} and in {split!r}; expected splits that share none."
    if len(seen) < sum(len(suite.tasks(split)) for split in splits if len(set(splits)) == len(splits)):
        yield "Two tasks of a split have the same id; expected distinct ones."
    try:
        suite.tasks("no such split")
    except OptionError:
        return
    yield "tasks('no such split') did not raise OptionError."


def answer_faults(where: str, answer: Any, length: int) -> Iterator[str]:
    """What is wrong with an answer of ``reset`` (length 2) or ``step`` (length 5).

    Raises:
        TypeError: nothing can be read of it.
    """
    if not isinstance(answer, tuple) or len(answer) != length:
        expected = "(observation, info)" if length == 2 else "(observation, reward, terminated, truncated, info)"
        raise TypeError(f"{where} gave {answer!r:.80}; expected {expected}")
    observation, info = answer[0], answer[-1]
    if not isinstance(info, Mapping) or not {"admissible", "won"} <= set(info):
        raise TypeError(f"{where} gave info {info!r:.80}; expected a mapping with 'admissible' and 'won'")
    for name, text in (("observation", observation), ("info['state']", info.get("state", ""))):
        if not isinstance(text, str):
            yield f"{where}: {name} is {text!r:.60}; expected text."
        elif not _is_unicode(text):
            yield f"{where}: {name} has a surrogate without its partner, which no file can hold."
    if not isinstance(info["won"], bool):
        yield f"{where}: info['won'] is {info['won']!r}; expected True or False."
    yield from _admissible_faults(where, info["admissible"])
    score = info.get("score", 0.0)
    if not _is_number(score) or not 0 <= score <= 1:
        yield f"{where}: info['score'] is {score!r}; expected a number in [0, 1]."
    if length == 5:
        if not _is_number(answer[1]):
            yield f"{where}: the reward is {answer[1]!r}; expected a finite number."
        if not all(isinstance(flag, bool) for flag in answer[2:4]):
            yield f"{where}: terminated and truncated are {answer[2:4]!r}; expected True or False."


def _admissible_faults(where: str, commands: Any) -> Iterator[str]:
    if isinstance(commands, str) or not isinstance(commands, Sequence) or not all(type(one) is str for one in commands):
        raise TypeError(f"{where} gave info['admissible'] = {commands!r:.80}; expected a sequence of texts")
    if list(commands) != sorted(set(commands)):
        yield f"{where}: info['admissible'] is not sorted and unique."
    if not all(one.strip() and _is_unicode(one) for one in commands):
        yield f"{where}: info['admissible'] holds a command that nobody can say."


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_unicode(text: str) -> bool:
    return text == writable(text)
