"""What a round brought: outcomes by task and by occurrence, and how often branching made them differ."""

from __future__ import annotations

from collections.abc import Sequence

from stepcredit.allocation.settings import RootOutcome, SuffixOutcome
from stepcredit.allocation.states import StateGroup, state_groups
from stepcredit.core.episodes import Episode, Parent
from stepcredit.core.turns import Turns
from stepcredit.rollouts.branch import Branched
from stepcredit.rollouts.types import Rollout


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


def state_groups_of(rollouts: Sequence[Rollout], horizon: int) -> list[StateGroup]:
    """State groups of the rollouts whose outcome means something."""
    whole = [rollout.episode for rollout in played_out(rollouts)]
    return state_groups(Turns.from_episodes(whole), horizon=horizon) if whole else []


def root_outcomes(roots: Sequence[Rollout]) -> list[RootOutcome]:
    """Outcomes by task; a task with a failed episode does not add up to its quota and so teaches nothing."""
    counts: dict[str, list[int]] = {}
    for rollout in roots:
        if rollout.episode.stop != "error":
            counts.setdefault(rollout.episode.task, [0, 0])[0 if rollout.episode.success else 1] += 1
    return [RootOutcome(task, *both) for task, both in counts.items()]


def suffix_outcomes(branched: Branched) -> list[SuffixOutcome]:
    """Outcomes by occurrence, of complete groups."""
    success = {rollout.episode.episode: rollout.episode.success for rollout in branched.rollouts}
    outcomes = []
    for group in branched.groups:
        if group.complete:
            won = sum(success[name] for name in group.branches)
            outcomes.append(SuffixOutcome(Parent(group.episode, group.turn), won, group.count - won))
    return outcomes


def outcome_metrics(roots: Sequence[Rollout], branched: Branched, horizon: int) -> dict[str, float]:
    """What the rollouts of a round say beside their credit.

    Args:
        roots: the root rollouts.
        branched: the branches.
        horizon: turns an episode may take.

    Returns:
        ``effective_tasks``: share of task groups whose root outcomes differ (the effective sampling ratio);
        ``openings``; ``suffixes``; ``incomplete`` and ``unreplayable`` openings; ``newly_mixed``: state groups whose
        outcomes were all equal among the roots and differ with the branches; ``conversion``: share of complete openings
        with an outcome opposite to the factual ones; ``contrast``: share of their suffixes with it;
        ``contrast_same_first``: of the suffixes whose first turn repeats the factual action and reaches the same
        observation, the share that ends oppositely to the factual episode; ``branch_rows``: share of turns that
        branches add. A share of nothing is 0.
    """
    tasks = root_outcomes(roots)
    factual = state_groups_of(roots, horizon)
    forest = state_groups_of([*roots, *branched.rollouts], horizon)
    outcomes = suffix_outcomes(branched)
    uniform = {(one.task, one.state) for one in factual if not (one.successes and one.failures)}
    mixed = {(one.task, one.state) for one in forest if one.successes and one.failures}
    won_before = {one.occurrence: one.successes > 0 for one in factual}
    opposite = [one.failures if won_before[one.occurrence] else one.successes for one in outcomes]
    repeated = _repeated_first_turns(roots, branched)
    root_rows = sum(len(rollout.episode.turns) for rollout in roots)
    branch_rows = sum(len(rollout.episode.turns) for rollout in branched.rollouts)
    return {
        "effective_tasks": _share(sum(bool(one.successes and one.failures) for one in tasks), len(tasks)),
        "openings": len(branched.groups),
        "suffixes": len(branched.rollouts),
        "incomplete": sum(not group.complete for group in branched.groups),
        "unreplayable": sum(not group.replayable for group in branched.groups),
        "newly_mixed": len(uniform & mixed),
        "conversion": _share(sum(map(bool, opposite)), len(outcomes)),
        "contrast": _share(sum(opposite), sum(one.successes + one.failures for one in outcomes)),
        "contrast_same_first": _share(sum(repeated), len(repeated)),
        "branch_rows": _share(branch_rows, root_rows + branch_rows),
    }


def _repeated_first_turns(roots: Sequence[Rollout], branched: Branched) -> list[bool]:
    """Per suffix that begins with the factual transition: whether it ended oppositely to the episode it left."""
    factual = {rollout.episode.episode: rollout.episode for rollout in roots}
    opposite = []
    for rollout in branched.rollouts:
        episode, parent = rollout.episode, rollout.episode.parent
        if episode.stop == "error" or parent is None or parent.episode not in factual:
            continue
        left = factual[parent.episode]
        if _transition(episode, 0) == _transition(left, parent.turn):
            opposite.append(episode.success != left.success)
    return opposite


def _transition(episode: Episode, turn: int) -> tuple[str, str]:
    """The action of a turn and the observation it led to."""
    following = turn + 1
    last = following == len(episode.turns)
    seen = episode.final_observation if last else episode.turns[following].observation
    return episode.turns[turn].action, seen


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
