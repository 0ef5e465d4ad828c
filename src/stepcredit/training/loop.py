"""The main path: collect groups → turns → credit → update → evaluate → log, with exact resume.

Every random draw comes from ``(recipe seed, stream, step)``, never from a stream that lives on between steps. A run
that was killed and resumed therefore draws what the uninterrupted one draws, and its checkpoints need no random state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stepcredit.allocation.allocator import Allocator
from stepcredit.core.errors import CheckpointError, EnvironmentFaultError, NumericsError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import TaskSuite
from stepcredit.policy.settings import Replay, Returns
from stepcredit.rollouts.types import Rollout
from stepcredit.training.build import Learner, build_policy, imitate_settings, state_policy, update_settings
from stepcredit.training.config import TrainConfig, config_objective, method_options
from stepcredit.training.demonstrations import NOISE, choose_demonstrated, demonstrate
from stepcredit.training.measure import evaluate_everything, gate_success
from stepcredit.training.monitor import Monitor
from stepcredit.training.outcomes import played_out
from stepcredit.training.rounds import Round, load_allocator, make_allocator, play_round, save_allocator
from stepcredit.training.run_folder import Progress, RunFolder, read_progress, write_folder
from stepcredit.training.streams import Stream
from stepcredit.training.tasks import training_tasks

GATE_EVERY = 5
"""Imitation epochs between two looks at the gate."""
BROKEN_UPDATES = 3
"""Consecutive updates without one finite optimiser step after which a run stops."""
MOST_FAILED = 0.5
"""Share of failed episodes of one update above which a run stops."""
CONTROL = "control"
"""Moment, stage and timing name of the control."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run works with; only the policy and the allocator change while it does."""

    config: TrainConfig
    suite: TaskSuite
    policy: Learner
    allocator: Allocator | None
    demonstrations: Replay
    run: RunFolder
    monitor: Monitor
    after_evaluation: Callable[[], None]

    def save(self, progress: Progress) -> None:
        """Write a checkpoint."""

        def write(folder: Path) -> None:
            self.policy.save(folder)
            save_allocator(self.allocator, folder)

        self.run.save(progress, write)

    def evaluate(self, progress: Progress, moment: str) -> None:
        """Evaluate everything the recipe names."""
        evaluate_everything(self.config, self.suite, self.policy, self.run, progress, moment, self.monitor)
        self.after_evaluation()


def train(
    config: TrainConfig, run: RunFolder, monitor: Monitor, after_evaluation: Callable[[], None] = lambda: None
) -> None:
    """Train as the recipe says, from the newest checkpoint of the folder if it has one.

    Args:
        config: the recipe.
        run: where everything is kept.
        monitor: where progress is shown.
        after_evaluation: called whenever new results stand in the run folder.

    Raises:
        StepcreditError: the recipe does not fit, the disk refuses, or numbers broke; the last good checkpoint stays.
    """
    suite = make_suite(config.environment, **config.environment_options)
    setup = Setup(
        config=config,
        suite=suite,
        policy=build_policy(config, suite, run.path),
        allocator=make_allocator(config),
        demonstrations=_demonstrations(config, suite),
        run=run,
        monitor=monitor,
        after_evaluation=after_evaluation,
    )
    state_policy(setup.policy, run.path, monitor.say)
    for warning in suite.warnings:
        monitor.say(f"Warning: {warning}")
    progress = _continue_from(setup)
    progress = supervised_start(setup, progress)
    progress = reinforce(setup, progress)
    if config.control_epochs:
        imitate_longer(setup, progress)


def supervised_start(setup: Setup, progress: Progress) -> Progress:
    """Imitate the expert until the gate opens, then keep the result as ``RUN/start``.

    The gate is success on training tasks of the demonstrated families, judged every few epochs: binding an instruction
    to its objects appears suddenly, so a fixed number of steps would start some runs before it.
    """
    config, policy, run = setup.config, setup.policy, setup.run
    rollouts, weight = setup.demonstrations.rollouts, setup.demonstrations.weight
    if not progress.imitation_done:
        setup.monitor.stage("imitation", config.imitation_epochs if rollouts else 0)
        opened = not rollouts
        while not opened and progress.imitation_epochs < config.imitation_epochs:
            epoch = progress.imitation_epochs
            seed = (config.seed, Stream.IMITATION, epoch)
            metrics = policy.imitate(rollouts, weight, imitate_settings(config, epoch), seed)
            if _moved_nothing(metrics):
                raise NumericsError(
                    f"No optimiser step of imitation epoch {epoch + 1} had a finite loss and gradient; "
                    f"{str(run.path)!r} keeps the last good checkpoint; lower imitation_learning_rate, then train anew."
                )
            progress = replace(progress, imitation_epochs=epoch + 1)
            if (epoch + 1) % GATE_EVERY == 0:
                metrics["gate_success"] = gate_success(config, setup.suite, policy, epoch)
                opened = metrics["gate_success"] >= config.imitation_target
            run.log({"step": progress.step, "kind": "imitation", "epoch": epoch + 1, **metrics})
            setup.save(progress)
            setup.monitor.advance(epoch + 1, _note(metrics, "imitation_loss", "gate_success"))
        progress = replace(progress, imitation_done=True)
        # The policy RL starts from: the reference of penalties, and what controls start from.
        write_folder(run.path / "start", policy.save)
        setup.evaluate(progress, "before")
        setup.save(progress)
    policy.set_reference(run.path / "start")
    return progress


def reinforce(setup: Setup, progress: Progress) -> Progress:
    """The updates: collect → turns → credit → update → evaluate → log."""
    config, run = setup.config, setup.run
    setup.monitor.stage("updates", config.updates)
    replay = setup.demonstrations if config.imitation_weight else None
    for update in range(progress.updates, config.updates):
        clock = Clock()
        with clock("rollout"):
            played = play_round(config, setup.suite, setup.policy, setup.allocator, update)
        learnt = _check_failures(played)
        lesson = _learn(setup, learnt, replay, update, clock)
        progress = replace(progress, updates=update + 1)
        line = _update_line(progress, played, lesson)
        run.write_rollouts(f"rollouts/{update + 1:06d}", played.rollouts)
        run.log(line)
        if lesson.skipped:
            setup.monitor.say(f"Update {update + 1} is skipped: {lesson.skipped}")
            _stop_on_broken_numbers(run)
        last = update + 1 == config.updates
        if config.eval_every and (update + 1) % config.eval_every == 0 and not last:
            with clock("evaluation"):
                setup.evaluate(progress, f"update-{update + 1}")
        if last or (update + 1) % config.checkpoint_every == 0:
            setup.save(progress)
        run.log({"step": progress.step, **clock.seconds}, name="timing")
        setup.monitor.advance(update + 1, _note(line, "success", "turns"))
    setup.evaluate(progress, "after")
    return progress


def imitate_longer(setup: Setup, progress: Progress) -> None:
    """The control: what the start policy reaches when it goes on imitating instead of being reinforced.

    Runs last and from ``RUN/start``, so it changes nothing of the run; a kill makes it start over.
    """
    config, run = setup.config, setup.run
    if any(line.get("moment") == CONTROL for line in run.metrics()):
        return
    rollouts, weight = setup.demonstrations.rollouts, setup.demonstrations.weight
    setup.policy.load(run.path / "start")
    setup.monitor.stage(CONTROL, config.control_epochs)
    began = time.perf_counter()
    for epoch in range(config.control_epochs):
        seed = (config.seed, Stream.IMITATION, config.imitation_epochs + epoch)
        metrics = setup.policy.imitate(rollouts, weight, imitate_settings(config, config.imitation_epochs), seed)
        setup.monitor.advance(epoch + 1, _note(metrics, "imitation_loss"))
    run.log({"step": progress.step, CONTROL: time.perf_counter() - began}, name="timing")
    setup.evaluate(progress, CONTROL)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What an update was and did: diagnostics of its credit, metrics of the policy, and why it moved nothing."""

    credit: Mapping[str, Any]
    metrics: Mapping[str, float]
    skipped: str = ""


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


def _demonstrations(config: TrainConfig, suite: TaskSuite) -> Replay:
    tasks = choose_demonstrated(training_tasks(suite), config.demonstrations)
    seed = (config.seed, Stream.DEMONSTRATION)
    return Replay(*demonstrate(suite, tasks, noise=NOISE, horizon=config.horizon, seed=seed))


def _continue_from(setup: Setup) -> Progress:
    """Restore the newest checkpoint that can be read, and drop what was logged after it."""
    broken: CheckpointError | None = None
    for folder in reversed(setup.run.checkpoints()):
        try:
            progress = read_progress(folder)
            setup.policy.load(folder)
            load_allocator(setup.allocator, folder)
        except CheckpointError as error:
            broken = error
            setup.monitor.say(f"Warning: {error} Trying the checkpoint before it.")
            continue
        setup.run.forget_after(progress.step)
        done = f"{progress.imitation_epochs} imitation epochs and {progress.updates} updates"
        setup.monitor.say(f"Resuming {setup.run.path} after {done}.")
        return progress
    if broken is not None:
        raise broken
    setup.run.forget_after(-1)
    return Progress()


def _learn(setup: Setup, learnt: Sequence[Rollout], replay: Replay | None, update: int, clock: Clock) -> Lesson:
    """Credit and one policy update; numbers that overflow or break skip the update and say why."""
    config = setup.config
    try:
        with clock("credit"):
            turns = Turns.from_episodes(rollout.episode for rollout in learnt)
            options = method_options(config)
            critic = config_objective(config).value_coef > 0
            if critic:
                options["values"] = setup.policy.values(learnt)
            credit = assign(turns, config.method, **options)
    except NumericsError as error:
        return Lesson({}, {"skipped_steps": 0.0}, str(error))
    with clock("update"):
        seed = (config.seed, Stream.UPDATE, update)
        # GAE's own return, which leaves penalties out.
        returns = Returns(credit.advantage + turns.penalty + options["values"], options["values"]) if critic else None
        metrics = setup.policy.update(learnt, credit.advantage, update_settings(config, update), seed, replay, returns)
    broken = "no optimiser step had a finite loss and gradient." if _moved_nothing(metrics) else ""
    return Lesson(credit.diagnostics, metrics, broken)


def _moved_nothing(metrics: Mapping[str, float]) -> bool:
    """Whether every optimiser step was skipped: ``grad_norm`` is the mean over those taken, 0 where none was."""
    return metrics["skipped_steps"] > 0 and not metrics["grad_norm"]


def _update_line(progress: Progress, played: Round, lesson: Lesson) -> dict[str, Any]:
    episodes = [rollout.episode for rollout in played.rollouts]
    roots = [episode for episode in episodes if episode.parent is None]
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "step": progress.step,
        "kind": "update",
        "update": progress.updates,
        "episodes": len(episodes),
        "branches": len(episodes) - len(roots),
        "failures": len(played.failures) + sum(episode.stop == "error" for episode in episodes),
        "success": float(np.mean([episode.success for episode in roots])) if roots else None,
        "turns": len(turns) / max(len(episodes), 1),
        "valid": sum(turn.valid for turn in turns) / max(len(turns), 1),
        "policy": dict(lesson.metrics),
        "credit": dict(lesson.credit),
        "allocation": dict(played.allocation),
        **({"skipped": lesson.skipped} if lesson.skipped else {}),
    }


def _check_failures(played: Round) -> list[Rollout]:
    """The rollouts to learn from; the others are kept as data.

    Raises:
        EnvironmentFaultError: so many failed that going on would only waste time.
    """
    learnt = played_out(played.rollouts)
    failed = len(played.failures) + len(played.rollouts) - len(learnt)
    share = failed / max(len(played.failures) + len(played.rollouts), 1)
    if share > MOST_FAILED:
        reasons = [str(one.episode.extra["error"]) for one in played.rollouts if "error" in one.episode.extra]
        raise EnvironmentFaultError(
            f"{failed} episodes of an update failed ({share:.0%}, expected at most {MOST_FAILED:.0%}); "
            f"the first: {[*reasons, *played.failures][0]}."
        )
    return learnt


def _stop_on_broken_numbers(run: RunFolder) -> None:
    recent = [line for line in run.metrics() if line["kind"] == "update"][-BROKEN_UPDATES:]
    if len(recent) == BROKEN_UPDATES and all("skipped" in line for line in recent):
        raise NumericsError(
            f"{BROKEN_UPDATES} updates in a row moved nothing; the last: {recent[-1]['skipped']} "
            f"{str(run.path)!r} keeps the last good checkpoint; lower learning_rate or the rewards, then train anew."
        )


def _note(metrics: Mapping[str, Any], *names: str) -> str:
    return "  ".join(f"{name} {metrics[name]:.3g}" for name in names if metrics.get(name) is not None)
