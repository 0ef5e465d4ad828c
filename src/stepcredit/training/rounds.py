"""One round of rollouts: which tasks, how often, and where to branch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from stepcredit.allocation.allocator import Allocator, AllocatorState
from stepcredit.allocation.settings import AllocationSettings
from stepcredit.core.errors import CheckpointError, unknown_name
from stepcredit.core.objects import as_written, read_object
from stepcredit.environments.protocol import TaskSuite
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.types import Policy, Rollout
from stepcredit.training.config import TrainConfig
from stepcredit.training.outcomes import outcome_metrics, root_outcomes, state_groups_of, suffix_outcomes
from stepcredit.training.streams import Stream
from stepcredit.training.tasks import by_family, choose_tasks, training_tasks

POOL = 8
"""Candidate tasks of a round per task chosen, as in the paper (120 for 15)."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one update learns from.

    Attributes:
        rollouts: roots, then branches.
        failures: why each episode that never had a turn had none.
        allocation: the allocator's diagnostics and what its suffixes brought; empty without an allocator.
    """

    rollouts: Sequence[Rollout]
    failures: Sequence[str]
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
        from stepcredit.core.encoder import SentenceEncoder

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
        return Round(collected.rollouts, [failure.reason for failure in collected.failures])
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
    factual = state_groups_of(collected.rollouts, config.horizon)
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
    allocator.observe_roots(root_outcomes(collected.rollouts))
    allocator.observe_branches(suffix_outcomes(branched), state_groups_of(rollouts, config.horizon))
    diverged = [asdict(group.divergence) for group in branched.groups if group.divergence is not None]
    allocation = {
        **allocator.diagnostics(),
        "round_outcomes": outcome_metrics(collected.rollouts, branched, config.horizon),
        **({"first_divergence": diverged[0]} if diverged else {}),
    }
    failures = [failure.reason for failure in (*collected.failures, *branched.failures)]
    return Round(rollouts, failures, allocation)


def _rules(config: TrainConfig) -> dict[str, Any]:
    return {
        "horizon": config.horizon,
        "temperature": config.temperature,
        "response_format": config.response_format,
        "reward_scale": config.success_reward,
        "invalid_penalty": config.invalid_penalty,
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
    values_file, arrays_file = folder / f"{_FILE}.json", folder / f"{_FILE}.npz"
    values = read_object(values_file, absent=f"The checkpoint {str(folder)!r} lacks {values_file.name}.")
    try:
        with arrays_file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise CheckpointError(f"Cannot read {str(arrays_file)!r}: {error}.") from None
    what = f"{str(values_file)!r} and {arrays_file.name} are not as training writes them"
    with as_written(lambda found: CheckpointError(f"{what} ({found}); restore them.")):
        allocator.load_state_dict(AllocatorState(values, arrays))
