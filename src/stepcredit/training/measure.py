"""What a run measures: the gate of the supervised start, and the held-out evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import TaskSuite
from stepcredit.evaluation.evaluate import OVERALL, Evaluation, evaluate
from stepcredit.training.build import Learner
from stepcredit.training.config import TrainConfig
from stepcredit.training.monitor import Monitor
from stepcredit.training.run_folder import Progress, RunFolder
from stepcredit.training.streams import Stream
from stepcredit.training.tasks import by_family, spread_over_families, training_tasks


def gate_success(config: TrainConfig, suite: TaskSuite, policy: Learner, epoch: int) -> float:
    """Success on training tasks of the demonstrated families that no demonstration showed."""
    shown = config.demonstrations
    tasks = [
        task
        for family, members in by_family(training_tasks(suite)).items()
        if shown.get(family, 0) > 0
        for task in members[shown[family] :]
    ]
    result = evaluate(
        policy,
        suite,
        spread_over_families(tasks, config.eval_tasks),
        horizon=config.horizon,
        seed=(config.seed, Stream.GATE, epoch),
        temperature=config.eval_temperature,
        response_format=config.response_format,
    )
    return result.families[OVERALL].success.mean


def _evaluation_sets(config: TrainConfig, suite: TaskSuite) -> Iterator[tuple[str, TaskSuite, str, int]]:
    """Label, suite, split and horizon of everything the recipe evaluates on."""
    for split in config.eval_splits:
        yield split, suite, split, config.horizon
    for label, options in config.also_evaluate.items():
        rest = {key: value for key, value in options.items() if key not in ("split", "horizon")}
        other = make_suite(config.environment, **rest)
        yield label, other, options["split"], options.get("horizon", config.horizon)


def evaluate_everything(
    config: TrainConfig,
    suite: TaskSuite,
    policy: Learner,
    run: RunFolder,
    progress: Progress,
    moment: str,
    monitor: Monitor,
) -> None:
    """Evaluate everything the recipe names, on the same tasks and seeds each time, once per moment."""
    done = {(line["split"], line["moment"]) for line in run.metrics() if line["kind"] == "evaluation"}
    for label, played, split, horizon in _evaluation_sets(config, suite):
        if (label, moment) in done:
            continue
        result: Evaluation = evaluate(
            policy,
            played,
            spread_over_families(played.tasks(split), config.eval_tasks),
            horizon=horizon,
            seed=(config.seed, Stream.EVALUATION),
            temperature=config.eval_temperature,
            response_format=config.response_format,
        )
        run.write_rollouts(f"evaluations/{moment}-{label}", result.rollouts)
        run.log({"step": progress.step, "kind": "evaluation", "moment": moment, "split": label, **result.to_json()})
        success = result.families[OVERALL].success
        monitor.say(f"{moment}, {label}: success {success.mean:.1%} [{success.low:.1%}, {success.high:.1%}]")
