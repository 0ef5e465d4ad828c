"""``stepcredit demonstrate``: successful episodes of an expert or a teacher as a chat file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from stepcredit.cli.monitor import ConsoleMonitor
from stepcredit.core.errors import OptionError
from stepcredit.environments.catalogue import find_environment, make_suite
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.policy.endpoint import ChatEndpoint
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.responses import ResponseFormat
from stepcredit.training.chat_file import ChatFile, collecting
from stepcredit.training.chats import rollout_chats
from stepcredit.training.tasks import spread_over_families
from stepcredit.training.teaching import Taught, TeacherSettings, ask_expert, ask_teacher


@Parameter(name="*")
@dataclass(frozen=True)
class TeacherChoice:
    """A teacher behind an OpenAI-compatible endpoint, instead of the built-in expert.

    Args:
        endpoint: address of the server, up to /v1.
        model: name the server knows the teacher by.
        key_variable: environment variable with the key; it is read from nowhere else.
        concurrency: tasks played at once, and requests in flight.
        request_timeout: seconds a request may take.
        retries: further attempts at a request that met a busy or broken server, with growing pauses.
        repairs: times that an invalid answer is sent back.
        attempts: attempts at a task; between two the teacher notes for itself what went wrong.
        temperature: sampling temperature.
        max_response_tokens: tokens an answer may take.
    """

    endpoint: str | None = None
    model: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    concurrency: int = 8
    request_timeout: float = 120.0
    retries: int = 4
    repairs: int = 2
    attempts: int = 3
    temperature: float = 0.7
    max_response_tokens: int = 512

    def connect(self) -> ChatEndpoint | None:
        """The endpoint; None for the built-in expert.

        Raises:
            OptionError: one of address and model without the other, or a value out of range.
        """
        if self.endpoint is None and self.model is None:
            return None
        if self.endpoint is None or self.model is None:
            raise OptionError("A teacher needs both --endpoint ADDRESS and --model NAME; give both or neither.")
        return ChatEndpoint(
            self.endpoint,
            self.model,
            key_variable=self.key_variable,
            concurrency=self.concurrency,
            timeout=self.request_timeout,
            retries=self.retries,
        )


def demonstrate(
    out: Path,
    *,
    env: str = "household",
    env_options: dict[str, str] | None = None,
    split: str | None = None,
    tasks: int = 60,
    horizon: int | None = None,
    prompt: str = "chat",
    history: int = 2,
    response_format: ResponseFormat | None = None,
    noise: float = 0.0,
    seed: int = 0,
    teacher: TeacherChoice = TeacherChoice(),
) -> None:
    """Collect successful episodes as a chat file (JSON Lines in ShareGPT's style) that `stepcredit sft` trains on.

    The same command continues a file that was interrupted. Prompts are those that a learner with the same --prompt,
    --history and --response-format will get.

    Args:
        out: file to write.
        env: environment.
        env_options: its options, for example --env-options.room medium.
        split: which tasks; those for training by default.
        tasks: tasks at most, families in turn.
        horizon: turns an episode may take; the environment's own number by default.
        prompt: built-in template name or a template file.
        history: past turns a self-contained prompt shows.
        response_format: `action` or `think-action`; by default the expert gives commands alone, a teacher thinks first.
        noise: share of random commands in the expert's play; they are seen and not learnt.
        seed: fixes the expert's random commands, and is passed on to a teacher's server.
        teacher: a model instead of the expert.
    """
    endpoint = teacher.connect()
    form: ResponseFormat = response_format or ("action" if endpoint is None else "think-action")
    if endpoint is None and form != "action":
        raise OptionError("The built-in expert gives commands and no thoughts; use --response-format action.")
    if tasks < 1:
        raise OptionError(f"Got {tasks} tasks; expected at least 1.")
    if not 0 <= noise < 1:
        raise OptionError(f"noise is {noise}; expected a share from 0 up to, not including, 1.")
    options = find_environment(env).parse(env_options or {})
    suite = make_suite(env, **options)
    chosen = spread_over_families(suite.tasks(split or suite.splits()[0]), tasks)
    template = load_template(prompt, response_format=form, history=history)
    turns = suite.horizon if horizon is None else horizon
    settings = TeacherSettings(
        template, form, turns, teacher.temperature, teacher.max_response_tokens, teacher.repairs, teacher.attempts, seed
    )
    asked: dict[str, Any] = {"env": env, "env_options": options, "split": split, "tasks": tasks}
    asked |= {"noise": noise, **asdict(settings)}
    if endpoint is not None:
        asked |= {"endpoint": teacher.endpoint, "model": teacher.model, "concurrency": teacher.concurrency}
    with collecting(out), ConsoleMonitor() as monitor:
        file = ChatFile(out, asked)
        monitor.stage("tasks", len(chosen))
        for taught in _taught(suite, chosen, file, endpoint, settings, noise, teacher.concurrency):
            chats = () if taught.rollout is None else rollout_chats(taught.rollout, taught.weight, template, turns)
            outcome = {"success": taught.rollout is not None, "attempts": taught.attempts, "turns": len(taught.weight)}
            file.add(taught.task, chats, outcome | ({"reason": taught.reason} if taught.reason else {}))
            monitor.advance(len(file.done), f"success {_share(file):.1%}")
    print(f"{_share(file):.1%} of {len(chosen)} tasks demonstrated", file=sys.stderr)
    print(out)


def _taught(
    suite: TaskSuite,
    tasks: Sequence[Task],
    file: ChatFile,
    endpoint: ChatEndpoint | None,
    settings: TeacherSettings,
    noise: float,
    concurrency: int,
) -> Iterator[Taught]:
    """The tasks that are not done yet; a teacher plays ``concurrency`` at once, the same in every call."""
    if endpoint is None:
        numbers = [number for number, task in enumerate(tasks) if task.id not in file.done]
        waiting = [tasks[number] for number in numbers]
        yield from ask_expert(suite, waiting, numbers, noise=noise, horizon=settings.horizon, seed=settings.seed)
        return
    for first in range(0, len(tasks), concurrency):
        open_ = [task for task in tasks[first : first + concurrency] if task.id not in file.done]
        if open_:
            yield from ask_teacher(endpoint, suite, open_, settings, first)


def _share(file: ChatFile) -> float:
    """Share of the finished tasks that have a demonstration."""
    return sum(bool(row["success"]) for row in file.done.values()) / max(len(file.done), 1)
