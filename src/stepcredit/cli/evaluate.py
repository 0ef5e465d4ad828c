"""``stepcredit evaluate``: a run, a model or an endpoint on fixed tasks and seeds, under a protocol."""

from __future__ import annotations

import hashlib
import json as jsonlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cyclopts import Parameter
from rich.table import Table

from stepcredit.cli.console import Console
from stepcredit.cli.monitor import ConsoleMonitor
from stepcredit.cli.tables import interval_cell
from stepcredit.cli.targets import Prompting, Target, build_agent, find_target, identify
from stepcredit.cli.train import parse_overrides
from stepcredit.core.errors import OptionError
from stepcredit.core.text import harmless
from stepcredit.environments.catalogue import find_environment, make_suite
from stepcredit.environments.protocol import TaskSuite
from stepcredit.evaluation.folder import EvaluationResult, run_evaluation
from stepcredit.evaluation.intervals import RESAMPLES
from stepcredit.evaluation.plan import Plan
from stepcredit.evaluation.protocols import CUSTOM, Protocol, find_protocol
from stepcredit.evaluation.results import OVERALL, FamilyResult, unseen_share
from stepcredit.policy.endpoint import ChatEndpoint
from stepcredit.training.tasks import spread_over_families

_FREE_TOKENS = 512
"""Response tokens of a model that no recipe limits."""


@Parameter(name="*")
@dataclass(frozen=True)
class Changes:
    """Settings that replace the protocol's, which is then called `custom`.

    Args:
        temperature: sampling temperature.
        greedy: temperature 0.
        seeds: times that all tasks are played.
        episodes_per_task: episodes of each task a seed.
        tasks: tasks at most, families in turn.
        horizon: turns an episode may take.
        history: past turns a self-contained prompt shows.
        prompt_tokens: tokens a prompt may have.
        response_tokens: tokens a response may have.
        resamples: whole-task bootstrap draws of an interval.
    """

    temperature: float | None = None
    greedy: bool = False
    seeds: int | None = None
    episodes_per_task: int | None = None
    tasks: int | None = None
    horizon: int | None = None
    history: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    resamples: int | None = None

    def applied(self, protocol: Protocol) -> Protocol:
        """The protocol with these settings.

        Raises:
            OptionError: two that contradict each other, or a value out of range.
        """
        if self.greedy and self.temperature is not None:
            raise OptionError(
                f"--greedy is temperature 0, and --temperature says {self.temperature}; give one of them."
            )
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "greedy"}
        return protocol.replaced(**(values | ({"temperature": 0.0} if self.greedy else {})))


def evaluate(
    target: str,
    *,
    env: str | None = None,
    env_options: dict[str, str] | None = None,
    split: str | None = None,
    protocol: Literal["gaca", "tsbpo", "gigpo", "custom"] = "custom",
    changes: Changes = Changes(),
    seed: int = 0,
    prompting: Prompting = "plain",
    recipe: dict[str, str] | None = None,
    at_start: bool = False,
    endpoint: str | None = None,
    key_variable: str = "OPENAI_API_KEY",
    concurrency: int = 8,
    request_timeout: float = 120.0,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Play fixed tasks under a protocol and print success by family with intervals.

    Every episode is kept. The same command continues an evaluation that was interrupted, to the same result.

    Args:
        target: run folder, model folder or hub name; with --endpoint the server's name of the model.
        env: environment; that of the run by default, else `household`.
        env_options: options of the environment, for example --env-options.games FILE; those of the run by default.
        split: which tasks; the first held-out split by default.
        protocol: whose settings; `custom`: those of the run's recipe.
        changes: settings that replace the protocol's.
        seed: the first seed.
        prompting: `plain`: as the recipe asks; `react`, `reflexion`: prompting baselines.
        recipe: keys of a recipe that say how a model is asked, for example --recipe.prompt chat.
        at_start: the policy a run's reinforcement learning began from, instead of its newest.
        endpoint: address of an OpenAI-compatible server, up to /v1, that answers instead of a local model.
        key_variable: environment variable with the key for it.
        concurrency: requests to it in flight.
        request_timeout: seconds a request may take.
        out: folder that keeps the evaluation; by default one below `evaluations/`, the same for the same evaluation.
        json: print JSON on standard output instead of the table.
    """
    server = None
    if endpoint is not None:
        server = ChatEndpoint(
            endpoint, target, key_variable=key_variable, concurrency=concurrency, timeout=request_timeout
        )
    found = find_target(target, parse_overrides(recipe or {}), at_start=at_start, endpoint=server)
    name = env or found.config.environment
    options = _environment_options(found, name, env_options)
    papers = None if protocol == CUSTOM else find_protocol(protocol, name)
    suite = make_suite(name, **options)
    chosen_split = split or _held_out(suite)
    rules = changes.applied(papers or _own_protocol(found, name, suite))
    played = suite.tasks(chosen_split)
    tasks = spread_over_families(played, rules.tasks or len(played))
    plan = Plan(name, options, chosen_split, [task.id for task in tasks], seed, rules)
    who = identify(found, prompting)
    folder = out or Path("evaluations") / _folder_name(who, plan)
    with tempfile.TemporaryDirectory() as scratch, ConsoleMonitor() as monitor:
        agent = build_agent(found, prompting, suite, rules, Path(scratch))
        monitor.say(f"Evaluation folder: {folder}")
        monitor.stage("episodes", len(tasks) * rules.episodes_per_task * rules.seeds)
        result = run_evaluation(
            agent, suite, tasks, plan, who, folder, progress=lambda done, _: monitor.advance(done, "")
        )
    if json:
        shown = {"target": target, "folder": str(folder), "plan": plan.to_json(), "agent": who, **result.to_json()}
        sys.stdout.write(harmless(jsonlib.dumps(shown, ensure_ascii=False)) + "\n")
    else:
        changed = "" if rules.name == protocol else f" ({protocol} with other {', '.join(rules.given())})"
        print_result(f"{who['name']} on {name}, {chosen_split}: protocol {rules.name}{changed}", result)


def _environment_options(target: Target, environment: str, given: Mapping[str, str] | None) -> dict[str, Any]:
    """What was given, as the suite takes it; else the run's own, where it is the run's environment."""
    if given is not None:
        return find_environment(environment).parse(given)
    return target.config.environment_options if environment == target.config.environment else {}


def _held_out(suite: TaskSuite) -> str:
    splits = suite.splits()
    return splits[min(1, len(splits) - 1)]


def _own_protocol(target: Target, environment: str, suite: TaskSuite) -> Protocol:
    """The settings of the run's recipe, or of a model that has none."""
    config = target.config
    trained = target.run is not None
    at_home = trained and environment == config.environment
    values: dict[str, Any] = {
        "temperature": config.eval_temperature,
        "seeds": 1,
        "episodes_per_task": 1,
        "tasks": config.eval_tasks,
        "horizon": config.horizon if at_home else suite.horizon,
        "history": config.history,
        "prompt_tokens": None,
        "response_tokens": config.max_response_tokens if trained or config.constrained else _FREE_TOKENS,
        "resamples": RESAMPLES,
    }
    sources = dict.fromkeys(values, "default")
    if trained:
        recipe = ("temperature", "tasks", "history", "response_tokens", *(["horizon"] if at_home else []))
        sources |= dict.fromkeys(recipe, "the run's recipe")
    return Protocol(CUSTOM, environment, **values, sources=sources)


def _folder_name(who: Mapping[str, Any], plan: Plan) -> str:
    """Readable, and different for everything that makes another evaluation."""
    settled = jsonlib.dumps([who, plan.to_json()], sort_keys=True)
    digest = hashlib.sha256(settled.encode()).hexdigest()[:8]
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in str(who["name"]))
    return f"{name}-{who['prompting']}-{plan.protocol.name}-{plan.split}-{digest}"


def print_result(title: str, result: EvaluationResult) -> None:
    """Two tables by family, success and how episodes went; and what is told of the overall row alone."""
    console = Console()
    overall = result.families[OVERALL]
    ks = list(overall.pass_at)
    success = [
        ("success", lambda row: interval_cell(row.success)),
        *((f"pass@{k}", lambda row, k=k: f"{row.pass_at[k]:.1%}" if k in row.pass_at else "–") for k in ks[1:]),
        ("score", lambda row: f"{row.score:.3f}"),
        ("tasks", lambda row: str(row.tasks)),
    ]
    course = [
        ("turns won", lambda row: _number(row.turns_won)),
        ("turns lost", lambda row: _number(row.turns_lost)),
        ("horizon", lambda row: f"{row.horizon:.1%}"),
        ("valid action", lambda row: f"{row.valid_action:.1%}"),
        ("valid format", lambda row: f"{row.valid_format:.1%}"),
        ("cut off", lambda row: f"{row.truncated:.1%}"),
        ("tokens", lambda row: _number(row.tokens)),
    ]
    console.print(_table(f"{title}\n{overall.episodes} episodes, 95 % interval over tasks", result.families, success))
    console.print(_table("How the episodes went", result.families, course))
    if overall.success.mean in (0.0, 1.0):
        console.print(
            "All tasks ended alike, so the interval has no width; of other tasks up to "
            f"{unseen_share(overall.tasks):.1%} may end differently (exact 95 % bound for {overall.tasks})."
        )
    if overall.errors:
        first = next(outcome.reason for outcome in result.outcomes if outcome.reason)
        console.print(f"{overall.errors} episodes ended in an error and count as failures; the first: {first}")
    if len(overall.seeds) > 1:
        console.print("Success by seed: " + ", ".join(f"{seed}: {mean:.1%}" for seed, mean in overall.seeds.items()))
    if overall.trials:
        console.print("Won within 1, 2, … trials: " + ", ".join(f"{share:.1%}" for share in overall.trials))


def _table(title: str, families: Mapping[str, FamilyResult], columns: Sequence[tuple[str, Any]]) -> Table:
    table = Table(title=title)
    table.add_column("family")
    for name, _ in columns:
        table.add_column(name, justify="right", no_wrap=name == "success")
    for family, row in families.items():
        table.add_row(family, *(cell(row) for _, cell in columns))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
