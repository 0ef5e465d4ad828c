"""``stepcredit evaluate``, ``compare`` and ``select`` as a user meets them."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from stepcredit.cli import main
from stepcredit.core.files import read_episodes

RECIPE = [
    *("--model", "linear", "--updates", "2", "--tasks-per-update", "2", "--group-size", "2", "--horizon", "5"),
    *("--environment-options.train", "12", "--environment-options.valid-seen", "6"),
    *("--environment-options.valid-unseen", "6", "--eval-tasks", "6", "--eval-every", "1"),
    *("--eval-splits", '["valid_seen", "valid_unseen"]'),
]
FEW = ("--seeds", "2", "--tasks", "3", "--resamples", "200")
SHORT = (*FEW, "--horizon", "3")
KEY = "sk-very-secret"


def run_cli(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def result_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run_cli([*arguments, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of one recipe."""
    parent = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        assert run_cli(["train", "--out", str(parent / f"seed-{seed}"), "--seed", str(seed), *RECIPE]) == 0
    return [parent / "seed-0", parent / "seed-1"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default folders appear where the test stands."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_a_run_under_its_own_recipe(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(["evaluate", str(runs[0])], capsys)
    protocol = found["plan"]["protocol"]
    assert (protocol["name"], protocol["horizon"], protocol["temperature"]) == ("custom", 5, 0.4)
    assert protocol["sources"]["horizon"] == "the run's recipe"
    assert protocol["sources"]["resamples"] == "default"
    assert found["plan"]["split"] == "valid_seen"
    assert len(found["plan"]["tasks"]) == 6
    assert found["agent"]["checkpoint"].isdigit()
    folder = Path(found["folder"])
    assert folder.parent.name == "evaluations"
    assert len(list(read_episodes(folder / "episodes.jsonl.gz"))) == 6
    assert found["families"]["all"]["turns"] <= 5


def test_a_papers_protocol_and_what_replaces_it(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    custom = result_of(["evaluate", str(runs[0]), "--protocol", "tsbpo", *SHORT, "--greedy"], capsys)
    protocol = custom["plan"]["protocol"]
    assert protocol["name"] == "custom"
    assert (protocol["temperature"], protocol["history"], protocol["response_tokens"]) == (0.0, 3, 512)
    given = [name for name, source in protocol["sources"].items() if source == "given"]
    assert sorted(given) == ["horizon", "resamples", "seeds", "tasks", "temperature"]
    row = custom["families"]["all"]
    assert (row["tasks"], row["episodes"]) == (3, 6)
    assert list(row["pass_at"]) == ["1", "2"]
    # Greedy play of deterministic games: both seeds are the same.
    assert len(set(row["seeds"].values())) == 1


def test_the_table_names_the_protocol_and_what_replaces_it(
    runs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run_cli(["evaluate", str(runs[0]), "--protocol", "tsbpo", *SHORT]) == 0
    title = " ".join(capsys.readouterr().out.split("episodes, 95 %")[0].split())
    assert "protocol custom (tsbpo with other seeds, tasks, horizon, resamples)" in title


def test_an_unchanged_protocol_keeps_its_name(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(["evaluate", str(runs[0]), "--protocol", "gigpo", "--horizon", "50", "--at-start"], capsys)
    assert found["plan"]["protocol"]["name"] == "gigpo"
    assert found["agent"]["checkpoint"] == "start"
    assert found["families"]["all"]["episodes"] == 18


def test_the_same_command_again_finds_its_result(
    runs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["evaluate", str(runs[0]), *SHORT]
    first = result_of(arguments, capsys)
    before = files(Path(first["folder"]))
    assert result_of(arguments, capsys) == first
    assert files(Path(first["folder"])) == before
    assert result_of([*arguments, "--seed", "4"], capsys)["folder"] != first["folder"]
    # The run under another path is the same agent.
    out = Path(first["folder"]).resolve()
    monkeypatch.chdir(runs[0])
    assert result_of(["evaluate", "../seed-0", *SHORT, "--out", str(out)], capsys)["families"] == first["families"]


def test_another_evaluation_does_not_fit_the_folder(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "e")]
    assert run_cli(["evaluate", str(runs[0]), *SHORT, *out]) == 0
    assert run_cli(["evaluate", str(runs[1]), *SHORT, *out]) == 2
    assert "holds another evaluation (agent.name is" in capsys.readouterr().err


def test_tables_for_people(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["evaluate", str(runs[0]), *SHORT]) == 0
    shown = capsys.readouterr()
    for word in ("success", "pass@2", "horizon", "Success by seed: 0:"):
        assert word in shown.out
    assert "episodes 6/6" in shown.err
    assert "Evaluation folder: evaluations/seed-0-plain-custom-valid_seen-" in shown.err


def test_an_interval_without_width_is_not_passed_off_as_certainty(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    hopeless = ["evaluate", str(runs[0]), *FEW, "--horizon", "1"]
    assert run_cli(hopeless) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "0.0% [0.0%, 0.0%]" in shown
    assert "All tasks ended alike, so the interval has no width; of other tasks up to 70.8% may end" in shown


def test_killed_it_continues_to_the_same_bytes(runs: list[Path], tmp_path: Path) -> None:
    arguments = ["evaluate", str(runs[0]), "--tasks", "6", "--episodes-per-task", "24", "--horizon", "5"]
    assert run_cli([*arguments, "--out", str(tmp_path / "whole")]) == 0
    command = [sys.executable, "-m", "stepcredit.cli", *arguments, "--out", str(tmp_path / "e")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "e").glob("parts/*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert not (tmp_path / "e" / "episodes.jsonl.gz").exists()
    assert run_cli(["compare", str(tmp_path / "whole"), str(tmp_path / "e")]) == 2
    assert run_cli([*arguments, "--out", str(tmp_path / "e")]) == 0
    assert files(tmp_path / "e") == files(tmp_path / "whole")


def test_comparing(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, run in enumerate(runs):
        assert run_cli(["evaluate", str(run), *SHORT, "--out", str(tmp_path / str(place))]) == 0
    assert run_cli(["evaluate", str(runs[0]), *FEW, "--horizon", "4", "--out", str(tmp_path / "longer")]) == 0
    capsys.readouterr()
    sides = [str(tmp_path / "0"), str(tmp_path / "1")]
    row = result_of(["compare", *sides], capsys)["families"]["all"]
    assert row["wins"] + row["ties"] + row["losses"] == row["tasks"] == 3
    assert run_cli(["compare", *sides]) == 0
    assert "Second against first" in capsys.readouterr().out
    assert run_cli(["compare", sides[0], str(tmp_path / "longer")]) == 2
    shown = capsys.readouterr().err
    assert "were not played alike: protocol.horizon is 3 in one and 4 in the other" in shown


def test_selecting(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    selected = result_of(["select", *map(str, runs)], capsys)
    assert selected["chosen_on"] == "valid_seen"
    figures = selected["splits"]["valid_unseen"]
    assert figures["fixed"]["update"] == 2
    assert len(figures["maximum"]["seeds"]) == 2
    assert [one["update"] for one in figures["curve"]] == [0, 1, 2]
    assert run_cli(["select", *map(str, runs), "--on", "valid_unseen", "--fixed", "1"]) == 0
    shown = capsys.readouterr().out
    assert "mean over 2 seeds" in shown
    assert "update 1" in shown
    assert run_cli(["select", str(runs[0]), str(runs[0])]) == 2
    assert "has seed 0, as a run before it" in capsys.readouterr().err
    other = tmp_path / "other"
    assert run_cli(["train", "--out", str(other), *RECIPE, "--seed", "2", "--group-size", "3"]) == 0
    assert run_cli(["select", str(runs[0]), str(other)]) == 2
    assert "no seeds of one recipe: group_size is 2 in one and 3 in the other" in capsys.readouterr().err


class Model(BaseHTTPRequestHandler):
    """Looks around, whatever it is asked; refuses a wrong key."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        known = self.headers["Authorization"] == f"Bearer {KEY}"
        choice = {"message": {"content": "<think>hm</think><action>look</action>"}, "finish_reason": "stop"}
        answer = json.dumps({"choices": [choice], "usage": {"completion_tokens": 9}}) if known else f"no: {KEY}"
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("prompting", ["plain", "react", "reflexion"])
def test_an_endpoint_under_a_protocol(
    url: str, prompting: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SECRET", KEY)
    arguments = ["evaluate", "gpt-some", "--endpoint", url, "--key-variable", "SECRET", "--prompting", prompting]
    arguments += ["--env-options.valid-seen", "2", "--protocol", "gaca", "--horizon", "2", "--json"]
    assert run_cli(arguments) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    row = found["families"]["all"]
    assert (row["valid_action"], row["tokens"], row["horizon"], row["errors"]) == (1.0, 9.0, 1.0, 0)
    assert row["trials"] == ([0.0, 0.0, 0.0] if prompting == "reflexion" else [])
    assert found["agent"]["endpoint"] == url
    assert KEY not in shown.out + shown.err
    contents = {**files(Path(found["folder"]))}
    contents["episodes.jsonl.gz"] = gzip.decompress(contents["episodes.jsonl.gz"])
    assert [name for name, content in contents.items() if KEY.encode() in content] == []


def test_a_wrong_key_stops_at_once_and_is_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SECRET", "sk-wrong")
    arguments = ["evaluate", "m", "--endpoint", url, "--key-variable", "SECRET", "--env-options.valid-seen", "2"]
    assert run_cli(arguments) == 2
    shown = capsys.readouterr().err
    assert "refuses the key in $SECRET (status 401); check it" in shown
    assert KEY not in shown
    assert "sk-wrong" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "linear", "--protocol", "gacca"], "gacca"),
        (["evaluate", "linear", "--protocol", "gaca", "--env", "search_qa"], "says nothing about 'search_qa'"),
        (["evaluate", "linear", "--split", "tests"], "Unknown split 'tests'"),
        (["evaluate", "linear", "--temperature", "0.2", "--greedy"], "--greedy is temperature 0"),
        (["evaluate", "linear", "--seeds", "0"], "seeds is 0; expected a finite number of at least 1"),
        (["evaluate", "linear", "--at-start"], "--at-start is about runs, and 'linear' is none"),
        (["evaluate", "linear", "--prompting", "react"], "'react' needs a language model"),
        (["evaluate", "linear", "--recipe.promt", "chat"], "Did you mean 'prompt'?"),
        (["evaluate", "m", "--endpoint", "localhost:8000"], "is no address of an endpoint"),
        (["compare", "nowhere", "nowhere"], "'nowhere' holds no evaluation"),
        (["select"], "Got no run to select"),
        (["select", "nowhere"], "'nowhere' holds no run"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_costs_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_cli(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert not Path("evaluations").exists()
