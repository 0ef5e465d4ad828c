"""Results by hand: pass@k, rates, and what counts as a failure."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import OptionError
from stepcredit.environments.chain import ChainSuite
from stepcredit.evaluation.evaluate import evaluate
from stepcredit.evaluation.results import NOT_ADMISSIBLE, OVERALL, Outcome, pass_at_k, summarize, unseen_share
from stepcredit.rollouts.responses import parse_response

from .players import DoorPolicy


@pytest.mark.parametrize(
    ("episodes", "successes", "k", "expected"),
    [
        (4, 1, 1, 1 / 4),
        (4, 1, 2, 1 / 2),  # 3 of the 6 pairs hold the success
        (4, 2, 2, 5 / 6),  # only one pair holds none
        (5, 2, 3, 9 / 10),
        (5, 0, 5, 0.0),
        (5, 5, 1, 1.0),
        (5, 3, 3, 1.0),  # 2 failures cannot fill 3 places
    ],
)
def test_pass_at_k_by_hand(episodes: int, successes: int, k: int, expected: float) -> None:
    assert pass_at_k(episodes, successes, k) == pytest.approx(expected, abs=1e-15)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_success(case: tuple[int, int, int]) -> None:
    episodes, successes, k = case
    won = [True] * successes + [False] * (episodes - successes)
    subsets = list(combinations(won, k))
    assert pass_at_k(episodes, successes, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@pytest.mark.parametrize("case", [(4, 1, 0), (4, 1, 5), (4, 5, 1), (4, -1, 1)])
def test_pass_at_k_out_of_range_is_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(OptionError, match="expected 1 <= k <= n"):
        pass_at_k(*case)


def turn(**values: object) -> Turn:
    extra = {key: value for key, value in values.items() if key in ("invalid", "truncated", "tokens", "response")}
    rest = {key: value for key, value in values.items() if key not in extra}
    return Turn("seen", "go", extra=extra, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(("tasks", "share"), [(1, 0.975), (2, 0.8418861), (10, 0.3084971), (60, 0.0596295)])
def test_tasks_that_all_ended_alike_leave_room(tasks: int, share: float) -> None:
    assert unseen_share(tasks) == pytest.approx(share, abs=1e-7)
    assert (1 - unseen_share(tasks)) ** tasks == pytest.approx(0.025)


def test_outcome_of_an_episode() -> None:
    episode = Episode(
        task="t",
        episode="t#1.0",
        turns=(
            turn(logprobs=(-1.0, -2.0)),
            turn(valid=False, invalid=NOT_ADMISSIBLE, logprobs=(-1.0,)),
            turn(valid=False, invalid="text outside the tags", tokens=5, truncated=True),
        ),
        final_observation="end",
        success=False,
        score=0.25,
        stop="horizon",
        extra={"family": "f", "seed": 1, "trial": 2},
    )
    assert Outcome.of(episode) == Outcome(
        task="t",
        family="f",
        seed=1,
        trial=2,
        success=False,
        score=0.25,
        stop="horizon",
        turns=3,
        valid_actions=1,
        valid_formats=2,
        truncated=1,
        tokens=8,
    )


def test_tokens_of_an_episode_are_unknown_where_those_of_a_turn_are() -> None:
    episode = Episode("t", "t#0", (turn(tokens=5), turn()), "end", False, extra={"family": "f"})
    assert Outcome.of(episode).tokens is None


def test_the_parser_says_what_the_format_rate_reads() -> None:
    assert parse_response("fly", ["go"], "action").reason == NOT_ADMISSIBLE
    assert parse_response("<think>a</think><action>fly</action>", ["go"], "think-action").reason == NOT_ADMISSIBLE


def outcome(task: str, *, success: bool = False, family: str = "f", **values: object) -> Outcome:
    stop = "won" if success else "lost"
    settings: dict[str, object] = {"stop": stop, "turns": 2, "valid_actions": 2, "valid_formats": 2, "tokens": 4}
    return Outcome(task, family, success=success, score=float(success), **{**settings, **values})  # type: ignore[arg-type]


def test_summary_by_hand() -> None:
    outcomes = [
        outcome("a", success=True, seed=0, turns=2, tokens=6),
        outcome("a", seed=1, turns=4, stop="horizon", valid_actions=1, valid_formats=3, truncated=1, tokens=6),
        outcome("b", success=True, seed=0, turns=6, tokens=12),
        outcome("b", success=True, seed=1, turns=4, tokens=4),
        outcome("c", seed=0, turns=2, tokens=4, family="g"),
        Outcome("c", "g", seed=1),  # never had a turn
    ]
    results = summarize(outcomes)
    assert list(results) == ["f", "g", OVERALL]
    row = results[OVERALL]
    assert (row.tasks, row.episodes, row.errors) == (3, 6, 1)
    assert row.success.mean == 3 / 6
    assert row.pass_at == {1: pytest.approx((0.5 + 1 + 0) / 3), 2: pytest.approx((1 + 1 + 0) / 3)}
    assert row.score == 3 / 6
    assert row.turns == 18 / 6
    assert row.turns_won == (2 + 6 + 4) / 3
    assert row.turns_lost == (4 + 2) / 2  # the error is no failure of this kind
    assert row.horizon == 1 / 6
    # The first, third and fourth outcome say 2 valid turns each, the fifth 2 as well.
    assert row.valid_action == (2 + 1 + 2 + 2 + 2) / 18
    assert row.valid_format == (2 + 3 + 2 + 2 + 2) / 18
    assert row.truncated == 1 / 18
    assert row.tokens == 32 / 18
    assert row.seeds == {0: 2 / 3, 1: 1 / 3}
    assert row.trials == ()
    assert results["g"].turns_won is None


def test_pass_at_lists_powers_of_two_and_the_number_of_episodes() -> None:
    assert list(summarize([outcome("a")] * 6)[OVERALL].pass_at) == [1, 2, 4, 6]
    assert list(summarize([outcome("a")] * 4)[OVERALL].pass_at) == [1, 2, 4]
    assert list(summarize([*[outcome("a")] * 4, outcome("b")])[OVERALL].pass_at) == [1]


def test_unknown_tokens_of_one_episode_leave_the_mean_unknown() -> None:
    assert summarize([outcome("a"), outcome("b", tokens=None)])[OVERALL].tokens is None


def test_trials_are_cumulative() -> None:
    outcomes = [
        outcome("a", success=True, trial=1),
        outcome("b", success=True, trial=2),
        outcome("c", success=True, trial=3),
        outcome("d", trial=3),
    ]
    assert summarize(outcomes)[OVERALL].trials == (0.25, 0.5, 0.75)


def test_nothing_gives_nothing() -> None:
    assert summarize([]) == {}


def test_evaluating_in_memory() -> None:
    suite = ChainSuite(length=3, count=4)
    result = evaluate(DoorPolicy(1.0), suite, suite.tasks("test"), horizon=3, seed=(0,), temperature=1.0)
    assert result.families[OVERALL].success.mean == 1.0
    assert result.families["chain"].turns_won == 3.0
    assert result.to_json()["failures"] == 0
    with pytest.raises(OptionError, match="the list of tasks is empty"):
        evaluate(DoorPolicy(1.0), suite, [], horizon=3, seed=(0,), temperature=1.0)
