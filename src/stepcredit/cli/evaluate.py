"""``stepcredit evaluate``: success of a run's newest policy, or of a model folder, on fixed tasks and seeds."""

from __future__ import annotations

import json as jsonlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from stepcredit.cli.monitor import ConsoleMonitor
from stepcredit.cli.tables import print_families
from stepcredit.core.errors import CheckpointError
from stepcredit.core.files import write_episodes
from stepcredit.environments.catalogue import make_suite
from stepcredit.evaluation.evaluate import evaluate as run_evaluation
from stepcredit.training.build import build_policy
from stepcredit.training.config import TrainConfig, make_config
from stepcredit.training.run_folder import RunFolder
from stepcredit.training.tasks import spread_over_families


def evaluate(
    target: str,
    *,
    env: str | None = None,
    env_options: dict[str, str] | None = None,
    split: str = "valid_seen",
    tasks: int = 120,
    episodes_per_task: int = 1,
    horizon: int | None = None,
    temperature: float = 0.4,
    seed: int = 0,
    at_start: bool = False,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Play fixed tasks with a trained policy and print success by family with intervals.

    Args:
        target: run folder, model folder or hub name.
        env: environment; that of the run by default, else `household`.
        env_options: options of the environment, for example --env-options.games FILE; those of the run by default.
        split: which tasks.
        tasks: tasks at most, families in turn.
        episodes_per_task: repetitions of every task.
        horizon: turns an episode may take; that of the run by default.
        temperature: 0 is greedy.
        seed: fixes every draw.
        at_start: the policy a run's reinforcement learning began from, instead of its newest.
        out: write the episodes to this rollout file.
        json: print JSON on standard output instead of the table.
    """
    config, run = _configuration(target)
    suite = make_suite(env or config.environment, **_options(config, env, env_options))
    with tempfile.TemporaryDirectory() as scratch, ConsoleMonitor() as monitor:
        policy = build_policy(config, suite, run.path if run else Path(scratch))
        if run is not None:
            policy.load(_checkpoint(run, at_start=at_start))
        chosen = spread_over_families(suite.tasks(split), tasks)
        monitor.stage("episodes", len(chosen) * episodes_per_task)
        result = run_evaluation(
            policy,
            suite,
            chosen,
            horizon=horizon or config.horizon,
            seed=(seed,),
            temperature=temperature,
            episodes_per_task=episodes_per_task,
            response_format=config.response_format,
            progress=lambda done, _: monitor.advance(done, ""),
        )
    if out is not None:
        write_episodes(out, (rollout.episode for rollout in result.rollouts))
    if json:
        sys.stdout.write(
            jsonlib.dumps({"target": target, "split": split, **result.to_json()}, ensure_ascii=False) + "\n"
        )
    else:
        print_families(f"{target} on {split}", result.to_json()["families"])


def _configuration(target: str) -> tuple[TrainConfig, RunFolder | None]:
    folder = RunFolder(Path(target))
    if folder.config_file.exists() and (Path(target) / "checkpoints").is_dir():
        return make_config(folder.read_config()), folder
    return make_config({"model": target}), None


def _options(config: TrainConfig, env: str | None, given: dict[str, str] | None) -> dict[str, Any]:
    if given is not None:
        return dict(given)
    return config.environment_options if env in (None, config.environment) else {}


def _checkpoint(run: RunFolder, *, at_start: bool) -> Path:
    if at_start:
        return run.path / "start"
    found = run.latest()
    if found is None:
        raise CheckpointError(f"{str(run.path)!r} has no checkpoint yet; let it train for a while.")
    return found[1]
