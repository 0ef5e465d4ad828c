"""Fidelity: every credit method against the exact advantage, in solved games and in the household.

python benchmarks/fidelity.py [--smoke] [--seed S] [--out FILE]

Games have 32 states and 3 actions a state; a softmax policy wins 40 % of them, and everything about it is solved
(``evaluation/fidelity_games.py``). A *cell* is one kind of game, group size and way of sampling. It holds 24 games,
each played 256 times in task groups; a forest spends half of its episodes on suffixes, so that both have the same
number of episodes. Every measure is one number a game, intervals are 95 % bootstraps over games. Credit knows nothing
of the games but what a rollout records: observations, actions, outcome, the policy's own NLL and entropy. Two methods
need more and get the best there is: ``gae`` the exact value, ``hcapo`` the exact hindsight probability.

Beside the cells: GRAFT's Proposition 1 (graph credit against credit by states and by episodes, raw and undiscounted),
GACA's minimiser f*(c) of the conditional risk, TSBPO's two conditional statements (siblings of one occurrence; weights
by length), and the household with Monte-Carlo truth.

What stands in FILE is not run again. ``benchmarks/fidelity_page.py`` makes tables and figure from it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads its BLAS

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Episode
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign
from stepcredit.credit.groups import group_means
from stepcredit.credit.tree import Segments
from stepcredit.environments.catalogue import make_suite
from stepcredit.evaluation.fidelity import (
    MixtureRisk,
    Truth,
    cosines,
    group_gradients,
    measure,
    relative_error,
    slopes,
)
from stepcredit.evaluation.fidelity_games import Games, Solution, chain_games, random_games, solve
from stepcredit.evaluation.fidelity_rollouts import Played, play_groups
from stepcredit.evaluation.fidelity_states import TrueStates
from stepcredit.evaluation.fidelity_suffixes import measure_sounded, sound
from stepcredit.evaluation.intervals import cluster_bootstrap
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.settings import UpdateSettings
from stepcredit.rollouts.collect import collect

OUT = Path(__file__).resolve().parent / "results" / "fidelity.json"
EXACT = "exact advantage"
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "graft raw": ("graft", {"normalize": "none"}),
    "graft action": ("graft", {"value_weighting": "action"}),
    "tsbpo no step": ("tsbpo", {"step_coef": 0.0}),
}
"""Arms beside the catalogue's methods at their defaults."""
KEPT = ("error", "bias", "variance", "sign", "rank", "cosine", "direction")


@dataclass(frozen=True)
class Size:
    """How much is played: games a cell, episodes a game; tasks, suffixes and updates of the household."""

    games: int = 24
    episodes: int = 256
    tasks: int = 24
    suffixes: int = 12
    updates: int = 40


SMOKE = Size(games=3, episodes=32, tasks=2, suffixes=2, updates=1)


@dataclass(frozen=True)
class World:
    """One kind of game and group; the defaults are the base that every axis varies one thing of."""

    kind: str = "roaming"
    group_size: int = 8
    horizon: int = 16
    slip: float = 0.0
    alike: int = 1
    success: float = 0.4

    def make(self, games: int, seed: int) -> Games:
        """The games of a cell."""
        if self.kind in ("stay", "fall"):
            right = {"stay": 0.5, "fall": 0.8}[self.kind]
            return chain_games(games, places=5, turns=self.horizon, right=right, mistake=self.kind)  # type: ignore[arg-type]
        return random_games(
            games,
            seed=seed,
            shape=self.kind,  # type: ignore[arg-type]
            levels=self.horizon if self.kind == "layered" else max(self.horizon // 2, 2),
            horizon=self.horizon,
            slip=self.slip,
            alike=self.alike,
            success=self.success,
        )


BASE = World()
LAYERED = World("layered", horizon=8)
AXES: Mapping[str, Sequence[World]] = {
    "group_size": [replace(BASE, group_size=size) for size in (2, 4, 8, 16, 32, 64)],
    "horizon": [replace(BASE, horizon=horizon) for horizon in (4, 8, 16, 32)],
    "slip": [replace(BASE, slip=slip) for slip in (0.0, 0.1, 0.25, 0.5)],
    "alike": [replace(BASE, alike=alike) for alike in (1, 2, 4)],
    "success": [replace(BASE, success=success) for success in (0.1, 0.4, 0.8)],
    "kind": [BASE, LAYERED, World("stay", horizon=12), World("fall", horizon=12)],
}


def arms(played: Played) -> dict[str, FloatArray]:
    """Credit of every arm: the catalogue at its defaults, some variants, and the truth itself."""
    needs: dict[str, dict[str, Any]] = {"gae": {"values": played.value}, "hcapo": {"hindsight": played.hindsight}}
    found = {EXACT: played.advantage}
    for name in METHODS:
        found[name] = assign(played.turns, name, **needs.get(name, {})).advantage
    for name, (method, options) in VARIANTS.items():
        found[name] = assign(played.turns, method, **options).advantage
    return found


def run_cell(world: World, forest: bool, size: Size, seed: int) -> dict[str, Any]:
    """One cell: every arm, every measure, [mean, low, high]."""
    games, solution, played = _play(world, forest, size, seed)
    rows = {}
    for name, estimate in arms(played).items():
        found = measure(estimate, played, games, solution)
        rows[name] = {key: interval(getattr(found, key)) for key in KEPT}
    success = interval(solution.success)[0]
    return {**asdict(world), "forest": forest, "won": success, "turns": len(played.turns), "arms": rows}


def _play(world: World, forest: bool, size: Size, seed: int) -> tuple[Games, Solution, Played]:
    games = world.make(size.games, seed)
    solution = solve(games)
    groups = max(size.episodes // world.group_size, 2)
    return (
        games,
        solution,
        play_groups(games, solution, groups=groups, group_size=world.group_size, seed=seed, forest=forest),
    )


def interval(values: FloatArray) -> list[float]:
    """[mean, low, high] over games, those where a measure does not exist left out."""
    kept = values[np.isfinite(values)]
    if not len(kept):
        return []
    found = cluster_bootstrap([[value] for value in kept], resamples=2_000)
    return [round(number, 4) for number in (found.mean, found.low, found.high)]


RAW: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "episode": ("gaca", {"lambda0": 0.0, "alpha": 0.0, "normalize": "mean", "gamma": 1.0}),
    "state groups": ("gaca", {"lambda0": 1.0, "alpha": 0.0, "normalize": "mean", "gamma": 1.0}),
    "graph": ("graft", {"normalize": "none", "gamma": 1.0}),
}
"""Credit in probability to win, so that it can be compared with A^π as it stands."""


def proposition(size: Size, seed: int) -> list[dict[str, Any]]:
    """GRAFT's Proposition 1: mean squared error of raw credit, in units of the mean of A², without any scaling."""
    worlds = [
        *(replace(LAYERED, group_size=group) for group in (4, 8, 16, 64)),
        *(replace(LAYERED, slip=slip, group_size=16) for slip in (0.25, 0.5)),
        replace(LAYERED, alike=4, group_size=16),
        replace(BASE, group_size=16),
        World("stay", horizon=12, group_size=16),
    ]
    found = []
    for world in worlds:
        _, _, played = _play(world, False, size, seed)
        errors = {
            name: interval(relative_error(assign(played.turns, method, **options).advantage, Truth.of(played)))
            for name, (method, options) in RAW.items()
        }
        found.append({**asdict(world), "error": errors})
    return found


def mixture(size: Size, seed: int) -> list[dict[str, Any]]:
    """GACA: the minimiser of the conditional risk by fifths of the criticality score, and what it is worth."""
    worlds = {
        "layered": LAYERED,
        "roaming": BASE,
        "slip .25": replace(BASE, slip=0.25),
        "4 states alike": replace(BASE, alike=4),
        "chain, stay": World("stay", horizon=12),
    }
    found = []
    for name, world in worlds.items():
        _, _, played = _play(world, False, size, seed)
        credit = assign(played.turns, "gaca", normalize="mean", gamma=1.0)
        parts, truth, weight = credit.components, played.advantage, credit.components["weight"]
        score = criticality(played.turns)
        fifth = np.searchsorted(np.quantile(score, (0.2, 0.4, 0.6, 0.8)), score)
        best: list[list[float]] = []
        risk: dict[str, list[float]] = {key: [] for key in ("episode", "step", "gaca", "best fixed", "best by fifth")}
        for game in range(size.games):
            own = played.game == game
            whole = MixtureRisk.of(parts["episode"][own], parts["step"][own], truth[own])
            square, mixed = np.mean(truth[own] ** 2), (1 - weight) * parts["episode"] + weight * parts["step"]
            bins = [own & (fifth == one) for one in range(5)]
            each = [MixtureRisk.of(parts["episode"][b], parts["step"][b], truth[b]) if b.any() else None for b in bins]
            best.append([np.nan if one is None else one.minimiser for one in each])
            by_fifth = sum(float(one.at(one.minimiser) * b.sum()) for one, b in zip(each, bins, strict=True) if one)
            risks = (
                whole.at(0),
                whole.at(1),
                np.mean((mixed - truth)[own] ** 2),
                whole.at(whole.minimiser),
                by_fifth / own.sum(),
            )
            for key, value in zip(risk, risks, strict=True):
                risk[key].append(float(value / square))
        found.append(
            {
                "world": name,
                "minimiser": [interval(column) for column in np.array(best).T],
                "gaca": [round(float(weight[fifth == one].mean()), 4) for one in range(5)],
                "risk": {key: interval(np.array(values)) for key, values in risk.items()},
            }
        )
    return found


def criticality(turns: Turns) -> FloatArray:
    """``[N]`` c = NLL over its mean in the episode; 1 where that mean is 0."""
    mean = group_means(turns.nll, turns.episode)[turns.episode]
    return np.divide(turns.nll, mean, out=np.ones(len(turns)), where=mean > 0)


def siblings(size: Size, seed: int) -> list[dict[str, Any]]:
    """TSBPO: slopes of raw credit on A and on V for turns that leave one occurrence, and for turns further down."""
    compared = {"segments": ("tsbpo", {"step_coef": 0.0}), **RAW}
    drawn = np.random.default_rng(0).multinomial(size.games, np.full(size.games, 1 / size.games), size=2_000)
    weight = np.concatenate([np.ones((1, size.games)), drawn])
    found = []
    for alike in (1, 4):
        _, _, played = _play(replace(BASE, alike=alike), True, replace(size, episodes=4 * size.episodes), seed)
        segments = Segments.from_turns(played.turns)
        first = np.zeros(len(played.turns), dtype=np.bool_)
        first[segments.head[~segments.above_splits]] = True
        below = ~segments.above_splits[segments.of_turn]
        for place, rows in {"first": first, "further down": below & ~first}.items():
            of_arm = {}
            for name, (method, options) in compared.items():
                pair = slopes(assign(played.turns, method, **options).advantage, played, rows, weight)
                of_arm[name] = [
                    [round(float(one), 4) for one in (values[0], *np.percentile(values[1:], [2.5, 97.5]))]
                    for values in pair
                ]
            found.append({"alike": alike, "place": place, "turns": int(rows.sum()), "slopes": of_arm})
    return found


def lengths(size: Size, seed: int) -> list[dict[str, Any]]:
    """TSBPO: direction of the mean gradient of exact advantages, by how a minibatch of 8 episodes weighs its turns.

    Responses have 1 to 8 tokens. One group is one minibatch; every aggregation divides by something of its own.
    """
    games, solution, played = _play(BASE, False, size, seed)
    rng = np.random.default_rng([seed, 8])
    drawn = np.sort(rng.integers(1, 9, size=games.logits.shape), axis=-1)
    order = np.argsort(np.argsort(solution.advantage.mean(axis=1), axis=-1), axis=-1)
    sees = games.sees[played.game, played.state]
    shuffled = rng.permuted(drawn, axis=-1)[played.game, sees, played.action]
    rank = order[played.game, played.state, played.action]
    better_longer = drawn[played.game, sees, rank]
    better_shorter = drawn[played.game, sees, drawn.shape[-1] - 1 - rank]
    exact = solution.gradient.reshape(len(games), -1)
    task = played.turns.task
    found = []
    kinds = {"independent": shuffled, "better is longer": better_longer, "better is shorter": better_shorter}
    for name, length in kinds.items():
        weights = {
            "complete turn": 1 / np.bincount(task)[task],
            "token mean": 1 / np.bincount(task, weights=length)[task],
            "mean of token means": 1 / (length * np.bincount(task)[task]),
        }
        found.append(
            {
                "lengths": name,
                "direction": {
                    key: interval(cosines(_mean_gradient(played.advantage * weight, played, games), exact))
                    for key, weight in weights.items()
                },
            }
        )
    return found


def _mean_gradient(estimate: FloatArray, played: Played, games: Games) -> FloatArray:
    """``[B, O·A]`` mean over the groups of each game, which play_groups lists game after game."""
    gradients = group_gradients(estimate, played, games)
    mean: FloatArray = gradients.reshape(len(games), -1, gradients.shape[1]).mean(axis=1)
    return mean


def household(size: Size, seed: int) -> dict[str, Any]:
    """A linear policy half-way through learning, in generated small rooms, horizon 30, groups of 8.

    Credit gets the same rollouts twice: keyed by observation, as everywhere, and keyed by the whole state.
    """
    suite = TrueStates(make_suite("household"))
    policy = LinearPolicy()
    rng = np.random.default_rng([seed, 9])
    tasks = suite.tasks("train")
    for update in range(size.updates):
        drawn = [tasks[number] for number in rng.choice(len(tasks), 8, replace=False)]
        rollouts = collect(policy, suite, drawn, group_size=8, horizon=30, seed=(seed, 9, update)).rollouts
        learnt = Turns.from_episodes(by_observation(rollout.episode) for rollout in rollouts)
        policy.update(rollouts, assign(learnt, "gigpo").advantage, UpdateSettings(lr=0.03), (seed, 9, update))
    games = suite.tasks("valid_seen")
    chosen = [games[number] for number in rng.choice(len(games), size.tasks, replace=False)]
    played = sound(policy, suite, chosen, group_size=8, horizon=30, suffixes=size.suffixes, seed=(seed, 10))
    observed = Turns.from_episodes(by_observation(rollout.episode) for rollout in played.rollouts)
    plain = [name for name, method in METHODS.items() if not {"values", "hindsight"} & {*method.needs}]
    tried: dict[str, tuple[str, Mapping[str, Any]]] = {**{name: (name, {}) for name in plain}, **VARIANTS}
    rows: dict[str, dict[str, Any]] = {"observations": {}, "whole states": {}}
    for keys, turns in zip(rows, (observed, played.turns), strict=True):
        for name, (method, options) in tried.items():
            found = measure_sounded(played, assign(turns, method, **options).advantage)
            rows[keys][name] = {
                key: [round(value, 4) for value in asdict(one).values() if np.isfinite(value)]
                for key, one in found.items()
            }
    won = float(played.turns.success.mean())
    return {"won": won, "turns": len(played.turns), "tasks": size.tasks, "arms": rows}


def by_observation(episode: Episode) -> Episode:
    """The episode with its observations as state keys."""
    return replace(episode, turns=tuple(replace(turn, state=None) for turn in episode.turns))


def main() -> None:
    """Run everything and store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few games, seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    size, seed = SMOKE if options.smoke else Size(), options.seed
    worlds = list(dict.fromkeys(world for axis in AXES.values() for world in axis))
    if options.smoke:
        worlds = [BASE, LAYERED]
    stored = begin(options.out, size, seed)
    began = time.process_time() - stored["cpu_s"]

    def store(what: object) -> None:
        stored["cpu_s"] = round(time.process_time() - began)
        options.out.write_text(json.dumps(stored) + "\n", encoding="utf-8")
        print(f"{what}: {stored['cpu_s']} CPU seconds", file=sys.stderr)

    for world, forest in product(worlds, (False, True)):
        wanted = {**asdict(world), "forest": forest}
        if not any(wanted.items() <= cell.items() for cell in stored["cells"]):
            stored["cells"].append(run_cell(world, forest, size, seed))
            store(wanted)
    for part in (proposition, mixture, siblings, lengths, household):
        if part.__name__ not in stored:
            stored[part.__name__] = part(size, seed)
            store(part.__name__)


def begin(path: Path, size: Size, seed: int) -> dict[str, Any]:
    """What stands in the file, if it is of this size and seed; else an empty result."""
    head = {
        "command": f"python benchmarks/fidelity.py --seed {seed}",
        "seed": seed,
        "machine": "two shared cores",
        "size": asdict(size),
    }
    if path.exists():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if head.items() <= stored.items():
            return stored
    return {**head, "cpu_s": 0, "cells": []}


if __name__ == "__main__":
    main()
