"""The main path: collect groups → turns → credit → update → evaluate → log, with exact resume.

Every random draw comes from ``(recipe seed, stream, step)``, never from a stream that lives on between steps. A run
that was killed and resumed therefore draws what the uninterrupted one draws, and its checkpoints need no random state.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from stepcredit.core.credit import Credit
from stepcredit.core.errors import NumericsError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import TaskSuite
from stepcredit.policy.settings import Replay
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.types import Rollout
from stepcredit.training.build import Learner, build_policy, imitate_settings, update_settings
from stepcredit.training.config import TrainConfig
from stepcredit.training.demonstrations import choose_demonstrated, demonstrate
from stepcredit.training.measure import evaluate_everything, gate_success
from stepcredit.training.monitor import Monitor
from stepcredit.training.run_folder import Progress, RunFolder
from stepcredit.training.streams import Stream
from stepcredit.training.tasks import by_family, choose_tasks


def train(config: TrainConfig, run: RunFolder, monitor: Monitor) -> None:
    """Train as the recipe says, from the newest checkpoint of the folder if it has one."""
    suite = make_suite(config.environment, **config.environment_options)
    policy = build_policy(config, suite, run.path)
    found = run.latest()
    progress = Progress()
    if found is not None:
        progress, folder = found
        policy.load(folder)
        monitor.say(f"Resuming {run.path} after {progress.imitation_epochs} epochs and {progress.updates} updates.")
    run.forget_after(progress.step if found else -1)
    demonstrations = _demonstrations(config, suite)
    progress = supervised_start(config, suite, policy, demonstrations, run, progress, monitor)
    progress = reinforce(config, suite, policy, demonstrations, run, progress, monitor)
    if config.control_epochs:
        imitate_longer(config, suite, policy, demonstrations, run, progress, monitor)


def _demonstrations(config: TrainConfig, suite: TaskSuite) -> Replay:
    tasks = choose_demonstrated(suite, config.train_split, config.demonstrations)
    seed = (config.seed, Stream.DEMONSTRATION)
    return Replay(*demonstrate(suite, tasks, noise=config.demonstration_noise, horizon=config.horizon, seed=seed))


def supervised_start(
    config: TrainConfig,
    suite: TaskSuite,
    policy: Learner,
    demonstrations: Replay,
    run: RunFolder,
    progress: Progress,
    monitor: Monitor,
) -> Progress:
    """Imitate the expert until the gate opens, then keep the result as ``RUN/start``.

    The gate is success on training tasks of the demonstrated families, judged every few epochs: binding an instruction
    to its objects appears suddenly, so a fixed number of steps would start some runs before it.
    """
    rollouts, weight = demonstrations.rollouts, demonstrations.weight
    if not progress.imitation_done:
        monitor.stage("imitation", config.imitation_epochs if rollouts else 0)
        opened = not rollouts
        while not opened and progress.imitation_epochs < config.imitation_epochs:
            epoch = progress.imitation_epochs
            settings = imitate_settings(config)
            metrics = policy.imitate(rollouts, weight, settings, (config.seed, Stream.IMITATION, epoch))
            progress = replace(progress, imitation_epochs=epoch + 1)
            if (epoch + 1) % config.imitation_check_every == 0:
                metrics["gate_success"] = gate_success(config, suite, policy, epoch)
                opened = metrics["gate_success"] >= config.imitation_target
            run.log({"step": progress.step, "kind": "imitation", "epoch": epoch + 1, **metrics})
            run.save(progress, policy.save)
            monitor.advance(epoch + 1, _note(metrics, "loss", "gate_success"))
        progress = replace(progress, imitation_done=True)
        _keep_start(policy, run)
        evaluate_everything(config, suite, policy, run, progress, "before", monitor)
        run.save(progress, policy.save)
    policy.set_reference(run.path / "start")
    return progress


def reinforce(
    config: TrainConfig,
    suite: TaskSuite,
    policy: Learner,
    demonstrations: Replay,
    run: RunFolder,
    progress: Progress,
    monitor: Monitor,
) -> Progress:
    """The updates: collect → turns → credit → update → evaluate → log."""
    monitor.stage("updates", config.updates)
    groups = by_family(suite.tasks(config.train_split))
    for update in range(progress.updates, config.updates):
        clock = Clock()
        with clock("rollout"):
            tasks = choose_tasks(groups, config.tasks_per_update, update=update, seed=config.seed)
            collected = collect(
                policy,
                suite,
                tasks,
                group_size=config.group_size,
                horizon=config.horizon,
                seed=(config.seed, Stream.ROLLOUT, update),
                temperature=config.temperature,
                response_format=config.response_format,
                reward_scale=config.success_reward,
                invalid_penalty=config.invalid_penalty,
            )
        rollouts = collected.rollouts
        with clock("credit"):
            turns = Turns.from_episodes(rollout.episode for rollout in rollouts)
            credit = assign(turns, config.method, **config.method_options)
        with clock("update"):
            settings = update_settings(config, update)
            seed = (config.seed, Stream.UPDATE, update)
            metrics = policy.update(
                rollouts, credit.advantage, settings, seed, demonstrations if config.imitation_weight else None
            )
        progress = replace(progress, updates=update + 1)
        line = _update_line(progress, rollouts, len(collected.failures), credit, metrics)
        run.write_rollouts(f"rollouts/{update + 1:06d}", rollouts)
        run.log(line)
        _stop_on_broken_numbers(run)
        if config.eval_every and (update + 1) % config.eval_every == 0 and update + 1 < config.updates:
            with clock("evaluation"):
                evaluate_everything(config, suite, policy, run, progress, f"update-{update + 1}", monitor)
        if (update + 1) % config.checkpoint_every == 0 or update + 1 == config.updates:
            run.save(progress, policy.save)
        run.log({"step": progress.step, "update": update + 1, **clock.seconds}, name="timing")
        monitor.advance(update + 1, _note(line, "success", "turns", "entropy"))
    evaluate_everything(config, suite, policy, run, progress, "after", monitor)
    return progress


def imitate_longer(
    config: TrainConfig,
    suite: TaskSuite,
    policy: Learner,
    demonstrations: Replay,
    run: RunFolder,
    progress: Progress,
    monitor: Monitor,
) -> None:
    """The control: what the start policy reaches when it goes on imitating instead of being reinforced.

    Runs last and from ``RUN/start``, so it changes nothing of the run; a kill makes it start over.
    """
    if any(line.get("moment") == CONTROL for line in run.metrics()):
        return
    policy.load(run.path / "start")
    monitor.stage(CONTROL, config.control_epochs)
    began = time.perf_counter()
    for epoch in range(config.control_epochs):
        seed = (config.seed, Stream.IMITATION, config.imitation_epochs + epoch)
        metrics = policy.imitate(demonstrations.rollouts, demonstrations.weight, imitate_settings(config), seed)
        monitor.advance(epoch + 1, _note(metrics, "loss"))
    run.log({"step": progress.step, CONTROL: time.perf_counter() - began}, name="timing")
    evaluate_everything(config, suite, policy, run, progress, CONTROL, monitor)


CONTROL = "control"
"""Moment, stage and timing name of the control."""


class Clock:
    """Seconds spent per named stage of one update."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the block's duration to ``name``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


def _keep_start(policy: Learner, run: RunFolder) -> None:
    """Keep the policy RL starts from: the reference of penalties, and what controls start from."""
    partial = run.path / "start.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    policy.save(partial)
    shutil.rmtree(run.path / "start", ignore_errors=True)
    partial.rename(run.path / "start")


def _update_line(
    progress: Progress, rollouts: Sequence[Rollout], failures: int, credit: Credit, metrics: Mapping[str, float]
) -> dict[str, Any]:
    episodes = [rollout.episode for rollout in rollouts]
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "step": progress.step,
        "kind": "update",
        "update": progress.updates,
        "episodes": len(episodes),
        "failures": failures,
        "success": float(np.mean([episode.success for episode in episodes])) if episodes else None,
        "turns": len(turns) / max(len(episodes), 1),
        "valid": sum(turn.valid for turn in turns) / max(len(turns), 1),
        **metrics,
        "credit": dict(credit.diagnostics),
    }


BROKEN_UPDATES = 3
"""Consecutive updates without one finite optimiser step after which a run stops."""


def _stop_on_broken_numbers(run: RunFolder) -> None:
    recent = [line for line in run.metrics() if line["kind"] == "update"][-BROKEN_UPDATES:]
    if len(recent) == BROKEN_UPDATES and all(line.get("steps") == 0 and line["skipped_steps"] for line in recent):
        raise NumericsError(
            f"{BROKEN_UPDATES} updates in a row had no finite loss or gradient; the last good checkpoint is kept in "
            f"{run.path}. Lower learning_rate or max_grad_norm."
        )


def _note(metrics: Mapping[str, Any], *names: str) -> str:
    return "  ".join(f"{name} {metrics[name]:.3g}" for name in names if metrics.get(name) is not None)
