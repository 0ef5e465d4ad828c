"""Does fitted allocation find states worth branching? Fitted, random and uniform allocation on the same policies.

python benchmarks/allocation_quality.py [--seeds 6] [--updates 24] [--json] [--out FILE]

For every seed a linear policy learns in the household from nothing, on uniformly drawn tasks and without branches; its
snapshots, one an update, are the policies that every arm then plays with: 8 of 64 candidate tasks, 48 root rollouts,
64 suffixes, horizon 30. An arm's allocator only chooses; it never changes a policy. Arms with the same root allocation
play the same root rollouts, so that fitted and random branching choose among the same candidates. In the regime
``learning`` the policies are the snapshots one after the other, in ``settled`` the last snapshot plays every update:
the difference shows what it costs that history describes an older policy.

Per update, averaged over a seed's updates:

    mixed tasks    share of played tasks whose root rollouts disagree
    converted      branched state groups that became mixed
    newly mixed    state groups, uniform among the roots, that any suffix made mixed
    conversion     converted / branched
    contrast       share of branched groups whose suffixes disagree among themselves

Intervals are 95 % bootstraps over seeds; ratios resample seeds in pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads its BLAS

import numpy as np

from stepcredit.allocation import AllocationSettings, Allocator, RootOutcome, Suffixes, SuffixOutcome, state_groups
from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Parent
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.evaluation.intervals import cluster_bootstrap
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.settings import UpdateSettings
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.types import Rollout

REGIMES = ("learning", "settled")
ARMS = tuple(product(("fitted", "uniform"), ("fitted", "random")))
"""(root, branch)."""
TASKS, POOL, ROOT_BUDGET, BRANCH_BUDGET, HORIZON = 8, 64, 48, 64, 30
MEASURES = ("mixed tasks", "converted", "newly mixed", "conversion", "contrast")
_LEARN, _ROOTS, _BRANCHES = range(3)  # random streams


@dataclass(frozen=True)
class Arm:
    """What one arm yielded on one seed: mean of every measure over its updates, and its allocator's calibration."""

    means: dict[str, float]
    diagnostics: dict[str, Any]


def learn(suite: TaskSuite, tasks: Sequence[Task], seed: int, updates: int) -> list[FloatArray]:
    """Weights of a policy before each of its updates."""
    policy = LinearPolicy()
    rng = np.random.default_rng([seed, _LEARN])
    snapshots = []
    for update in range(updates):
        snapshots.append(policy.weights.copy())
        drawn = [tasks[number] for number in rng.choice(len(tasks), 16, replace=False)]
        played = collect(policy, suite, drawn, group_size=8, horizon=HORIZON, seed=(seed, _LEARN, update))
        turns = Turns.from_episodes(rollout.episode for rollout in played.rollouts)
        policy.update(
            played.rollouts, assign(turns, "gigpo").advantage, UpdateSettings(lr=0.03), (seed, _LEARN, update)
        )
    return snapshots


def play_arm(
    suite: TaskSuite, tasks: Sequence[Task], snapshots: Sequence[FloatArray], arm: tuple[str, str], seed: int
) -> Arm:
    """Let one allocator choose through all snapshots."""
    settings = AllocationSettings(root=arm[0], branch=arm[1], tasks=TASKS, pool=POOL)  # type: ignore[arg-type]
    allocator = Allocator(settings, seed)
    policy = LinearPolicy()
    known = {task.id: task for task in tasks}
    measured = []
    for update, weights in enumerate(snapshots):
        policy.weights = weights
        quotas = allocator.choose_roots(tasks, ROOT_BUDGET)
        collected = collect(
            policy,
            suite,
            [known[task] for task, _ in quotas],
            group_size=[rollouts for _, rollouts in quotas],
            horizon=HORIZON,
            seed=(seed, _ROOTS, update),
            keep_places=True,
        )
        roots = {rollout.episode.episode: rollout for rollout in collected.rollouts}
        groups = state_groups(Turns.from_episodes(one.episode for one in roots.values()), horizon=HORIZON)
        suffixes = allocator.choose_branches(groups, BRANCH_BUDGET)
        openings = [Opening(roots[at.episode], at.turn, quota) for at, quota in suffixes]
        branched = branch(policy, suite, openings, horizon=HORIZON, seed=(seed, _BRANCHES, update), kept=collected.kept)
        collected.close()
        forest = Turns.from_episodes(one.episode for one in (*collected.rollouts, *branched.rollouts))
        after = state_groups(forest, horizon=HORIZON)
        played = [root_outcome(task, collected.rollouts) for task, _ in quotas]
        outcomes = suffix_outcomes(suffixes, branched.rollouts)
        allocator.observe_roots(played)
        allocator.observe_branches(outcomes, after)

        uniform = {(group.task, group.state) for group in groups if not (group.successes and group.failures)}
        newly = [
            group for group in after if group.successes and group.failures and (group.task, group.state) in uniform
        ]
        succeeded = {group.occurrence: group.successes > 0 for group in groups if group.branchable}
        converted = [bool(one.failures if succeeded[one.occurrence] else one.successes) for one in outcomes]
        contrast = [bool(one.failures and one.successes) for one in outcomes]
        mixed = [bool(one.failures and one.successes) for one in played]
        values = (np.mean(mixed), sum(converted), len(newly), share(converted), share(contrast))
        measured.append(dict(zip(MEASURES, map(float, values), strict=True)))
    means = {name: float(np.nanmean([one[name] for one in measured])) for name in MEASURES}
    return Arm(means, allocator.diagnostics())


def root_outcome(task: str, rollouts: Sequence[Rollout]) -> RootOutcome:
    """Outcomes of one task's root rollouts."""
    won = [rollout.episode.success for rollout in rollouts if rollout.episode.task == task]
    return RootOutcome(task, sum(won), len(won) - sum(won))


def suffix_outcomes(suffixes: Sequence[Suffixes], rollouts: Sequence[Rollout]) -> list[SuffixOutcome]:
    """Outcomes of every branched occurrence."""
    won: dict[Parent, list[bool]] = {occurrence: [] for occurrence, _ in suffixes}
    for rollout in rollouts:
        if rollout.episode.parent is not None:
            won[rollout.episode.parent].append(rollout.episode.success)
    return [SuffixOutcome(occurrence, sum(own), len(own) - sum(own)) for occurrence, own in won.items()]


def share(flags: Sequence[bool]) -> float:
    """Mean of flags; NaN without any."""
    return float(np.mean(flags)) if flags else float("nan")


def interval(values: Sequence[float]) -> list[float]:
    """Mean over seeds with its 95 % interval."""
    found = cluster_bootstrap([[value] for value in values])
    return [found.mean, found.low, found.high]


def ratio_interval(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Ratio of means with its 95 % interval, seeds resampled in pairs."""
    pairs = np.array([over, under])
    drawn = np.random.default_rng(0).integers(len(over), size=(10_000, len(over)))
    ratios = pairs[0][drawn].sum(axis=1) / pairs[1][drawn].sum(axis=1)
    return [float(pairs[0].sum() / pairs[1].sum()), *np.percentile(ratios, [2.5, 97.5]).tolist()]


def pooled(diagnostics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Brier score and reliability bins over the predictions of all seeds."""
    count = sum(one["count"] for one in diagnostics)
    bins: dict[float, list[float]] = {}
    for one in (entry for seed in diagnostics for entry in seed["bins"]):
        total = bins.setdefault(one["low"], [0, 0.0, 0.0])
        for place, value in enumerate((1, one["predicted"], one["observed"])):
            total[place] += value * one["count"]
    return {
        "count": count,
        "brier": sum(one["brier"] * one["count"] for one in diagnostics) / count,
        "bins": [
            {"low": low, "count": int(n), "predicted": predicted / n, "observed": observed / n}
            for low, (n, predicted, observed) in sorted(bins.items())
        ],
    }


def summarise(results: dict[tuple[str, str], list[Arm]]) -> dict[str, Any]:
    """Means, ratios and calibration with intervals over seeds."""
    values = {arm: {name: [one.means[name] for one in ran] for name in MEASURES} for arm, ran in results.items()}
    return {
        "arms": {
            f"{root} root, {branching} branch": {
                "measures": {name: interval(values[root, branching][name]) for name in MEASURES},
                "root": pooled([one.diagnostics["root"] for one in ran]),
                "branch": pooled([one.diagnostics["branch"] for one in ran]),
            }
            for (root, branching), ran in results.items()
        },
        "fitted / random branch": {
            f"{root} root": {
                name: ratio_interval(values[root, "fitted"][name], values[root, "random"][name])
                for name in MEASURES[1:]
            }
            for root in ("fitted", "uniform")
        },
        "fitted / uniform root": {
            name: ratio_interval(values["fitted", "fitted"][name], values["uniform", "fitted"][name])
            for name in MEASURES
        },
    }


def print_table(regime: str, summary: dict[str, Any]) -> None:
    """One regime: a line per arm, then the ratios."""
    print(f"{regime:32}" + "".join(f"{name:>22}" for name in MEASURES) + f"{'Brier root':>12}{'branch':>9}")
    for arm, found in summary["arms"].items():
        cells = "".join("{:>7.2f} [{:5.2f}, {:5.2f}]".format(*found["measures"][name]) for name in MEASURES)
        print(f"{arm:32}{cells}{found['root']['brier']:12.3f}{found['branch']['brier']:9.3f}")
    for title, ratios in (
        *((f"fitted / random, {root}", found) for root, found in summary["fitted / random branch"].items()),
        ("fitted / uniform root", summary["fitted / uniform root"]),
    ):
        cells = ("{:>7.2f} [{:5.2f}, {:5.2f}]".format(*ratios[name]) if name in ratios else "" for name in MEASURES)
        print(f"{title:32}" + "".join(f"{cell:>22}" for cell in cells))
    print()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    options = parser.parse_args()
    suite = make_suite("household")
    tasks = suite.tasks("train")
    results: dict[str, dict[tuple[str, str], list[Arm]]] = {regime: {arm: [] for arm in ARMS} for regime in REGIMES}
    for seed in range(options.seeds):
        snapshots = learn(suite, tasks, seed, options.updates)
        for regime, policies in zip(REGIMES, (snapshots, snapshots[-1:] * options.updates), strict=True):
            for arm, ran in results[regime].items():
                ran.append(play_arm(suite, tasks, policies, arm, seed))
        print(f"seed {seed + 1} of {options.seeds} done", file=sys.stderr)
    command = f"python benchmarks/allocation_quality.py --seeds {options.seeds} --updates {options.updates}"
    summary = {"command": command, **{regime: summarise(ran) for regime, ran in results.items()}}
    if options.out:
        options.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(summary))
        return
    for regime in REGIMES:
        print_table(regime, summary[regime])


if __name__ == "__main__":
    main()
