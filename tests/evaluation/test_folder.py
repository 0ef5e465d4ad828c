"""An evaluation on disk: the same bits however often it was stopped, and nothing else in its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepcredit.core.errors import CheckpointError, EnvironmentFaultError, InputError, OptionError
from stepcredit.core.files import read_episodes, read_turns, write_episodes
from stepcredit.environments.chain import ChainEnvironment, ChainSuite
from stepcredit.environments.protocol import Task
from stepcredit.evaluation import folder as module
from stepcredit.evaluation.agents import Agent
from stepcredit.evaluation.folder import EvaluationResult, load_evaluation, run_evaluation
from stepcredit.evaluation.plan import Plan
from stepcredit.evaluation.results import OVERALL
from stepcredit.rollouts.types import Request, Response

from .players import DoorPolicy, Speaker, chain_plan, chain_protocol

WHO = {"name": "door", "prompting": "plain"}


@pytest.fixture
def suite() -> ChainSuite:
    return ChainSuite(length=2, doors=3, count=6)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 8)


def run(suite: ChainSuite, folder: Path, policy: Any = None, **options: Any) -> EvaluationResult:
    plan = options.pop("plan", None) or chain_plan(suite, chain_protocol())
    tasks = suite.tasks("test")[: len(plan.tasks)]
    agent = Agent(policy or DoorPolicy(0.6), "action")
    return run_evaluation(agent, suite, tasks, plan, options.pop("who", WHO), folder, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Killing(Exception):  # noqa: N818  # no error, a moment
    """The moment a test kills an evaluation at."""


class Killed:
    """A policy that plays like another one and is killed in its nth session."""

    def __init__(self, policy: DoorPolicy, sessions: int) -> None:
        self._policy = policy
        self._left = sessions

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Any:
        if not self._left:
            raise Killing
        self._left -= 1
        return self._policy.session(seed, temperature=temperature)


@pytest.fixture
def whole(suite: ChainSuite, tmp_path: Path) -> dict[str, bytes]:
    """The files of an evaluation that nothing interrupted."""
    run(suite, tmp_path / "whole")
    return files(tmp_path / "whole")


def test_every_episode_is_kept_under_a_name_of_its_own(suite: ChainSuite, tmp_path: Path) -> None:
    result = run(suite, tmp_path / "e")
    assert sorted(files(tmp_path / "e")) == ["episodes.jsonl.gz", "evaluation.json"]
    episodes = list(read_episodes(tmp_path / "e" / "episodes.jsonl.gz"))
    assert len(episodes) == 6 * 2 * 2 == result.families[OVERALL].episodes
    assert episodes[0].episode == "test/0#0.0"
    assert {episode.episode for episode in episodes} == {
        f"test/{task}#{seed}.{number}" for task in range(6) for seed in range(2) for number in range(2)
    }
    assert {episode.extra["seed"] for episode in episodes} == {0, 1}
    assert len(read_turns(tmp_path / "e" / "episodes.jsonl.gz")) == sum(one.turns for one in result.outcomes)
    mean = sum(episode.success for episode in episodes) / len(episodes)
    assert result.families[OVERALL].success.mean == mean


@pytest.mark.parametrize("sessions", range(4))
def test_killed_between_batches_it_ends_bit_equal(
    suite: ChainSuite, whole: dict[str, bytes], tmp_path: Path, sessions: int
) -> None:
    with pytest.raises(Killing):
        run(suite, tmp_path / "e", Killed(DoorPolicy(0.6), sessions))
    with pytest.raises(CheckpointError, match="is not finished; run the same evaluation again"):
        load_evaluation(tmp_path / "e")
    run(suite, tmp_path / "e")
    assert files(tmp_path / "e") == whole


@pytest.mark.parametrize("writes", range(13))
def test_killed_at_any_write_it_ends_bit_equal(
    suite: ChainSuite, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Every file that an evaluation writes, in turn, is the last one it gets to."""
    real_json, real_episodes, left = module._write_json, module.write_episodes, [writes]

    def counted(write: Any) -> Any:
        def attempt(*arguments: Any) -> None:
            if not left[0]:
                Path(arguments[0]).parent.joinpath(".x.7.partial").touch()
                raise Killing
            left[0] -= 1
            write(*arguments)

        return attempt

    monkeypatch.setattr(module, "_write_json", counted(real_json))
    monkeypatch.setattr(module, "write_episodes", counted(real_episodes))
    killed = False
    try:
        run(suite, tmp_path / "e")
    except Killing:
        killed = True
    assert killed == (writes < 11)  # the head, four batches of two files, the episodes, the result
    monkeypatch.undo()
    monkeypatch.setattr(module, "BATCH", 8)
    run(suite, tmp_path / "e")
    assert files(tmp_path / "e") == whole


def test_finished_batches_are_not_played_again(suite: ChainSuite, tmp_path: Path) -> None:
    with pytest.raises(Killing):
        run(suite, tmp_path / "e", Killed(DoorPolicy(0.6), 3))
    run(suite, tmp_path / "e", Killed(DoorPolicy(0.6), 1))


def test_a_finished_evaluation_plays_nothing(suite: ChainSuite, tmp_path: Path) -> None:
    first = run(suite, tmp_path / "e")
    again = run(suite, tmp_path / "e", Killed(DoorPolicy(0.6), 0))
    assert again.families == first.families
    assert again.outcomes == first.outcomes


def test_progress_goes_on_where_it_was(suite: ChainSuite, tmp_path: Path) -> None:
    with pytest.raises(Killing):
        run(suite, tmp_path / "e", Killed(DoorPolicy(0.6), 2))
    said: list[tuple[int, int]] = []
    run(suite, tmp_path / "e", progress=lambda done, total: said.append((done, total)))
    assert [done for done, _ in said] == sorted({done for done, _ in said})
    assert said[0] == (8, 24)
    assert said[-1] == (24, 24)


def test_what_is_loaded_is_what_was_found(suite: ChainSuite, tmp_path: Path) -> None:
    result = run(suite, tmp_path / "e")
    kept = load_evaluation(tmp_path / "e")
    assert kept.result.families == result.families
    assert kept.result.outcomes == result.outcomes
    assert kept.agent == WHO
    stored = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert stored["result"] == json.loads(json.dumps(result.to_json()))


class BrokenSuite(ChainSuite):
    """Some tasks cannot be started."""

    def make(self, task: Task) -> ChainEnvironment:
        if task.id.endswith(("3", "4")):
            raise RuntimeError("out of order")
        return super().make(task)


@pytest.mark.parametrize("count", [10, 5])
def test_episodes_that_never_start_count_as_failures(tmp_path: Path, count: int) -> None:
    suite = BrokenSuite(length=1, doors=2, count=count)
    plan = chain_plan(suite, chain_protocol(episodes_per_task=1, horizon=9))
    result = run(suite, tmp_path / "e", DoorPolicy(1.0), plan=plan)
    row = result.families[OVERALL]
    assert row.errors == 4
    assert row.success.mean == (count - 2) / count
    assert load_evaluation(tmp_path / "e").result.families == result.families


def test_a_batch_without_any_episode_is_resumed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 1)
    suite = BrokenSuite(length=1, doors=2, count=5)
    plan = chain_plan(suite, chain_protocol(episodes_per_task=1, seeds=1))
    with pytest.raises(Killing):
        run(suite, tmp_path / "e", Killed(DoorPolicy(1.0), 4), plan=plan)
    result = run(suite, tmp_path / "e", DoorPolicy(1.0), plan=plan)
    assert result.families[OVERALL].errors == 2


def test_all_tasks_broken_still_gives_a_result(tmp_path: Path) -> None:
    class Dead(ChainSuite):
        def make(self, task: Task) -> ChainEnvironment:
            raise RuntimeError("out of order")

    suite = Dead(length=1, count=2)
    result = run(suite, tmp_path / "e")
    assert result.families[OVERALL].errors == 8
    assert load_evaluation(tmp_path / "e").result.families == result.families


def test_a_batch_that_mostly_fails_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch meets a server that is down; once it is up again, the evaluation goes on where it was."""
    monkeypatch.setattr(module, "BATCH", 16)
    suite = ChainSuite(length=1, doors=2, count=20)
    plan = chain_plan(suite, chain_protocol(seeds=1, episodes_per_task=1))
    up = [True]

    def say(request: Request) -> Response | str:
        return request.admissible[0] if up[0] or request.key % 2 else Response("", (), 0.0, failure="status 503")

    said = Speaker(say)
    result = run(suite, tmp_path / "whole", said, plan=plan)
    up[0] = False
    with pytest.raises(
        EnvironmentFaultError, match=r"16 of 16 episodes ended in an error.*The first: response: status 503\."
    ):
        run(suite, tmp_path / "e", Speaker(lambda _: Response("", (), 0.0, failure="status 503")), plan=plan)
    assert not (tmp_path / "e" / "parts").exists()
    # Half of a batch in error is data; so is a short batch that fails as a whole.
    half = run(suite, tmp_path / "half", said, plan=plan)
    assert half.families[OVERALL].errors == 8 + 2
    assert run(suite, tmp_path / "e", Speaker(lambda one: one.admissible[0]), plan=plan).families == result.families


def test_another_evaluation_is_refused_by_its_first_difference(suite: ChainSuite, tmp_path: Path) -> None:
    run(suite, tmp_path / "e")
    plan = chain_plan(suite, chain_protocol(horizon=5))
    with pytest.raises(OptionError, match=r"plan.protocol.horizon is 4 in one and 5 in the other\); choose another"):
        run(suite, tmp_path / "e", plan=plan)
    with pytest.raises(OptionError, match=r'agent.name is "door" in one and "window" in the other'):
        run(suite, tmp_path / "e", who={**WHO, "name": "window"})
    tasks = replace(chain_plan(suite, chain_protocol()), tasks=["test/0"])
    with pytest.raises(OptionError, match=r"plan.tasks is \["):
        run(suite, tmp_path / "e", plan=tasks)


def test_a_folder_with_other_things_is_left_alone(suite: ChainSuite, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OptionError, match="exists and holds no evaluation"):
        run(suite, tmp_path)
    assert sorted(files(tmp_path)) == ["notes.txt"]


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_no_generator_takes_are_refused(seed: int) -> None:
    with pytest.raises(OptionError, match=f"first seed is {seed}; expected a number from 0 to 4294967295"):
        Plan("chain", {}, "test", ["test/0"], seed, chain_protocol())


def test_no_tasks_are_refused(suite: ChainSuite, tmp_path: Path) -> None:
    plan = Plan("chain", {}, "test", [], 0, chain_protocol())
    with pytest.raises(OptionError, match="the list of tasks is empty"):
        run_evaluation(Agent(Speaker(lambda _: ""), "action"), suite, [], plan, WHO, tmp_path / "e")
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(("text", "message"), [(None, "holds no evaluation"), ("{", "is not JSON"), ("[]", "no JSON")])
def test_folders_that_cannot_be_read(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        load_evaluation(tmp_path)


def test_two_evaluations_never_write_one_folder(suite: ChainSuite, tmp_path: Path) -> None:
    """The first to finish clears the parts; the other one would then store too few episodes."""

    def second(*_: int) -> None:
        with pytest.raises(CheckpointError, match="is in use by another evaluation; wait for it"):
            run(suite, tmp_path / "e")

    result = run(suite, tmp_path / "e", progress=second)
    assert load_evaluation(tmp_path / "e").result == result


@pytest.mark.parametrize(
    "head",
    [
        {"result": {}, "failures": [], "plan": 1},
        {"result": {}, "failures": [{"a": 1}]},
        {"result": {}},
        {"plan": {"protocol": {"resamples": "x"}}},
        {"tasks": None},
        {"tasks": 5},
        {"first_seed": "0"},
    ],
)
def test_what_nobody_wrote_is_one_sentence(suite: ChainSuite, tmp_path: Path, head: dict[str, Any]) -> None:
    run(suite, tmp_path)
    whole = json.loads((tmp_path / "evaluation.json").read_text())
    if "result" not in head:
        head = {**whole, "plan": {**whole["plan"], **head.get("plan", head)}}
    (tmp_path / "evaluation.json").write_text(json.dumps(head))
    with pytest.raises(InputError, match=r"as it was written .*; start it anew"):
        load_evaluation(tmp_path)


def test_deep_and_incomplete_files_are_one_sentence(suite: ChainSuite, tmp_path: Path) -> None:
    run(suite, tmp_path)
    lines = list(read_episodes(tmp_path / "episodes.jsonl.gz"))
    write_episodes(tmp_path / "episodes.jsonl.gz", lines[1:])
    with pytest.raises(InputError, match=f"holds {len(lines) - 1} episodes, where {len(lines)} were to be played"):
        load_evaluation(tmp_path)
    (tmp_path / "evaluation.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match="is not JSON"):
        load_evaluation(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ["test/1"]}, "0 episodes of task 'test/1' with seed 0, where 2 were to be played"),
        ({"first_seed": 1}, "0 episodes of task 'test/0' with seed 2, where 2 were to be played"),
        ({"tasks": ["test/0", "test/0"]}, "4 episodes, where 8 were to be played"),
        ({"tasks": []}, "4 episodes, where 0 were to be played"),
        ({"protocol": {"seeds": 10**12}}, "4 episodes, where 2000000000000 were to be played"),
    ],
)
def test_episodes_of_another_plan_are_no_figure(
    suite: ChainSuite, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    run(suite, tmp_path, plan=replace(chain_plan(suite, chain_protocol()), tasks=["test/0"]))
    head = json.loads((tmp_path / "evaluation.json").read_text())
    protocol = head["plan"]["protocol"] | change.pop("protocol", {})
    head["plan"] |= {**change, "protocol": protocol}
    (tmp_path / "evaluation.json").write_text(json.dumps(head))
    with pytest.raises(InputError, match=f"holds {message}; start it anew"):
        load_evaluation(tmp_path)


def test_a_part_of_other_tasks_is_refused(suite: ChainSuite, tmp_path: Path) -> None:
    with pytest.raises(Killing):
        run(suite, tmp_path, Killed(DoorPolicy(0.6), 2))
    first, second = sorted((tmp_path / "parts").glob("*.gz"))
    first.write_bytes(second.read_bytes())
    with pytest.raises(InputError, match="holds 4 episodes, where 8 were to be played; start it anew"):
        run(suite, tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"failures": [{"a": 1}]}', '{"failures": 3}'])
def test_a_broken_part_is_one_sentence(suite: ChainSuite, tmp_path: Path, text: str) -> None:
    with pytest.raises(Killing):
        run(suite, tmp_path, Killed(DoorPolicy(0.6), 2))
    next((tmp_path / "parts").glob("*.json")).write_text(text)
    with pytest.raises((CheckpointError, InputError), match=r"JSON|as it was written"):
        run(suite, tmp_path)
