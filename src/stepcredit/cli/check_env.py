"""``stepcredit check-env``: whether an environment keeps the protocol's promises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any

import orjson
from cyclopts import Parameter

from stepcredit.cli.console import Console
from stepcredit.core.text import harmless
from stepcredit.environments.catalogue import find_environment, make_suite
from stepcredit.environments.check import Report, check_suite
from stepcredit.environments.protocol import TaskSuite
from stepcredit.environments.replay import replay

BROKEN = 1
_REPLAY = "from stepcredit.cli.check_env import answer; answer()"


def check_env(
    target: str,
    *,
    tasks: int = 5,
    steps: int = 30,
    seed: int = 0,
    json: bool = False,
    **options: Annotated[str, Parameter(help="any option of the environment")],
) -> None:
    """Play some tasks of an environment and name every promise of the protocol that it breaks.

    The status is 0 where it keeps them all, 1 where it does not, 2 where it cannot be loaded.

    Args:
        target: `module:Class` of a suite, looked for in the working directory too; or an environment's name.
        tasks: tasks of each split.
        steps: commands a task, at most.
        seed: of the random commands.
        json: print JSON on standard output.
    """
    values = find_environment(target).parse(options)
    suite: TaskSuite = make_suite(target, **values)

    def elsewhere(split: str, commands: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        asked = {"target": target, "options": values, "split": split, "commands": commands}
        done = subprocess.run(
            [sys.executable, "-c", _REPLAY], input=orjson.dumps(asked), capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the replay in another process failed: {done.stderr.decode(errors='replace')[-200:]}")
        steps: list[dict[str, Any]] = orjson.loads(done.stdout)
        return steps

    report = check_suite(suite, tasks=tasks, steps=steps, seed=seed, elsewhere=elsewhere)
    if json:
        sys.stdout.write(harmless(orjson.dumps(report.as_json()).decode()) + "\n")
    else:
        _print(target, report)
    if report.findings:
        sys.exit(BROKEN)


def answer() -> None:
    """Replay, in a process of its own, what standard input asks for; the steps go to standard output as JSON."""
    asked = orjson.loads(sys.stdin.buffer.read())
    suite = make_suite(asked["target"], **asked["options"])
    with closing(suite.make(suite.tasks(asked["split"])[0])) as environment:
        steps = [step.as_json() for step in replay(environment, asked["commands"])]
    sys.stdout.buffer.write(orjson.dumps(steps))


def _print(target: str, report: Report) -> None:
    console = Console()
    for finding in report.findings:
        where = (
            f" [{finding.task}{f' and {finding.count - 1} more' if finding.count > 1 else ''}]" if finding.task else ""
        )
        console.print(f"{finding.promise}{where}: {finding.fault}", soft_wrap=True)
    found = len(report.findings)
    summary = f"{found} finding{'' if found == 1 else 's'}" if found else "keeps every promise"
    console.print(f"{target}: {summary}; {report.tasks} tasks, {report.steps} commands.", style="bold")
