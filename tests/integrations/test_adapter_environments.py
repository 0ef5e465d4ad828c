"""Environments of others as ours and ours as theirs; where a package is needed, its tests skip without it."""

from __future__ import annotations

import gzip
import inspect
import json
import random
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepcredit.core.errors import InputError, MissingExtraError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import find_environment, make_suite
from stepcredit.environments.chain import ChainSuite
from stepcredit.environments.check import check_suite
from stepcredit.environments.list_suite import ListSuite
from stepcredit.environments.protocol import Environment, Snapshots, Task
from stepcredit.integrations.environments.alfworld_games import AlfworldSuite
from stepcredit.integrations.environments.as_trl import dataset_rows, environment_factory
from stepcredit.integrations.environments.gymnasium_text import from_gymnasium
from stepcredit.integrations.environments.openenv_client import OpenenvSuite, from_openenv
from stepcredit.integrations.environments.player import OutsidePlayer
from stepcredit.integrations.environments.suite import game_files, listed
from stepcredit.integrations.environments.textworld_games import TextworldSuite, start_game
from stepcredit.policy.linear import LinearPolicy
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect


class Counter:
    """A Gymnasium environment without Gymnasium: raise (1) or lower (0) a number from the seed to 3; 0 loses."""

    def reset(self, *, seed: int, options: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self.now = seed + (options or {}).get("more", 0)
        return self.now, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.now += 1 if action else -1
        return self.now, float(self.now == 3), self.now in (0, 3), False, {}

    def close(self) -> None:
        pass


def counters(**changes: Any) -> ListSuite:
    arguments: dict[str, Any] = {
        "name": "counter",
        "goal": "Reach 3.",
        "seeds": {"train": [1, 2], "test": [1]},
        "actions": ("lower", "raise"),
        "horizon": 9,
    }
    return from_gymnasium(Counter, **arguments | changes)


def transcript(environment: Environment, seed: int, turns: int = 30) -> list[Any]:
    """Everything an environment says to a random player, some of whose commands are nonsense."""
    rng = random.Random(f"player {seed}")
    observation, info = environment.reset()
    said: list[Any] = [(observation, dict(info) | {"admissible": tuple(info["admissible"])})]
    for _ in range(turns):
        command = rng.choice([*sorted(info["admissible"]), "dance"])
        observation, reward, terminated, truncated, info = environment.step(command)
        told = dict(info) | {"admissible": tuple(info["admissible"])}
        said.append((command, observation, reward, terminated, truncated, told))
        if terminated or truncated:
            break
    environment.close()
    return said


# Gymnasium, without Gymnasium.


def test_gymnasium_actions_get_names_and_observations_words() -> None:
    suite = counters(text=lambda seen, _: f"The counter shows {seen}.")
    assert [task.id for task in suite.tasks("train")] == ["train/1", "train/2"]
    environment = suite.make(suite.tasks("train")[1])
    assert environment.reset() == ("The counter shows 2.", {"admissible": ("lower", "raise"), "won": False})
    # A name that is no action's changes nothing; after the end nothing does.
    assert environment.step("jump")[:4] == ("The counter shows 2.", 0.0, False, False)
    observation, reward, terminated, truncated, info = environment.step("raise")
    assert (observation, reward, terminated, truncated, info["won"]) == ("The counter shows 3.", 1.0, True, False, True)
    assert environment.step("lower")[:4] == ("The counter shows 3.", 0.0, True, False)


def test_gymnasium_failure_options_and_info() -> None:
    suite = counters(options={"more": 1})
    environment = suite.make(suite.tasks("test")[0])
    assert environment.reset()[0] == "2"
    for _ in range(2):
        answer = environment.step("lower")
    assert answer[2:] == (True, False, {"admissible": ("lower", "raise"), "won": False})

    class Telling(Counter):
        def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
            info = {"admissible_commands": ["b", "a", "b"], "is_success": True, "score": 0.5, "state": 7}
            return (*super().step(action)[:4], info)

    told = from_gymnasium(Telling, name="t", goal="g", seeds={"train": [1]})
    environment = told.make(told.tasks("train")[0])
    environment.reset()
    assert environment.step("x")[4] == {"admissible": ("a", "b"), "won": True, "score": 0.5, "state": "7"}


def test_gymnasium_snapshots_are_copies() -> None:
    plain, copyable = counters(), counters(copyable=True)
    task = copyable.tasks("train")[0]
    assert not isinstance(plain.make(task), Snapshots)
    environment = copyable.make(task)
    assert isinstance(environment, Snapshots)
    environment.reset()
    place = environment.snapshot()
    futures = []
    for _ in range(2):  # a snapshot stays valid for any number of restores
        environment.restore(place)
        futures.append([environment.step(command)[:3] for command in ("raise", "raise", "raise")])
    assert futures[0] == futures[1] == [("2", 0.0, False), ("3", 1.0, True), ("3", 0.0, True)]


@pytest.mark.parametrize("copyable", [False, True])
def test_foreign_environments_are_collected_branched_and_credited(copyable: bool) -> None:
    suite = counters(copyable=copyable)
    policy = LinearPolicy()
    roots = collect(
        policy, suite, suite.tasks("train"), group_size=4, horizon=9, seed=[0], keep_places=copyable, reward_scale=1.0
    )
    assert not roots.failures
    grown = branch(policy, suite, [Opening(roots.rollouts[0], turn=0, count=3)], horizon=9, seed=[1], kept=roots.kept)
    roots.close()
    assert grown.groups[0].complete
    episodes = [rollout.episode for rollout in (*roots.rollouts, *grown.rollouts)]
    assert all(episode.success == (episode.final_observation == "3") for episode in episodes)
    assert assign(Turns.from_episodes(episodes), "treepo").scored.all()


def test_suites_refuse_what_does_not_fit() -> None:
    suite = counters()
    with pytest.raises(OptionError, match=r"Unknown split 'tset'\. Did you mean 'test'\?"):
        suite.tasks("tset")
    with pytest.raises(OptionError, match="has no expert"):
        suite.expert(suite.make(suite.tasks("train")[0]))
    assert listed(None) == ()


@pytest.mark.parametrize("copyable", [False, True])
def test_gymnasium_suites_keep_the_protocols_promises(copyable: bool) -> None:
    assert check_suite(counters(copyable=copyable)).findings == ()


def test_games_are_found_by_split_and_once_each(tmp_path: Path) -> None:
    for name in ("valid/b.json", "train/x/a.json", "train/x/a.z8", "train/c.ulx", "train/notes.txt", "empty/n.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert game_files(tmp_path, (".z8", ".ulx", ".json")) == {
        "train": {"c": tmp_path / "train/c.ulx", "x/a": tmp_path / "train/x/a.z8"},
        "valid": {"b": tmp_path / "valid/b.json"},
    }
    assert list(game_files(tmp_path, (".json",))) == ["train", "valid"]


# Ours, played from outside.


def test_player_counts_turns_and_stops_at_the_horizon() -> None:
    player = OutsidePlayer(ChainSuite(length=3, count=2), horizon=2)
    with pytest.raises(OptionError, match="reset first"):
        player.act("look")
    with pytest.raises(OptionError, match="at least one"):
        player.episode("e")
    player.start(player.choose(index=5))
    assert player.task is not None
    assert player.task.id == "train/1"
    assert player.act("dance")[2:4] == (False, False)
    assert player.act(player.info["admissible"][0])[2:4] == (False, True)
    episode = player.episode("e")
    assert [(turn.action, turn.valid) for turn in episode.turns] == [
        ("dance", False),
        (episode.turns[1].action, True),
    ]
    assert episode.turns[1].observation == episode.turns[0].observation
    player.close()
    player.close()
    with pytest.raises(OptionError, match="Unknown task 'train/9'"):
        player.choose(task="train/9")
    with pytest.raises(OptionError, match="horizon is 0"):
        OutsidePlayer(ChainSuite(), horizon=0)


def test_trl_environment_answers_counts_and_pays() -> None:
    suite = ChainSuite(length=2, count=2)
    rows = dataset_rows(suite)
    assert [row["task"] for row in rows] == ["train/0", "train/1"]
    assert rows[0]["prompt"][0]["content"].startswith("Get outside.")
    environment = environment_factory(suite, horizon=5)()
    first = environment.reset(**rows[1], other="column")
    assert first.startswith("\n\nPlace 1 of 2.")  # TRL adds it to the prompt letter to letter
    assert "Commands that do something now:\nopen blue door\nopen red door" in first
    expert = suite.make(suite.tasks("train")[1])
    expert.reset()
    while expert.right_command is not None:
        command = expert.right_command
        expert.step(command)
        answer = environment.act(command)
    assert answer == "You are outside.\nThe episode is over."
    assert environment.act("look") == "The episode is over."
    assert (environment.get_reward(), [turn.reward for turn in environment.turns]) == (1.0, [0.0, 1.0])
    environment.reset(**rows[0])
    assert (environment.get_reward(), environment.turns) == (0, [])


def test_trl_finds_one_tool_with_its_schema() -> None:
    chat = pytest.importorskip("transformers.utils.chat_template_utils")
    environment = environment_factory(ChainSuite())()
    public = {name for name in vars(type(environment)) if not name.startswith("_")}
    assert public == {"turns", "reset", "act", "get_reward"}  # TRL takes all functions but reset and get_reward
    function = chat.get_json_schema(environment.act)["function"]
    assert (function["name"], function["parameters"]["required"]) == ("act", ["command"])
    assert function["parameters"]["properties"]["command"]["type"] == "string"


# OpenEnv, without a network.


class Session:
    """A client of a server in the same process."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def reset(self, **options: Any) -> Any:
        return self._result(self._server.reset(**options))

    def step(self, action: Any) -> Any:
        return self._result(self._server.step(SimpleNamespace(**action)))

    def close(self) -> None:
        self._server.close()

    def _result(self, seen: Any) -> Any:
        return SimpleNamespace(observation=seen, reward=seen.reward, done=seen.done)


class Echo:
    """A server that knows nothing of our protocol."""

    def reset(self, seed: int) -> Any:
        self.left = seed
        return SimpleNamespace(message=f"{seed} left", reward=None, done=False)

    def step(self, action: Any) -> Any:
        self.left -= len(action.said)
        done = self.left <= 0
        return SimpleNamespace(message=f"{self.left} left", reward=1.0 if self.left == 0 else 0.0, done=done)

    def close(self) -> None:
        self.left = 0


def test_any_openenv_server_is_played() -> None:
    task = Task("three", "echo", "Say three letters.")
    suite = from_openenv(
        lambda: Session(Echo()), {"train": [(task, {"seed": 3})]}, action=lambda text: {"said": text}, text="message"
    )
    environment = suite.make(task)
    assert environment.reset() == ("3 left", {"admissible": (), "won": False})
    assert environment.step("a") == ("2 left", 0.0, False, False, {"admissible": (), "won": False})
    assert environment.step("bc") == ("0 left", 1.0, True, False, {"admissible": (), "won": True})
    environment.reset()
    assert environment.step("four")[2:] == (True, False, {"admissible": (), "won": False})
    environment.close()


def test_our_openenv_server_plays_as_the_suite_does() -> None:
    pytest.importorskip("openenv")
    from stepcredit.integrations.environments.as_openenv import Command, SuiteServer

    ours = ChainSuite(length=3, count=2)

    class Local(OpenenvSuite):
        def session(self) -> Any:
            return Session(SuiteServer(ours, horizon=100))

    theirs = Local(url="")
    assert theirs.splits() == ours.splits()
    assert [list(theirs.tasks(split)) for split in ours.splits()] == [
        list(ours.tasks(split)) for split in ours.splits()
    ]
    assert check_suite(theirs, tasks=1, steps=9).findings == ()
    for split in ours.splits():
        for number, task in enumerate(ours.tasks(split)):
            assert transcript(theirs.make(task), number) == transcript(ours.make(task), number)

    with pytest.raises(InputError, match=r"No OpenEnv server answers at 'http://127\.0\.0\.1:9'"):
        OpenenvSuite(url="http://127.0.0.1:9")
    server = SuiteServer(ours, horizon=1)
    server.reset(seed=3, episode_id="e1")
    last = server.step(Command(command="dance"))
    assert (last.done, last.truncated, last.reward, last.task) == (True, True, 0.0, "train/1")
    assert (server.state.episode_id, server.state.step_count) == ("e1", 1)


# Gymnasium itself.


def test_our_gymnasium_environment_passes_gymnasiums_checks() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from stepcredit.integrations.environments.as_gymnasium import SuiteEnv

    check_env(SuiteEnv(ChainSuite(length=3)), skip_render_check=True)
    household = gymnasium.make("stepcredit/household-v0", train=2, valid_seen=0, valid_unseen=1, families=["pick"])
    observation, info = household.reset(options={"task": "generated-0/small/train/pick/1"})
    assert "Your task is to: " + info["goal"] in observation
    assert info["task"] == "generated-0/small/train/pick/1"
    same = [household.reset(seed=7)[1]["task"] for _ in range(2)]
    assert same[0] == same[1]
    assert household.unwrapped.render() == household.unwrapped._player.observation
    household.close()


def test_a_suite_through_gymnasium_and_back_plays_as_it_did() -> None:
    pytest.importorskip("gymnasium")
    from stepcredit.integrations.environments.as_gymnasium import SuiteEnv

    ours = ChainSuite(length=3, count=2, mistake="fall")
    for split in ours.splits():
        for number, task in enumerate(ours.tasks(split)):
            theirs = from_gymnasium(
                lambda split=split: SuiteEnv(ours, split=split, horizon=100),  # type: ignore[misc]
                name="chain",
                goal=task.goal,
                seeds={split: [0]},
                options={"task": task.id},
            )
            assert transcript(theirs.make(theirs.tasks(split)[0]), number) == transcript(ours.make(task), number)


# TextWorld, ALFWorld, ScienceWorld.


def test_what_is_not_installed_or_not_a_game_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        AlfworldSuite(games=str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"expected files game\.tw-pddl in a subfolder a split"):
        AlfworldSuite(games=str(tmp_path))
    file = tmp_path / "train" / "pick-0" / "trial" / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_text('{"pddl_problem": ""}')
    monkeypatch.setenv("GAMES", str(tmp_path))
    suite = AlfworldSuite(games="$GAMES")
    assert suite.splits() == ("train",)
    with pytest.raises(InputError, match=r"game\.tw-pddl: got KeyError: 'grammar', expected an ALFWorld game"):
        suite.tasks("train")
    with pytest.raises(OptionError, match=r"Unknown split 'trian'\. Did you mean 'train'\?"):
        suite.tasks("trian")
    file.write_text('{"grammar": "intro :: \\"Your task is to: put a mug on desk.\\";"}')
    assert suite.tasks("train") == (Task("train/pick-0/trial", "pick", "put a mug on desk."),)

    def start(*_: Any) -> None:
        raise ImportError("PddlEnv requires fast_downward to be installed. Try running\npip install textworld[pddl]")

    monkeypatch.setitem(sys.modules, "textworld", SimpleNamespace(EnvInfos=dict, start=start))
    with pytest.raises(MissingExtraError, match=r"tw-pddl.: PddlEnv requires .* Try running pip install"):
        start_game(file)
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(MissingExtraError, match="needs textworld, which is not installed: pip install textworld"):
        TextworldSuite(games=str(tmp_path))


def test_suites_with_options_are_environments_of_a_recipe(tmp_path: Path) -> None:
    module = "stepcredit.integrations.environments"
    for name, options in (
        ("textworld_games:TextworldSuite", ["games", "horizon"]),
        ("alfworld_games:AlfworldSuite", ["games", "horizon"]),
        ("scienceworld_tasks:ScienceworldSuite", ["tasks", "variations", "simplifications", "horizon"]),
        ("openenv_client:OpenenvSuite", ["url", "horizon"]),
    ):
        entry = find_environment(f"{module}.{name}")
        assert list(entry.options()) == options
        assert all(option.meaning for option in entry.options().values())
        assert not any(option.default is inspect.Parameter.empty for option in entry.options().values())
    with pytest.raises(InputError, match="there is no such folder"):
        make_suite(f"{module}.alfworld_games:AlfworldSuite", games=str(tmp_path / "none"), horizon=3)


@pytest.mark.filterwarnings("ignore")
def test_textworld_copies_are_snapshots(tmp_path: Path) -> None:
    pytest.importorskip("textworld")
    from textworld import GameOptions
    from textworld.generator import make_game

    options = GameOptions()
    options.seeds = 3
    options.nb_rooms, options.nb_objects, options.quest_length = 1, 3, 1
    game = make_game(options)
    (tmp_path / "train").mkdir()
    game.save(str(tmp_path / "train" / "game.json"))
    suite = TextworldSuite(games=str(tmp_path))
    (task,) = suite.tasks("train")
    assert task.id == "train/game"
    environment = suite.make(task)
    assert isinstance(environment, Snapshots)
    _, info = environment.reset()
    assert (info["won"], info.get("score")) == (False, 0.0)
    place = environment.snapshot()
    answers = []
    for _ in range(2):
        environment.restore(place)
        answers.append([environment.step(command) for command in game.metadata["walkthrough"]])
    assert answers[0] == answers[1]
    assert sum(answer[1] for answer in answers[0]) == pytest.approx(1.0)
    assert answers[0][-1][2]
    assert answers[0][-1][4]["won"]
    assert answers[0][-1][4]["score"] == 1.0
    assert check_suite(suite, tasks=1, steps=5).findings == ()
    (tmp_path / "train" / "game.json").write_text("{}")
    with pytest.raises(InputError, match="Cannot start the game"):
        suite.make(task)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_alfworlds_own_engine_says_what_ours_says(shared_data: Path, tmp_path: Path) -> None:
    """Official games of three families, turns of an expert and of chance; ours does not list ``help``."""
    pytest.importorskip("alfworld")
    data = files("alfworld") / "data"
    domain, grammar = (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()
    source = shared_data / "alfworld" / "games.jsonl.gz"
    ours = make_suite("household", games=str(source))
    chosen = {task.family: task for task in ours.tasks("valid_seen")}
    tasks = sorted((chosen[family] for family in ("look", "clean", "pick2")), key=lambda task: task.id)
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        games = {game["id"]: game for game in map(json.loads, lines)}
    for task in tasks:
        game = games[task.id]
        file = tmp_path / task.id / "game.tw-pddl"
        file.parent.mkdir(parents=True)
        named = grammar.replace("UNKNOWN GOAL.", game["task"])
        file.write_text(json.dumps({"pddl_domain": domain, "grammar": named, "pddl_problem": game["problem"]}))
    theirs = AlfworldSuite(games=str(tmp_path))
    for task, same in zip(tasks, theirs.tasks("valid_seen"), strict=True):
        assert (same.id, same.goal) == (task.id, task.goal)
        engine, own = theirs.make(same), ours.make(task)
        expert, rng = ours.expert(own), random.Random(f"player {task.id}")
        answer, answer_of_ours = engine.reset(), own.reset()
        turns = 0
        while not answer[-1]["won"]:
            assert answer[:-1] == answer_of_ours[:-1]
            assert set(answer[-1]["admissible"]) - {"help"} == set(answer_of_ours[-1]["admissible"])
            listed_by_ours = sorted(answer_of_ours[-1]["admissible"])
            command = rng.choice(listed_by_ours) if turns % 3 == 1 else expert.act()
            answer, answer_of_ours = engine.step(command), own.step(command)
            turns += 1
        assert answer_of_ours[-1]["won"]
        assert answer[:4] == answer_of_ours[:4]
        assert turns > 4
        engine.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_scienceworld_scores_are_shares() -> None:
    pytest.importorskip("scienceworld")
    from stepcredit.integrations.environments.scienceworld_tasks import ScienceworldSuite

    suite = ScienceworldSuite(tasks=["find-plant"], variations=1)
    try:
        (task,) = suite.tasks("train")
        assert (task.id, task.family) == ("train/find-plant/0", "find-plant")
        environment = suite.make(task)
        first, info = environment.reset()
        assert info["admissible"] == tuple(sorted(set(info["admissible"])))
        command = next(one for one in info["admissible"] if one.startswith("focus on"))
        reward, terminated = environment.step(command)[1:3]
        environment.close()
        environment.close()
        # Focusing on the wrong thing loses the task at once; on the right one it is worth part of it.
        assert terminated == (reward < 0)
        again = suite.make(task)  # the same simulator, set back
        assert again.reset()[0] == first
        again.close()
        with pytest.raises(OptionError, match="Unknown ScienceWorld task 'fly'"):
            ScienceworldSuite(tasks=["fly"])
    finally:
        suite.close()
