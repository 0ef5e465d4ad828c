"""What episodes of an evaluation come to: success with its interval, pass@k, and how the episodes went, by family."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import OptionError
from stepcredit.evaluation.intervals import RESAMPLES, Interval, cluster_bootstrap

OVERALL = "all"
"""Name of the row over all families; no family may be called so."""
NOT_ADMISSIBLE = "the command is not admissible"
"""Why ``parse_response`` calls a response invalid whose format is right."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one episode came to.

    Attributes:
        task, family: what was played.
        seed: of which repetition of the whole evaluation.
        trial: which attempt of a trial-and-reflect agent this is, from 1; the attempts before it failed.
        success, score: the verifier's outcome; the graded one in [0, 1], success where the environment has none.
        stop: ``won``, ``lost``, ``horizon`` or ``error``.
        turns: turns taken; 0 where the episode never started.
        valid_actions, valid_formats, truncated: turns whose response was valid, had the right format, and met the
            token limit.
        tokens: generated tokens; None where some turn's are not known.
        reason: what ended it in an error; empty otherwise.
    """

    task: str
    family: str
    seed: int = 0
    trial: int = 1
    success: bool = False
    score: float = 0.0
    stop: str = "error"
    turns: int = 0
    valid_actions: int = 0
    valid_formats: int = 0
    truncated: int = 0
    tokens: int | None = 0
    reason: str = ""

    @classmethod
    def of(cls, episode: Episode) -> Self:
        """The outcome of an episode with its family, seed and trial in ``extra``."""
        counts = [_tokens(turn) for turn in episode.turns]
        known = [count for count in counts if count is not None]
        return cls(
            task=episode.task,
            family=str(episode.extra["family"]),
            seed=int(episode.extra.get("seed", 0)),
            trial=int(episode.extra.get("trial", 1)),
            success=episode.success,
            score=float(episode.success) if episode.score is None else episode.score,
            stop=episode.stop or "lost",
            turns=len(episode.turns),
            valid_actions=sum(turn.valid for turn in episode.turns),
            valid_formats=sum(turn.valid or turn.extra.get("invalid") == NOT_ADMISSIBLE for turn in episode.turns),
            truncated=sum(bool(turn.extra.get("truncated")) for turn in episode.turns),
            tokens=sum(known) if len(known) == len(counts) else None,
            reason=str(episode.extra.get("error", "")),
        )


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """Results of one family, or of ``OVERALL``. Every planned episode counts, those that ended in an error as failures.

    Attributes:
        tasks, episodes: how many.
        errors: episodes that ended in an error, of the environment or of the response (a prompt over the limit).
        success: share of episodes won, with its 95 % task-cluster bootstrap interval.
        pass_at: k → probability that at least one of k episodes of a task wins (``pass_at_k``), mean over tasks.
        score: mean graded outcome.
        turns, turns_won, turns_lost: mean turns of all episodes, of those won, and of those not won and not in error;
            None where there is none.
        horizon: share of episodes that ran out of turns.
        valid_action: share of turns with a valid response: right format and an admissible command.
        valid_format: share of turns whose response had the right format.
        truncated: share of turns whose response met the token limit.
        tokens: mean generated tokens a turn; None where they are not known.
        seeds: success by seed.
        trials: share of episodes won within the first 1, 2, … trials; empty for an agent with a single trial.
    """

    tasks: int
    episodes: int
    errors: int
    success: Interval
    pass_at: Mapping[int, float]
    score: float
    turns: float
    turns_won: float | None
    turns_lost: float | None
    horizon: float
    valid_action: float
    valid_format: float
    truncated: float
    tokens: float | None
    seeds: Mapping[int, float] = field(default_factory=dict)
    trials: Sequence[float] = ()


def summarize(outcomes: Sequence[Outcome], *, resamples: int = RESAMPLES) -> dict[str, FamilyResult]:
    """Results by family in alphabetical order, then ``OVERALL``; nothing where there are no outcomes."""
    by_family: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_family.setdefault(outcome.family, []).append(outcome)
    results = {family: _result(by_family[family], resamples) for family in sorted(by_family)}
    if outcomes:
        results[OVERALL] = _result(outcomes, resamples)
    return results


def pass_at_k(episodes: int, successes: int, k: int) -> float:
    """Probability that at least one of ``k`` episodes drawn without replacement wins: 1 − C(n − c, k) / C(n, k).

    Unbiased for 1 − (1 − p)^k (Chen et al., arXiv 2107.03374, eq. 1).

    Args:
        episodes: n, played.
        successes: c, won, 0 to n.
        k: 1 to n.

    Raises:
        OptionError: k or c out of range.
    """
    if not 1 <= k <= episodes or not 0 <= successes <= episodes:
        raise OptionError(f"pass@{k} of {successes} won among {episodes} episodes; expected 1 <= k <= n, 0 <= c <= n.")
    return 1.0 - math.comb(episodes - successes, k) / math.comb(episodes, k)


def unseen_share(tasks: int) -> float:
    """Share of tasks that may end otherwise where n of n ended alike: 1 − 0.025^(1/n), for n ≥ 1.

    The far end of the exact (Clopper-Pearson) 95 % interval of 0 among n, where resampling the tasks knows no spread.
    """
    return float(1.0 - 0.025 ** (1.0 / tasks))


def _result(outcomes: Sequence[Outcome], resamples: int) -> FamilyResult:
    by_task: dict[str, list[bool]] = {}
    # In an order of their own, so that resamples do not depend on the order in which episodes were played.
    for outcome in sorted(outcomes, key=lambda one: one.task):
        by_task.setdefault(outcome.task, []).append(outcome.success)
    turns = sum(outcome.turns for outcome in outcomes)
    counted = [outcome.tokens for outcome in outcomes if outcome.tokens is not None]
    return FamilyResult(
        tasks=len(by_task),
        episodes=len(outcomes),
        errors=sum(outcome.stop == "error" for outcome in outcomes),
        success=cluster_bootstrap(list(by_task.values()), resamples=resamples),
        pass_at=_pass_at(list(by_task.values())),
        score=_mean([outcome.score for outcome in outcomes]) or 0.0,
        turns=turns / len(outcomes),
        turns_won=_mean([outcome.turns for outcome in outcomes if outcome.success]),
        turns_lost=_mean([outcome.turns for outcome in outcomes if not outcome.success and outcome.stop != "error"]),
        horizon=sum(outcome.stop == "horizon" for outcome in outcomes) / len(outcomes),
        valid_action=sum(outcome.valid_actions for outcome in outcomes) / max(turns, 1),
        valid_format=sum(outcome.valid_formats for outcome in outcomes) / max(turns, 1),
        truncated=sum(outcome.truncated for outcome in outcomes) / max(turns, 1),
        tokens=sum(counted) / turns if turns and len(counted) == len(outcomes) else None,
        seeds=_by_seed(outcomes),
        trials=_by_trial(outcomes),
    )


def _pass_at(by_task: Sequence[Sequence[bool]]) -> dict[int, float]:
    """Powers of two up to the smallest number of episodes of a task, and that number itself."""
    least = min(map(len, by_task))
    ks = [*(2**power for power in range(least.bit_length()) if 2**power < least), least]
    return {k: math.fsum(pass_at_k(len(won), sum(won), k) for won in by_task) / len(by_task) for k in ks}


def _by_seed(outcomes: Sequence[Outcome]) -> dict[int, float]:
    played = Counter(outcome.seed for outcome in outcomes)
    won = Counter(outcome.seed for outcome in outcomes if outcome.success)
    return {seed: won[seed] / played[seed] for seed in sorted(played)}


def _by_trial(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    most = max(outcome.trial for outcome in outcomes)
    if most == 1:
        return ()
    return tuple(
        sum(outcome.success and outcome.trial <= trial for outcome in outcomes) / len(outcomes)
        for trial in range(1, most + 1)
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _tokens(turn: Turn) -> int | None:
    """Generated tokens of a turn: as the endpoint counted them, or one per log-probability."""
    if "tokens" in turn.extra:
        return int(turn.extra["tokens"])
    return None if turn.logprobs is None else len(turn.logprobs)
