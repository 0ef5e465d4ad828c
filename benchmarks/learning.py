"""Matched learning: every credit method on the same tasks, turns and initial weights, over many seeds.

python benchmarks/learning.py [--model linear|tiny] [--seeds N] [--until HH:MM] [--smoke] [--only ARM …]
python benchmarks/learning_page.py makes tables and figures from what it stores.

An arm is a credit method with its options, and for forests a way to allocate. Per arm and seed, a policy learns in the
household's generated small rooms until it has played a budget of environment turns, branches included. Held fixed:
training games (families in turn; allocated arms choose among the same games), 64 episodes an update (of which forests
play half as suffixes), two passes in minibatches of 32, clipped surrogate with token mean, neither reference penalty
nor entropy bonus (so that Adam makes learning independent of the scale of an arm's credit), one line of learning rates
from the first to the last turn, a seed's initial weights, and the held-out games.

Success on held-out games is measured after every eighth of the budget, always on the same games with the same draws:

    final    success at the end of the budget
    area     area under success against turns, trapezoid, divided by the turns

One JSON line a finished run goes to ``benchmarks/results/learning-MODEL.jsonl``; what stands there is not run again.
Seeds are the outer loop, so that all arms of one call have as many seeds, but for one.

The linear policy says a command as one token, which makes token mean, complete turn and turn-clip one objective. Arms
that differ in those alone run on the tiny model only; all its arms start from the same imitation of the expert.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads its BLAS

import numpy as np

from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import TaskSuite
from stepcredit.evaluation.fidelity_states import TrueStates
from stepcredit.policy.settings import UpdateSettings
from stepcredit.rollouts.collect import collect
from stepcredit.training.build import Learner, build_policy, imitate_settings
from stepcredit.training.config import TrainConfig, config_objective, make_config, method_options
from stepcredit.training.demonstrations import NOISE, choose_demonstrated, demonstrate
from stepcredit.training.outcomes import played_out
from stepcredit.training.rounds import make_allocator, play_round
from stepcredit.training.streams import Stream
from stepcredit.training.tasks import spread_over_families, training_tasks

RESULTS = Path(__file__).resolve().parent / "results"
POINTS = 8
"""Evaluations after the first one."""


@dataclass(frozen=True)
class Arm:
    """One line of the comparison.

    Attributes:
        name: in tables and stored lines.
        method: name in the catalogue.
        options: of the method.
        allocation: (root, branch) of the allocator; None: families in turn, no branches.
        objective: fields of the objective that differ from the common ones.
        whole_states: credit is keyed by the whole state of the environment instead of the observation.
    """

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    allocation: tuple[str, str] | None = None
    objective: Mapping[str, Any] = field(default_factory=dict)
    whole_states: bool = False


_FITTED = ("fitted", "fitted")
ARMS = (
    Arm("grpo", "grpo"),
    Arm("rloo", "rloo"),
    Arm("gigpo", "gigpo"),
    Arm("hgpo", "hgpo"),
    Arm("rtmc", "rtmc"),
    Arm("salt", "salt"),
    Arm("graphgpo", "graphgpo"),
    Arm("gaca", "gaca"),
    Arm("graft", "graft"),
    Arm("graft action", "graft", {"value_weighting": "action"}),
    Arm("graft no GAE", "graft", {"gae": False}),
    Arm("graft action no GAE", "graft", {"value_weighting": "action", "gae": False}),
    Arm("graft raw", "graft", {"normalize": "none"}),
    Arm("graft action raw", "graft", {"value_weighting": "action", "normalize": "none"}),
    Arm("graft with episode", "graft", {"episode_weight": 1.0}),
    Arm("graft action with episode", "graft", {"value_weighting": "action", "episode_weight": 1.0}),
    Arm("tsbpo chains", "tsbpo"),
    Arm("tsbpo none", "tsbpo", allocation=("fitted", "none")),
    Arm("tsbpo random", "tsbpo", allocation=("fitted", "random")),
    Arm("tsbpo fitted", "tsbpo", allocation=_FITTED),
    Arm("tsbpo fitted no step", "tsbpo", {"step_coef": 0.0}, _FITTED),
    Arm("tsbpo fitted balanced", "tsbpo", {"balance_cap": 6.0}, _FITTED),
    Arm("gigpo fitted", "gigpo", allocation=_FITTED),
    Arm("gaca fixed .25", "gaca", {"lambda0": 0.25, "alpha": 0.0}),
    Arm("gaca fixed .5", "gaca", {"lambda0": 0.5, "alpha": 0.0}),
    Arm("gaca fixed .75", "gaca", {"lambda0": 0.75, "alpha": 0.0}),
    Arm("gaca fixed 1", "gaca", {"lambda0": 1.0, "alpha": 0.0}),
    Arm("gaca alpha .25", "gaca", {"alpha": 0.25}),
    Arm("gaca alpha 1", "gaca", {"alpha": 1.0}),
    Arm("gaca shuffled", "gaca", {"shuffle_scores": 0}),
    Arm("gigpo whole states", "gigpo", whole_states=True),
    Arm("graft whole states", "graft", whole_states=True),
    Arm("graft raw whole states", "graft", {"normalize": "none"}, whole_states=True),
    Arm("graft turn-clip", "graft", objective={"surrogate": "turn-clip", "dual_clip": "off"}),
    Arm("tsbpo fitted complete turn", "tsbpo", allocation=_FITTED, objective={"aggregation": "seq-mean-token-sum"}),
)
"""``gaca`` with a fixed weight of 0 is ``grpo``, with alpha 0 it is the fixed weight .5: they are not run twice."""


@dataclass(frozen=True)
class Scale:
    """How much a run plays.

    Attributes:
        recipe: recipe keys all arms share.
        tasks, group: tasks an update, and episodes a task where nothing branches.
        turns: budget, environment turns.
        games: held-out games of one evaluation.
        rates: learning rate of the first and of the last turn.
    """

    recipe: Mapping[str, Any]
    tasks: int
    group: int
    turns: int
    games: int
    rates: tuple[float, float]


_LINEAR = {"environment": "household", "model": "linear", "horizon": 30}
_TINY = {
    **_LINEAR,
    "model": "tiny",
    "environment_options": {"train": 3600},
    "demonstrations": {"pick": 300, "look": 300, "pick2": 300, "clean": 8, "heat": 8, "cool": 8},
    "imitation_epochs": 8,
    "imitation_learning_rate": 3e-3,
}
SCALES = {
    "linear": Scale(_LINEAR, tasks=8, group=8, turns=60_000, games=60, rates=(0.02, 0.01)),
    "tiny": Scale(_TINY, tasks=8, group=8, turns=24_000, games=60, rates=(1e-3, 5e-4)),
}
_BRIEF = {**_TINY, "demonstrations": {"pick": 8}, "imitation_epochs": 1}
SMOKE = {
    "linear": replace(SCALES["linear"], tasks=2, group=8, turns=800, games=6),
    "tiny": replace(SCALES["tiny"], recipe=_BRIEF, tasks=2, group=8, turns=300, games=2),
}
_SMOKE_ARMS = ("gigpo", "graft", "tsbpo fitted")


def run(arm: Arm, seed: int, scale: Scale, suite: TaskSuite, folder: Path) -> dict[str, Any]:
    """Train one arm on one seed; the line that is stored.

    Args:
        arm: what is trained.
        seed: of tasks, draws and initial weights.
        scale: how long.
        suite: the games.
        folder: where the tiny model of the seed is made once.
    """
    began = time.process_time()
    if arm.whole_states:
        suite = TrueStates(suite)
    config = make_config({**_recipe(arm, scale), "seed": seed})
    policy = _initial_policy(config, suite, folder)
    allocator = make_allocator(config)
    options, objective = method_options(config), config_objective(config)
    games = spread_over_families(suite.tasks("valid_unseen"), scale.games)
    used = updates = 0
    curve = [(0, _success(policy, suite, games, config))]
    while used < scale.turns:
        played = played_out(play_round(config, suite, policy, allocator, updates).rollouts)
        turns = Turns.from_episodes(rollout.episode for rollout in played)
        first, last = scale.rates
        settings = UpdateSettings(objective=objective, lr=first + (last - first) * used / scale.turns)
        advantage = assign(turns, config.method, **options).advantage
        policy.update(played, advantage, settings, (seed, Stream.UPDATE, updates))
        used += len(turns)
        updates += 1
        if used >= scale.turns * len(curve) / POINTS:
            curve.append((used, _success(policy, suite, games, config)))
    at, success = np.array(curve).T
    return {
        "arm": arm.name,
        "seed": seed,
        "recipe": fingerprint(arm, scale),
        "updates": updates,
        "cpu_s": round(time.process_time() - began, 1),
        "final": round(float(success[-1]), 4),
        "area": round(float(np.trapezoid(success, at) / at[-1]), 4),
        "curve": [[int(turn), round(float(value), 4)] for turn, value in curve],
    }


def fingerprint(arm: Arm, scale: Scale) -> str:
    """Eight hex digits that change with every setting of a run but its seed."""
    parts: list[Any] = [_recipe(arm, scale), scale.turns, scale.games, scale.rates]
    if arm.whole_states:
        parts.append("whole states")
    return _digest(parts)


def _digest(settings: Sequence[Any]) -> str:
    return f"{zlib.crc32(json.dumps(settings, sort_keys=True).encode()):08x}"


def _recipe(arm: Arm, scale: Scale) -> dict[str, Any]:
    """Recipe keys of a run, the seed excepted."""
    keys: dict[str, Any] = {
        **scale.recipe,
        "method": arm.method,
        "method_options": dict(arm.options),
        "objective": "gigpo",
        "objective_options": {"penalty_coef": 0.0, **arm.objective},
        "tasks_per_update": scale.tasks,
        "group_size": scale.group,
    }
    if arm.allocation is not None:
        keys["root"], keys["branch"] = arm.allocation
        if keys["branch"] != "none":
            keys["group_size"] = scale.group // 2
            keys["branch_budget"] = scale.tasks * scale.group // 2
    return keys


def _initial_policy(config: TrainConfig, suite: TaskSuite, folder: Path) -> Learner:
    """Zero weights, or the seed's tiny model after its supervised start, which is learnt once."""
    made_from = [config.environment_options, config.demonstrations, config.imitation_epochs]
    made_from += [config.imitation_learning_rate, config.horizon]
    folder = folder / f"{config.model}-{_digest(made_from)}-{config.seed}"
    policy = build_policy(config, suite, folder)
    start = folder / "start"
    if config.demonstrations and not start.is_dir():
        tasks = choose_demonstrated(training_tasks(suite), config.demonstrations)
        seed = (config.seed, Stream.DEMONSTRATION)
        rollouts, weight = demonstrate(suite, tasks, noise=NOISE, horizon=config.horizon, seed=seed)
        for epoch in range(config.imitation_epochs):
            policy.imitate(rollouts, weight, imitate_settings(config, epoch), (config.seed, Stream.IMITATION, epoch))
        policy.save(folder / "start.partial")
        (folder / "start.partial").rename(start)
    elif config.demonstrations:
        policy.load(start)
    return policy


def _success(policy: Learner, suite: TaskSuite, games: Sequence[Any], config: TrainConfig) -> float:
    played = collect(
        policy,
        suite,
        games,
        group_size=1,
        horizon=config.horizon,
        seed=(config.seed, Stream.EVALUATION),
        temperature=config.eval_temperature,
    )
    return sum(rollout.episode.success for rollout in played.rollouts) / len(games)


def read_runs(path: Path, scale: Scale) -> list[dict[str, Any]]:
    """Stored runs of this scale, by seed, arms in their order.

    Runs of other settings are left out, and so is a last line that a kill cut short.
    """
    if not path.exists():
        return []
    wanted = {(arm.name, fingerprint(arm, scale)): place for place, arm in enumerate(ARMS)}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    kept = [line for line in lines if (line["arm"], line["recipe"]) in wanted]
    return sorted(kept, key=lambda line: (line["seed"], wanted[line["arm"], line["recipe"]]))


def append_run(path: Path, line: Mapping[str, Any]) -> None:
    """Store a run, in place of what a kill left of the last line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(SCALES), default="linear")
    parser.add_argument("--seeds", type=int, default=20)
    names = [arm.name for arm in ARMS]
    parser.add_argument("--only", nargs="+", metavar="ARM", choices=names, help=f"these arms alone: {', '.join(names)}")
    parser.add_argument("--smoke", action="store_true", help="one short run of a few arms")
    parser.add_argument("--until", metavar="HH:MM", help="start no run after this time of today, UTC")
    parser.add_argument("--out", type=Path, help="JSON lines; default benchmarks/results/learning-MODEL.jsonl")
    parser.add_argument("--work", type=Path, default=Path("runs/learning"), help="where tiny models are kept")
    return parser.parse_args()


def main() -> None:
    """Run what is missing, one line a run."""
    options = _arguments()
    scale = (SMOKE if options.smoke else SCALES)[options.model]
    path = options.out or RESULTS / f"learning-{options.model}.jsonl"
    arms = [arm for arm in ARMS if options.model == "tiny" or not arm.objective]
    if options.only:
        arms = [arm for arm in arms if arm.name in options.only]
    elif options.smoke:
        arms = [arm for arm in arms if arm.name in _SMOKE_ARMS]
    done = {(line["arm"], line["seed"]) for line in read_runs(path, scale)}
    suite = make_suite("household", **scale.recipe.get("environment_options", {}))
    for seed in range(1 if options.smoke else options.seeds):
        for arm in arms:
            if options.until and f"{datetime.now(UTC):%H:%M}" >= options.until:
                return
            if (arm.name, seed) not in done:
                line = run(arm, seed, scale, suite, options.work)
                append_run(path, line)
                print(f"seed {seed}, {arm.name}: area {line['area']}, final {line['final']}", file=sys.stderr)


if __name__ == "__main__":
    main()
