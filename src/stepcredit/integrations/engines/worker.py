"""A process that holds environments of one suite and answers one line of JSON with another.

``python -m stepcredit.integrations.engines.worker`` reads a first line ``{"suite": NAME, "options": {…}}`` and then
calls ``{"call": NAME, "key": KEY, …}``; an answer is ``{"answer": VALUE}`` or ``{"fault": REASON}``. It ends with its
standard input, so it never outlives whoever started it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

import orjson

from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import Environment, Task, TaskSuite
from stepcredit.rollouts.calls import describe


def serve(calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answer calls until there are no more."""
    opening = orjson.loads(calls.readline())
    suite = make_suite(opening["suite"], **opening["options"])
    environments: dict[str, Environment] = {}
    _send(answers, {"answer": "ready"})
    for line in calls:
        call = orjson.loads(line)
        try:
            answer = {"answer": _CALLS[call["call"]](suite, environments, call)}
        except Exception as error:  # whatever an environment raises belongs to its own episode
            answer = {"fault": describe(error)}
        _send(answers, answer)


def _make(suite: TaskSuite, environments: dict[str, Environment], call: Mapping[str, Any]) -> None:
    environments[call["key"]] = suite.make(Task(*call["task"]))


def _reset(suite: TaskSuite, environments: dict[str, Environment], call: Mapping[str, Any]) -> Any:
    observation, info = environments[call["key"]].reset()
    return observation, dict(info)


def _step(suite: TaskSuite, environments: dict[str, Environment], call: Mapping[str, Any]) -> Any:
    observation, reward, terminated, truncated, info = environments[call["key"]].step(call["action"])
    return observation, float(reward), bool(terminated), bool(truncated), dict(info)


def _close(suite: TaskSuite, environments: dict[str, Environment], call: Mapping[str, Any]) -> None:
    environment = environments.pop(call["key"], None)
    if environment is not None:
        environment.close()


_CALLS: dict[str, Callable[[TaskSuite, dict[str, Environment], Mapping[str, Any]], Any]] = {
    "make": _make,
    "reset": _reset,
    "step": _step,
    "close": _close,
}


def _send(answers: IO[bytes], answer: Mapping[str, Any]) -> None:
    answers.write(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
    answers.flush()


def main() -> None:
    """Serve on standard input and output; what environments print goes to standard error instead."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
