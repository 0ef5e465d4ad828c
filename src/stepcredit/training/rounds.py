"""One round of rollouts: which tasks, how often, and where to branch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from stepcredit.allocation.allocator import Allocator, AllocatorState
from stepcredit.allocation.settings import AllocationSettings, RootOutcome, SuffixOutcome
from stepcredit.allocation.states import StateGroup, state_groups
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import CheckpointError, unknown_name
from stepcredit.core.turns import Turns
from stepcredit.environments.protocol import TaskSuite
from stepcredit.rollouts.branch import Branched, Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.types import Policy, Rollout
from stepcredit.training.config import TrainConfig
from stepcredit.training.streams import Stream
from stepcredit.training.tasks import by_family, choose_tasks, training_tasks

POOL = 8
"""Candidate tasks of a round per task chosen, as in the paper (120 for 15)."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one update learns from.

    Attributes:
        rollouts: roots, then branches.
        failures: episodes that never had a turn.
        allocation: the allocator's diagnostics and what its suffixes brought; empty without an allocator.
    """

    rollouts: Sequence[Rollout]
    failures: int
    allocation: Mapping[str, Any] = field(default_factory=dict)


def make_allocator(config: TrainConfig) -> Allocator | None:
    """The allocator of a recipe, None where families simply take turns.

    Raises:
        OptionError: allocation options that do not exist or do not fit.
        MissingExtraError: semantic evidence without the extra ``embed``.
    """
    if config.root == "families":
        return None
    options = dict(config.allocation_options)
    encoder = None
    if options.pop("encoder", "off") != "off":
        from stepcredit.allocation.semantic import SentenceEncoder

        encoder = SentenceEncoder(str(config.allocation_options["encoder"]))
    tasks = config.tasks_per_update
    values = {"root": config.root, "branch": config.branch, "tasks": tasks, "pool": POOL * tasks, **options}
    known = {one.name for one in fields(AllocationSettings)}
    for name in options:
        if name not in known:
            raise unknown_name("allocation option", name, known | {"encoder"})
    return Allocator(AllocationSettings(**values), config.seed, encoder)


def play_round(
    config: TrainConfig, suite: TaskSuite, policy: Policy, allocator: Allocator | None, update: int
) -> Round:
    """Collect the episodes of one update."""
    seed = (config.seed, Stream.ROLLOUT, update)
    if allocator is None:
        tasks = choose_tasks(by_family(training_tasks(suite)), config.tasks_per_update, update=update, seed=config.seed)
        collected = collect(policy, suite, tasks, group_size=config.group_size, seed=seed, **_rules(config))
        return Round(collected.rollouts, len(collected.failures))
    known = {task.id: task for task in training_tasks(suite)}
    quotas = allocator.choose_roots(list(known.values()), config.tasks_per_update * config.group_size)
    collected = collect(
        policy,
        suite,
        [known[quota.task] for quota in quotas],
        group_size=[quota.rollouts for quota in quotas],
        seed=seed,
        keep_places=config.branch != "none",
        **_rules(config),
    )
    roots = {rollout.episode.episode: rollout for rollout in collected.rollouts}
    factual = _groups(collected.rollouts, config.horizon)
    suffixes = allocator.choose_branches(factual, config.branch_budget)
    openings = [Opening(roots[one.occurrence.episode], one.occurrence.turn, one.quota) for one in suffixes]
    try:
        branched = branch(
            policy,
            suite,
            openings,
            seed=(config.seed, Stream.BRANCH, update),
            kept=collected.kept,
            **_rules(config),
        )
    finally:
        collected.close()
    rollouts = [*collected.rollouts, *branched.rollouts]
    forest = _groups(rollouts, config.horizon)
    outcomes = _suffix_outcomes(branched)
    allocator.observe_roots(_root_outcomes(collected.rollouts))
    allocator.observe_branches(outcomes, forest)
    allocation = {**allocator.diagnostics(), "suffixes": suffix_metrics(factual, forest, outcomes, branched)}
    return Round(rollouts, len(collected.failures) + len(branched.failures), allocation)


def _rules(config: TrainConfig) -> dict[str, Any]:
    return {
        "horizon": config.horizon,
        "temperature": config.temperature,
        "response_format": config.response_format,
        "reward_scale": config.success_reward,
        "invalid_penalty": config.invalid_penalty,
    }


def played_out(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollouts that ended by themselves, on paths that did: those whose outcome means something."""
    broken: set[str] = set()
    whole = []
    for rollout in rollouts:  # parents come before their branches
        episode = rollout.episode
        if episode.stop == "error" or (episode.parent is not None and episode.parent.episode in broken):
            broken.add(episode.episode)
        else:
            whole.append(rollout)
    return whole


def _groups(rollouts: Sequence[Rollout], horizon: int) -> list[StateGroup]:
    whole = [rollout.episode for rollout in played_out(rollouts)]
    return state_groups(Turns.from_episodes(whole), horizon=horizon) if whole else []


def _root_outcomes(roots: Sequence[Rollout]) -> list[RootOutcome]:
    """Outcomes by task; a task with a failed episode does not add up to its quota and so teaches nothing."""
    counts: dict[str, list[int]] = {}
    for rollout in roots:
        if rollout.episode.stop != "error":
            counts.setdefault(rollout.episode.task, [0, 0])[0 if rollout.episode.success else 1] += 1
    return [RootOutcome(task, *both) for task, both in counts.items()]


def _suffix_outcomes(branched: Branched) -> list[SuffixOutcome]:
    """Outcomes by occurrence, of complete groups."""
    success = {rollout.episode.episode: rollout.episode.success for rollout in branched.rollouts}
    outcomes = []
    for group in branched.groups:
        if group.complete:
            won = sum(success[name] for name in group.branches)
            outcomes.append(SuffixOutcome(Parent(group.episode, group.turn), won, group.count - won))
    return outcomes


def suffix_metrics(
    factual: Sequence[StateGroup],
    forest: Sequence[StateGroup],
    outcomes: Sequence[SuffixOutcome],
    branched: Branched,
) -> dict[str, float]:
    """What the suffixes of a round brought.

    Args:
        factual: state groups of the roots.
        forest: state groups of roots and branches.
        outcomes: per complete opening.
        branched: the branches.

    Returns:
        ``openings``; ``suffixes``; ``incomplete`` openings; ``unreplayable`` openings; ``newly_mixed``: state groups
        whose outcomes were all equal among the roots and differ in the forest; ``conversion``: share of complete
        openings with an outcome opposite to the factual ones; ``contrast``: share of their suffixes with it.
    """
    uniform = {(one.task, one.state) for one in factual if not (one.successes and one.failures)}
    mixed = {(one.task, one.state) for one in forest if one.successes and one.failures}
    won_before = {one.occurrence: one.successes > 0 for one in factual}
    opposite = [one.failures if won_before[one.occurrence] else one.successes for one in outcomes]
    suffixes = sum(one.successes + one.failures for one in outcomes)
    return {
        "openings": len(branched.groups),
        "suffixes": len(branched.rollouts),
        "incomplete": sum(not group.complete for group in branched.groups),
        "unreplayable": sum(not group.replayable for group in branched.groups),
        "newly_mixed": len(uniform & mixed),
        "conversion": sum(map(bool, opposite)) / max(len(outcomes), 1),
        "contrast": sum(opposite) / max(suffixes, 1),
    }


_FILE = "allocator"


def save_allocator(allocator: Allocator | None, folder: Path) -> None:
    """Write an allocator's state into a checkpoint: numbers as ``.npz``, the rest as JSON."""
    if allocator is None:
        return
    state = allocator.state_dict()
    (folder / f"{_FILE}.json").write_text(json.dumps(state.values) + "\n", encoding="utf-8")
    np.savez(folder / f"{_FILE}.npz", allow_pickle=False, **state.arrays)


def load_allocator(allocator: Allocator | None, folder: Path) -> None:
    """Restore what ``save_allocator`` wrote.

    Raises:
        CheckpointError: the files cannot be read or belong to other settings.
    """
    if allocator is None:
        return
    try:
        values = json.loads((folder / f"{_FILE}.json").read_text(encoding="utf-8"))
        with np.load(folder / f"{_FILE}.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read the allocator in {str(folder)!r}: {error}.") from None
    allocator.load_state_dict(AllocatorState(values, arrays))
