"""Logs of other stacks: what each format comes to, what is refused, and credit from log to numbers and back."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepcredit.cli import main
from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import FileFormatError, InputError, MissingExtraError, OptionError, StepcreditError
from stepcredit.core.files import read_episodes
from stepcredit.core.packed import LONGEST_LINE
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.integrations.convert import records
from stepcredit.integrations.convert.conversion import READERS, Choices, Summary, convert
from stepcredit.integrations.convert.write_back import write_advantages

FILES = Path(__file__).parent / "files"
LOGS = {
    "verl_v1.jsonl": ("verl", ()),
    "verl_main_ppo.jsonl.gz": ("verl", ()),
    "verl_v0.jsonl": ("verl", ("step", "input")),
    "trl_completions.parquet": ("trl", ("step", "prompt")),
    "traces.jsonl": ("verifiers", ()),
    "trial/agent/trajectory.json": ("atif", ()),
    "skyrl.jsonl": ("skyrl", ("env_extras.task",)),
    "skyrl_steps.jsonl": ("skyrl", ("env_extras.task",)),
    "openai_chat.jsonl": ("openai", ()),
}
"""Every log of the folder with its format, and the fields that make task groups where it has no ids."""


def episodes_of(name: str | Path, tmp_path: Path, **choices: Any) -> tuple[list[Episode], Summary]:
    """The episodes a log comes to, and the summary."""
    path = FILES / name
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / "rollouts.jsonl"
    summary = convert([path], out, Choices(**choices))
    return list(read_episodes(out)), summary


def acted(episode: Episode) -> list[tuple[str, str, float]]:
    """Observation, action and reward of every turn."""
    return [(turn.observation, turn.action, turn.reward) for turn in episode.turns]


def write_lines(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def fails(path: Path, message: str, **choices: Any) -> None:
    """The conversion is refused with this message, and nothing is written."""
    out = path.with_name("out.jsonl")
    with pytest.raises(StepcreditError) as caught:
        convert([path], out, Choices(**choices))
    assert message in str(caught.value)
    assert not out.exists()


# What each format comes to.


@pytest.mark.parametrize(("name", "group_by"), [(name, fields) for name, (_, fields) in LOGS.items()])
def test_every_log_is_recognised(name: str, group_by: tuple[str, ...], tmp_path: Path) -> None:
    episodes, summary = episodes_of(name, tmp_path, group_by=group_by)
    assert dict(summary.formats) == {LOGS[name][0]: 1}
    assert (summary.episodes, summary.turns) == (len(episodes), sum(len(one.turns) for one in episodes))
    assert {one.extra["source"]["format"] for one in episodes} == {LOGS[name][0]}


def test_every_reader_has_a_log_from_its_stack() -> None:
    assert {reader for reader, _ in LOGS.values()} == set(READERS)


def test_verl_v1_rows_become_turns_and_padding_is_skipped(tmp_path: Path) -> None:
    episodes, summary = episodes_of("verl_v1.jsonl", tmp_path)
    first, second = "0f3e9c1a-6a51-4a5e-9d0c-5b6f0f1f2a01", "9b1d2c3e-1111-4222-8333-444455556666"
    assert [(one.task, one.episode) for one in episodes] == [
        (first, f"{first}_0"),
        (first, f"{first}_1"),
        (second, f"{second}_0"),
        (second, f"{second}_1"),
    ]
    fridge = "The fridge 1 is open.\nIt holds an egg 1."
    assert acted(episodes[0]) == [
        ("You are in a kitchen.", "open fridge 1", 0.0),
        (fridge, "take egg 1 from fridge 1", 1.0),
    ]
    assert acted(episodes[1])[2] == ("You are in a kitchen.", "look", 0.0)
    assert episodes[0].turns[0].extra["response"] == "<think>\nhm\n</think>\n<action>open fridge 1</action>"
    assert [one.success for one in episodes] == [True, False, False, True]
    assert [one.final_observation for one in episodes[:2]] == ["(end: success)", "(end: failure)"]
    assert summary.as_json()["skipped"] == {"padding rows": 2}


def test_a_dump_of_a_real_verl_run(tmp_path: Path) -> None:
    # Two prompts with four rollouts each, a row a turn, one row of padding; penalties are inside verl's score.
    episodes, summary = episodes_of("verl_main_ppo.jsonl.gz", tmp_path)
    assert [len(one.turns) for one in episodes] == [5, 8, 5, 8, 8, 8, 8, 5]
    scores = [10, -0.5, 10, -0.6, -0.4, -0.6, -0.4, 10]
    assert [sum(turn.reward for turn in one.turns) for one in episodes] == pytest.approx(scores)
    assert [turn.action for turn in episodes[0].turns][:2] == ["go to sinkbasin 1", "take soapbar 2 from sinkbasin 1"]
    assert summary.as_json()["skipped"] == {"padding rows": 1}
    credit = assign(Turns.from_episodes(episodes), "rloo")
    expected = [one - (sum(group) - one) / 3 for group in (scores[:4], scores[4:]) for one in group]
    lengths = [len(one.turns) for one in episodes]
    np.testing.assert_allclose(credit.advantage, np.repeat(expected, lengths), atol=1e-5)


def test_verl_v0_lines_are_episodes_with_their_tool_turns(tmp_path: Path) -> None:
    episodes, summary = episodes_of("verl_v0.jsonl", tmp_path, group_by=("step", "input"))
    call = '<tool_call>\n{"name": "open", "arguments": {"thing": "fridge 1"}}\n</tool_call>'
    assert acted(episodes[0]) == [
        ("You are in a kitchen.", call, 0.0),
        ("<tool_response>\nThe fridge 1 is open.\n</tool_response>", "An egg.", 1.0),
    ]
    assert summary.tasks == {episodes[0].task: 2, episodes[2].task: 2}
    assert episodes[0].extra["source"]["acc"] is True


def test_trl_completions(tmp_path: Path) -> None:
    episodes, summary = episodes_of("trl_completions.parquet", tmp_path, group_by=("step", "prompt"))
    assert acted(episodes[0]) == [
        ("Guess the word like crane.", 'guess({"word":"brave"})', 0.0),
        ("-GG-G", 'check({"letter":"c"})', 0.0),
        ("yes", "crane", 1.25),
    ]
    assert [one.turns[-1].reward for one in episodes] == [1.25, 0.5, 1.0, 0.5]  # row 3: one function gave nothing
    assert list(summary.tasks.values()) == [2, 2]
    assert summary.as_json()["remarks"] == {"rows whose reward is the sum of solved + short (choose with --reward)": 3}
    chosen, _ = episodes_of("trl_completions.parquet", tmp_path, group_by=("step", "prompt"), reward="solved")
    assert [one.success for one in chosen] == [True, False, True, False]


def test_verifiers_trees_become_branches(tmp_path: Path) -> None:
    episodes, summary = episodes_of("traces.jsonl", tmp_path)
    by_name = {one.episode: one for one in episodes}
    assert list(by_name) == ["t1", "t1/8", "t2", "t2/6", "t3"]
    put = 'act({"command": "put egg 1 in fridge 1"})'
    assert acted(by_name["t1"]) == [
        ("You are in a kitchen.", "open fridge 1", 0.0),
        ("The fridge 1 is open.", put, 0.75),
    ]
    assert by_name["t1"].final_observation == "You put the egg 1 in the fridge 1."
    # The second try leaves the state before turn 1: same observation, own turns only.
    assert by_name["t1/8"].parent == Parent("t1", 1)
    assert acted(by_name["t1/8"])[0] == ("The fridge 1 is open.", "close fridge 1", 0.0)
    # A compacted context is another state: no branch.
    assert by_name["t2/6"].parent is None
    assert acted(by_name["t2/6"]) == [("So far: a fridge.", "go away", 0.0)]
    assert by_name["t1/8"].turns[0].logprobs == (-1.5, -0.25, -0.25)
    assert {one.task for one in episodes} == {"g7"}
    assert (summary.branches, summary.turns_with_logprobs) == (1, 8)
    assert summary.as_json()["skipped"] == {"traces of agents that are not trained": 1}


def test_failed_traces_are_skipped_and_unscored_ones_are_not(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (FILES / "traces.jsonl").read_text().splitlines()]
    lines[1]["traces"][0] |= {"ok": False, "rewards": {}}
    path = write_lines(tmp_path / "traces.jsonl", *lines)
    episodes, summary = episodes_of(path, tmp_path)
    assert [one.episode for one in episodes] == ["t1", "t1/8", "t3"]
    assert summary.as_json()["skipped"]["traces that failed and were not scored"] == 1
    lines[1]["traces"][0]["ok"] = True
    fails(write_lines(path, *lines), f"{path}:2: reward: got nothing")


def test_several_trained_agents_form_groups_of_their_own(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (FILES / "traces.jsonl").read_text().splitlines()]
    lines[2]["traces"][1]["agent"]["trainable"] = True
    lines[2]["traces"][1]["rewards"] = {"fair": {"score": 0.5}}
    episodes, _ = episodes_of(write_lines(tmp_path / "traces.jsonl", lines[2]), tmp_path)
    assert [(one.task, one.turns[-1].reward) for one in episodes] == [("g7 / agent", 0.0), ("g7 / judge", 0.5)]


def test_atif_takes_reward_and_task_from_the_trial(tmp_path: Path) -> None:
    (episode,), summary = episodes_of("trial/agent/trajectory.json", tmp_path)
    assert (episode.task, episode.episode) == ("mug", "mug__1")
    assert acted(episode) == [
        ("You arrive at sink 1.", 'act({"command":"open cabinet 1"})', 0.0),
        ("The cabinet 1 is open.", 'act({"command":"take mug 1"})', 0.0),
        ("You pick up the mug 1.", "Done.", 1.0),
    ]
    assert [turn.logprobs for turn in episode.turns] == [(-0.5, -0.25), (-0.125,), None]
    assert summary.as_json()["skipped"] == {"copied steps": 1}


def test_atif_prefers_rewards_of_steps_and_reads_reward_txt_alone(tmp_path: Path) -> None:
    trial = tmp_path / "trial"
    shutil.copytree(FILES / "trial", trial)
    path = trial / "agent" / "trajectory.json"
    (trial / "result.json").unlink()
    (trial / "verifier" / "reward.txt").write_text("0.25")
    document = json.loads(path.read_text()) | {"extra": {"task": "mug"}}
    path.write_text(json.dumps(document, indent=1))
    (alone,), _ = episodes_of(path, tmp_path, group_by=("extra.task",))
    assert [turn.reward for turn in alone.turns] == [0.0, 0.0, 0.25]
    (trial / "verifier" / "reward.json").write_text('{"style": 0.25, "tests": 0.5}')
    (named,), _ = episodes_of(path, tmp_path, group_by=("extra.task",))
    assert [turn.reward for turn in named.turns] == [0.0, 0.0, 0.75]
    (trial / "verifier" / "reward.json").unlink()
    document["steps"][3]["extra"] = {"reward": 0.5}
    path.write_text(json.dumps(document))
    (stepped,), _ = episodes_of(path, tmp_path, group_by=("extra.task",))
    assert [turn.reward for turn in stepped.turns] == [0.5, 0.0, 0.0]
    (trial / "verifier" / "reward.txt").write_text("good")
    del document["steps"][3]["extra"]
    path.write_text(json.dumps(document))
    fails(path, "reward.txt: got 'good', expected a finite number", group_by=("extra.task",))


def test_skyrl_lines_that_continue_each_other_are_one_episode(tmp_path: Path) -> None:
    steps, summary = episodes_of("skyrl_steps.jsonl", tmp_path, group_by=("env_extras.task",))
    assert [acted(one) for one in steps] == [
        [("You are in a kitchen.", "open fridge 1", 0.0), ("The fridge 1 is open.", "take egg 1", 1.0)],
        [("You are in a kitchen.", "look", 0.0)],
    ]
    assert summary.as_json()["remarks"] == {"lines joined to the line before, which they continue": 1}
    whole, _ = episodes_of("skyrl.jsonl", tmp_path, group_by=("env_extras.task",))
    assert acted(whole[0]) == acted(steps[0])
    assert whole[1].turns[0].reward == 0.25  # one score a token: their sum


def test_openai_chats(tmp_path: Path) -> None:
    (first, second), _ = episodes_of("openai_chat.jsonl", tmp_path)
    assert first.task == second.task == "task-17"
    assert acted(first) == [
        ("You are in a kitchen.", 'act({"a":"open fridge 1"})', 0.0),
        ("The fridge 1 is open.", "take egg 1", 1.0),
    ]
    # Nothing was shown between the two messages: that is no state of its own name.
    silent = second.turns[1]
    assert (silent.observation, silent.action) == ("", "wait")
    assert silent.state is not None
    assert silent.state.startswith("after ")


def test_llama_marks_and_text_without_marks(tmp_path: Path) -> None:
    opening = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    prompt = f"<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>{opening}"
    marked = {"input_prompt": prompt, "output_response": "go<|eot_id|>", "score": 1, "k": "a"}
    plain = {"input_prompt": "user says hi", "output_response": "go\nuser\nhm", "score": 0, "k": "a"}
    path = write_lines(tmp_path / "log.jsonl", marked, plain)
    (one, other), summary = episodes_of(path, tmp_path, group_by=("k",))
    assert acted(one) == [("Hi", "go", 1.0)]
    assert acted(other) == [("user says hi", "go\nuser\nhm", 0.0)]
    assert sum(summary.notes.remarks.values()) == 1


def test_trl_rows_of_plain_text_say_that_turns_are_lost(tmp_path: Path) -> None:
    row = {"step": 1, "prompt": "hi", "completion": "go\nuser\nseen\nassistant\nstop", "r": 1.0, "advantage": 0.5}
    path = write_lines(tmp_path / "log.jsonl", row, row | {"prompt": "user\nhi\nassistant\n"})
    (plain, marked), summary = episodes_of(path, tmp_path, group_by=("step",))
    assert (len(plain.turns), acted(marked)) == (1, [("hi", "go", 0.0), ("seen", "stop", 1.0)])
    assert [what.partition(":")[0] for what in summary.as_json()["remarks"]] == [
        "rows of plain text without marks of a chat template"
    ]


def test_different_scores_of_rows_are_rewards_of_turns(tmp_path: Path) -> None:
    rows = [{"input": "user\na\nassistant\n", "output": "b", "score": s, "step": 1, "uid": f"p_0_{s}"} for s in (0, 1)]
    (episode,), summary = episodes_of(write_lines(tmp_path / "log.jsonl", *rows), tmp_path)
    assert [turn.reward for turn in episode.turns] == [0.0, 1.0]
    assert sum(summary.notes.remarks.values()) == 1


# What is refused.


def test_missing_groups_and_rewards_say_which_option_helps(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}], "task": "t"}
    path = write_lines(tmp_path / "log.jsonl", chat)
    fails(path, f"{path}:1: task group: got no group id in a record of openai")
    fails(path, f"{path}:1: reward: got nothing, expected a number; name the field", group_by=("task",))
    fails(path, "task.id: got nothing", group_by=("task.id",))
    fails(path, "score: got None, expected a finite number (--reward)", group_by=("task",), reward="score")
    fails(FILES / "verl_v0.jsonl", "--group-by step,input")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("verl_v1.jsonl", lambda row: row | {"uid": "p"}, "uid: got 'p', expected PROMPT_SESSION_ROW"),
        ("verl_v1.jsonl", lambda row: row | {"uid": "p_0_1"}, "uid: got row 1, expected row 0"),
        ("verl_v1.jsonl", lambda row: row | {"score": "high"}, "score: got 'high', expected a finite number"),
        ("verl_v1.jsonl", lambda row: row | {"output": None}, "output: got null, expected a string"),
        ("skyrl.jsonl", lambda row: row | {"score": ["x"]}, "score[0]: got 'x', expected a finite number"),
        ("openai_chat.jsonl", lambda row: row | {"messages": []}, "line: got no message of the policy"),
        ("openai_chat.jsonl", lambda row: row | {"messages": 3}, "messages: got 3, expected a list"),
        (
            "openai_chat.jsonl",
            lambda row: row | {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].name: got nothing, expected a string",
        ),
        ("traces.jsonl", lambda row: row | {"traces": [{"id": "x"}]}, "traces[0].nodes: got nothing"),
        (
            "traces.jsonl",
            lambda row: row | {"traces": [{"id": "x", "nodes": [{"parent": 0, "message": {"role": "user"}}]}]},
            "traces[0].nodes[0].parent: got 0, expected the index of an earlier node",
        ),
        ("traces.jsonl", lambda row: row | {"group": None}, "--group-by task.hash"),
    ],
)
def test_faults_name_file_line_and_field(
    name: str, change: Callable[[dict[str, Any]], dict[str, Any]], message: str, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (FILES / name).read_text().splitlines()]
    path = write_lines(tmp_path / "log.jsonl", rows[0], change(rows[1]))
    choices = {"group_by": LOGS[name][1]}
    fails(path, f"{path}:2: ", **choices)
    fails(path, message, **choices)


def test_an_episode_may_stand_once(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FILES / "verl_v1.jsonl").read_text().splitlines()]
    path = write_lines(tmp_path / "log.jsonl", rows[0], rows[5], rows[0])
    fails(path, "log.jsonl:3: episode: got '0f3e9c1a-6a51-4a5e-9d0c-5b6f0f1f2a01_0', which stands at")


def test_unknown_formats_and_unreadable_files(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", {"a": 1, "b": 2})
    fails(path, f"{path}:1: line: got an object with the fields 'a', 'b', expected a record of verl, trl, verifiers")
    fails(write_lines(tmp_path / "log.jsonl", [1]), "log.jsonl:1: line: got a list of 1, expected a JSON object")
    fails(write_lines(tmp_path / "empty.jsonl"), "empty.jsonl is empty")
    fails(tmp_path / "missing.jsonl", "Cannot read")
    fails(tmp_path, "Cannot read")
    with pytest.raises(OptionError, match=r"Unknown format 'verll'\. Did you mean 'verl'\?"):
        Choices(format="verll")
    (tmp_path / "doc.json").write_text('{\n "schema_version": "ATIF-v1.8",\n oops\n}')
    fails(tmp_path / "doc.json", "doc.json:3: document: got text that is not JSON")


def test_a_named_format_is_not_questioned(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", {"a": 1})
    fails(path, "messages: got nothing, expected a list", format="openai")


def test_parquet_needs_pyarrow_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"needs pyarrow.*stepcredit\[parquet\]"):
        convert([FILES / "trl_completions.parquet"], tmp_path / "out.jsonl", Choices())


def test_broken_parquet_names_its_row(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    data = (FILES / "trl_completions.parquet").read_bytes()
    for cut in (data[:-9], data[:40] + b"\xff" * 400 + data[440:]):
        path = tmp_path / "broken.parquet"
        path.write_bytes(cut)
        with pytest.raises(FileFormatError, match=r"broken.parquet:1: row: got broken parquet data"):
            convert([path], tmp_path / "out.jsonl", Choices(group_by=("step",)))


def test_long_lines_documents_and_deep_nesting_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "deep.jsonl"
    deep.write_text('{"messages": ' + "[" * 200_000 + "]" * 200_000 + "}\n")
    fails(deep, "deep.jsonl:1: line: got JSON nested too deeply")
    arguments = "[" * 600 + "]" * 600
    call = f'{{"function": {{"name": "f", "arguments": {arguments}}}}}'
    deep.write_text(f'{{"messages": [{{"role": "assistant", "tool_calls": [{call}]}}], "reward": 1, "group": "g"}}\n')
    fails(deep, "value: got a list of 1, expected JSON that is not nested as deeply")
    (tmp_path / "long.jsonl").write_bytes(b'{"messages": "' + b"x" * LONGEST_LINE + b'"}')
    fails(tmp_path / "long.jsonl", "long.jsonl:1: line: got a line of")
    monkeypatch.setattr(records, "_LARGEST_DOCUMENT", 100)
    (tmp_path / "long.json").write_text(json.dumps({"messages": ["x"] * 100}, indent=1))
    fails(tmp_path / "long.json", "document: got more than 100 bytes")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    line = json.loads((FILES / "openai_chat.jsonl").read_text().splitlines()[0])
    line["messages"][1]["content"] = "kitchen " * 1500
    peaks = []
    for count in (50, 1000):
        path = tmp_path / f"{count}.jsonl.gz"
        with gzip.open(path, "wt", compresslevel=1) as file:
            for _ in range(count):
                file.write(json.dumps(line) + "\n")
        tracemalloc.start()
        try:
            assert convert([path], tmp_path / "out.jsonl.gz", Choices()).episodes == count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # Twenty times as much text, of which only the episodes' names may stay: the long file is 12 MB unpacked.
    assert peaks[1] < peaks[0] + 1_000_000


# From log to credit, and back.


def run(*arguments: str | Path) -> int:
    """The command line's exit status."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def credit_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_assign_on_a_converted_verl_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rollouts, credit = tmp_path / "rollouts.jsonl", tmp_path / "credit.jsonl"
    assert run("convert", FILES / "verl_v1.jsonl", "--out", rollouts, "--json") == 0
    summary = json.loads(capsys.readouterr().err)
    assert summary == {
        "formats": {"verl": 1},
        "tasks": 2,
        "singletons": 0,
        "episodes": 4,
        "branches": 0,
        "successes": 2,
        "turns": 7,
        "turns_with_logprobs": 0,
        "skipped": {"padding rows": 2},
        "remarks": {},
    }
    # One rollout against the other: the number of its rows must not weigh (stock rloo sees seven samples here).
    assert run("assign", rollouts, "--method", "rloo", "--out", credit) == 0
    assert [line["advantage"] for line in credit_lines(credit)] == [1, 1, -1, -1, -1, -1, 1]
    # Steps from the open fridge: taking (1) beats closing (0); from the kitchen three actions of returns 1, 0, 0.
    assert run("assign", rollouts, "--method", "gigpo", "--set", "normalize=mean", "--out", credit) == 0
    steps = [line["components"]["step"] for line in credit_lines(credit)]
    gamma = 0.95
    mean = gamma / 3
    assert steps == pytest.approx([gamma - mean, 0.5, -mean, -0.5, -mean, -0.5, 0.5])


@pytest.mark.parametrize(("name", "group_by"), [(name, fields) for name, (_, fields) in LOGS.items()])
def test_assign_works_on_every_converted_log(name: str, group_by: tuple[str, ...], tmp_path: Path) -> None:
    episodes, _ = episodes_of(name, tmp_path, group_by=group_by)
    credit = tmp_path / "credit.jsonl"
    method = "treepo" if any(one.parent for one in episodes) else "grpo"
    assert run("assign", tmp_path / "rollouts.jsonl", "--method", method, "--out", credit) == 0
    assert len(credit_lines(credit)) == sum(len(one.turns) for one in episodes)


def test_credit_goes_back_into_traces_per_sampled_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces, rollouts, credit = FILES / "traces.jsonl", tmp_path / "rollouts.jsonl", tmp_path / "credit.jsonl"
    assert run("convert", traces, "--out", rollouts) == 0
    assert run("assign", rollouts, "--method", "treepo", "--out", credit) == 0
    assert run("convert", traces, "--to", "verifiers", "--credit", credit, "--out", tmp_path / "scored.jsonl") == 0
    assert "8 of 8 turns written back, 13 sampled tokens" in capsys.readouterr().err
    before, after = (credit_lines(path) for path in (traces, tmp_path / "scored.jsonl"))
    by_turn = {(line["episode"], line["turn"]): line["advantage"] for line in credit_lines(credit)}
    found = [[node.pop("advantages", None) for node in trace["nodes"]] for line in after for trace in line["traces"]]
    first, second = by_turn["t1", 0], by_turn["t1", 1]
    again = [by_turn["t1/8", turn] for turn in (0, 1)]
    assert found[0] == [None, None, [first] * 2, None, [second], None, [again[0]] * 3, None, [again[1]]]
    assert found[1] == [None, None, [by_turn["t2", 0]], None, [by_turn["t2", 1]], None, [by_turn["t2/6", 0]] * 2]
    assert found[2] == [None, None, [by_turn["t3", 0]] * 2]
    assert found[3] == [None, None]  # the judge is not trained
    assert first != 0
    assert after == before  # nothing else changed


def test_credit_of_other_traces_is_refused_and_unscored_turns_stay_bare(tmp_path: Path) -> None:
    traces, credit, out = FILES / "traces.jsonl", tmp_path / "credit.jsonl", tmp_path / "scored.jsonl"
    names = [("t1", 0), ("t1", 1), ("t1/8", 0), ("t1/8", 1), ("t2", 0), ("t2", 1), ("t2/6", 0), ("t3", 0)]
    rows = [{"episode": episode, "turn": turn, "advantage": None} for episode, turn in names]
    rows[0]["advantage"] = -0.5
    write_lines(credit, *rows)
    assert write_advantages([traces], credit, out).as_json() == {
        "turns": 8,
        "scored": 1,
        "tokens": 2,
        "without_tokens": 0,
    }
    line = json.loads(out.read_text().splitlines()[0])
    assert [node.get("advantages") for node in line["traces"][0]["nodes"]][:5] == [None, None, [-0.5, -0.5], None, None]
    out.unlink()
    for changed, message in (
        (rows[:3], "no more lines in"),
        ([*rows, rows[0]], "credit of a turn that the traces do not have"),
        ([rows[1], rows[0]], "credit.jsonl:1: episode: got turn 1 of 't1', expected credit of turn 0 of 't1'"),
    ):
        write_lines(credit, *changed)
        with pytest.raises(FileFormatError) as caught:
            write_advantages([traces], credit, out)
        assert message in str(caught.value)
        assert not out.exists()


def test_command_line_mistakes_exit_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    assert run("convert", FILES / "verl_v0.jsonl", "--out", out) == 2
    assert "--group-by step,input" in capsys.readouterr().err
    assert run("convert", FILES / "traces.jsonl", "--to", "verifiers", "--out", out) == 2
    assert "belong together" in capsys.readouterr().err
    assert not out.exists()
    assert run("convert", FILES / "verl_v0.jsonl", FILES / "openai_chat.jsonl", "--group-by", "step", "--out", out) == 2
    assert "openai_chat.jsonl:1: step: got nothing" in capsys.readouterr().err


def test_several_files_of_different_formats_make_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl.gz"
    assert run("convert", FILES / "verl_v1.jsonl", FILES / "traces.jsonl", "--out", out) == 0
    assert "files: 1 of verl, 1 of verifiers" in capsys.readouterr().err
    assert len(list(read_episodes(out))) == 9


def test_turns_have_no_reward_but_the_last(tmp_path: Path) -> None:
    (first, _), _ = episodes_of("openai_chat.jsonl", tmp_path)
    assert first.turns[0] == Turn("You are in a kitchen.", 'act({"a":"open fridge 1"})')


def test_input_error_is_what_a_missing_file_is(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        convert([tmp_path / "none"], tmp_path / "out", Choices())
