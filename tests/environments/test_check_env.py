"""The check of environments: ours keep every promise, and each broken one is named by what it breaks."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepcredit.cli import main
from stepcredit.core.errors import EnvironmentFaultError, OptionError, unknown_name
from stepcredit.environments.catalogue import ENVIRONMENTS, find_environment, make_suite
from stepcredit.environments.check import Report, check_suite
from stepcredit.environments.list_suite import ListSuite
from stepcredit.environments.protocol import PLACEHOLDER, Environment, Task

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Counter:
    """Counts up to three; keeps every promise."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.count = 0

    def reset(self) -> Any:
        self.count = 0
        return f"count {self.count}", self.info()

    def step(self, action: str) -> Any:
        self.count += action == "up" and self.count < 3
        return f"count {self.count}", float(self.count == 3), self.count == 3, False, self.info()

    def info(self) -> dict[str, Any]:
        return {"admissible": ("up", "wait") if self.count < 3 else (), "won": self.count == 3}

    def close(self) -> None:
        pass


class Suite:
    name: Any = "counter"
    horizon: Any = 5

    def __init__(self, environment: Callable[[Task], Any] = Counter) -> None:
        self.warnings: list[str] = []
        self.environment = environment

    def splits(self) -> Any:
        return ("train", "test")

    def tasks(self, split: str) -> Any:
        if split not in self.splits():
            raise unknown_name("split", split, self.splits())
        return [Task(f"{split}/{number}", "count", "Count to three.") for number in range(3)]

    def make(self, task: Task) -> Any:
        return self.environment(task)

    def expert(self, environment: Environment) -> Any:
        raise OptionError("no expert")

    def entities(self) -> Any:
        return ()


def promises(suite: Any, **options: Any) -> set[str]:
    return {finding.promise for finding in check_suite(suite, **options).findings}


def faults(suite: Any) -> str:
    return "\n".join(finding.fault for finding in check_suite(suite).findings)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_ours_keep_every_promise(name: str) -> None:
    report = check_suite(make_suite(name), tasks=3)
    assert report.findings == ()
    assert report.steps > 10


def test_a_good_one_has_no_finding() -> None:
    report = check_suite(Suite(), tasks=2)
    assert report == Report(tasks=4, steps=report.steps, findings=())


BROKEN_SUITES = {
    "no name": {"name": ""},
    "no horizon": {"horizon": 0},
    "no warnings": {"warnings": None},
    "no splits": {"splits": lambda: ()},
    "splits twice": {"splits": lambda: ("train", "train")},
    "no tasks": {"tasks": lambda split: []},
    "an iterator": {"tasks": lambda split: iter(())},
    "any split": {"tasks": lambda split: [Task(f"{split}/1", "f", "g")]},
    "a task twice": {"tasks": lambda split: [Task(f"{split}/1", "f", "g")] * 2},
    "in both splits": {"tasks": lambda split: [Task("1", "f", "g")]},
    "numbers": {"tasks": lambda split: [Task(1, "f", "g")]},
    "another order": {"tasks": lambda split: [Task(f"{split}/{random.random()}", "f", "g")]},
    "entities": {"entities": lambda: ("a", 3)},
    "raises": {"splits": lambda: 1 / 0},
}


@pytest.mark.parametrize("broken", BROKEN_SUITES)
def test_broken_suites(broken: str) -> None:
    suite = Suite()
    for name, value in BROKEN_SUITES[broken].items():
        setattr(suite, name, value)
    report = check_suite(suite)
    assert {finding.promise for finding in report.findings} == {"suite"}
    assert report.tasks == 0


def answering(**changed: Any) -> Callable[[Task], Counter]:
    """A counter whose answers differ from the second command on."""

    class Changed(Counter):
        def step(self, action: str) -> Any:
            observation, reward, ended, truncated, info = super().step(action)
            if self.count < 1:
                return observation, reward, ended, truncated, info
            info |= {name: value for name, value in changed.items() if name in ("admissible", "won", "score", "state")}
            return (
                changed.get("observation", observation),
                changed.get("reward", reward),
                changed.get("ended", ended),
                changed.get("truncated", truncated),
                changed.get("info", info),
            )

    return Changed


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"observation": 3}, "observation is 3; expected text"),
        ({"observation": "\ud800"}, "surrogate"),
        ({"reward": float("nan")}, "reward is nan; expected a finite number"),
        ({"reward": None}, "reward is None"),
        ({"ended": 1}, "expected True or False"),
        ({"info": {}}, "expected a mapping with 'admissible' and 'won'"),
        ({"won": None}, "info['won'] is None"),
        ({"score": 1.5}, "expected a number in [0, 1]"),
        ({"state": 7}, "info['state'] is 7"),
        ({"admissible": "up"}, "expected a sequence of texts"),
        ({"admissible": {"up": 1}}, "expected a sequence of texts"),
        ({"admissible": ("wait", "up")}, "not sorted and unique"),
        ({"admissible": ("up", "up")}, "not sorted and unique"),
        ({"admissible": (" ", "up")}, "nobody can say"),
    ],
)
def test_answers_of_another_form(changed: dict[str, Any], complaint: str) -> None:
    suite = Suite(answering(**changed))
    assert promises(suite) == {"answers"}
    assert complaint in faults(suite)


def test_answers_of_another_length() -> None:
    class Short(Counter):
        def step(self, action: str) -> Any:
            return super().step(action)[:4]

    assert "expected (observation, reward, terminated, truncated, info)" in faults(Suite(Short))


def test_chance_between_plays() -> None:
    class Chance(Counter):
        def step(self, action: str) -> Any:
            _, *rest = super().step(action)
            return f"count {self.count} {random.random()}", *rest

    assert "determinism" in promises(Suite(Chance))
    assert "A fresh environment differs at answer 1: observation is 'count" in faults(Suite(Chance))


def test_what_reset_forgets() -> None:
    class Sticky(Counter):
        def reset(self) -> Any:
            return f"count {self.count}", self.info()

    assert "The same environment after reset() differs" in faults(Suite(Sticky))


def test_chance_between_processes() -> None:
    def elsewhere(split: str, commands: Any) -> list[dict[str, Any]]:
        return [{"command": None, "feedback": f"count 0 of {split}"}]

    (finding, _) = check_suite(Suite(), elsewhere=elsewhere).findings
    assert finding.promise == "other processes"
    assert "Step 0 (None) diverges in 'feedback': got 'count 0', expected 'count 0 of train'" in finding.fault
    assert finding.task == "train/0"


def test_unknown_commands_that_matter() -> None:
    class Raises(Counter):
        def step(self, action: str) -> Any:
            return super().step({"up": "up", "wait": "wait"}[action])

    class Counts(Counter):
        def step(self, action: str) -> Any:
            return super().step("up" if action != "wait" else action)

    assert promises(Suite(Raises)) == {"unknown commands"}
    assert "KeyError: ''." in faults(Suite(Raises))
    assert promises(Suite(Counts)) == {"unknown commands"}


def test_snapshots_that_change() -> None:
    class Shared(Counter):
        """Its snapshot is its very state."""

        def reset(self) -> Any:
            self.state = [0]
            self.count = 0
            return super().reset()

        def step(self, action: str) -> Any:
            self.count = self.state[0]
            answer = super().step(action)
            self.state[0] = self.count
            return answer

        def snapshot(self) -> Any:
            return self.state

        def restore(self, snapshot: Any) -> None:
            self.state = snapshot

    class Forgets(Counter):
        def snapshot(self) -> int:
            return self.count

        def restore(self, snapshot: int) -> None:
            self.count = 0

    for broken in (Shared, Forgets):
        assert promises(Suite(broken)) == {"snapshots"}
        assert "After restore() of the state before command" in faults(Suite(broken))


def test_endings() -> None:
    class Final(Counter):
        def step(self, action: str) -> Any:
            if self.count == 3:
                raise RuntimeError("it is over")
            return super().step(action)

    class Closes(Counter):
        closed = False

        def close(self) -> None:
            assert not self.closed, "closed twice"
            self.closed = True

    assert promises(Suite(Final)) == {"ending"}
    assert "RuntimeError: it is over." in faults(Suite(Final))
    assert "closed twice" in faults(Suite(Closes))


class Lossy(Counter):
    """Says how it is pickled, and loses its count."""

    def __reduce__(self) -> Any:
        return Lossy, (self.task,)


def test_pickling_that_was_promised() -> None:
    assert promises(Suite(Lossy)) == {"pickling"}


def test_experts_that_want_the_impossible() -> None:
    class Fly:
        def act(self) -> str:
            return "fly"

    suite = Suite()
    suite.expert = lambda environment: Fly()  # type: ignore[method-assign]
    assert "The expert wants 'fly', which is not admissible." in faults(suite)


def test_placeholders_stand_for_words() -> None:
    class Free(Counter):
        def info(self) -> dict[str, Any]:
            return {**super().info(), "admissible": (f"say {PLACEHOLDER}", "up")}

    class Says:
        def act(self) -> str:
            return "say anything"

    suite = Suite(Free)
    suite.expert = lambda environment: Says()  # type: ignore[method-assign]
    assert promises(suite) == set()


def test_a_fault_of_many_tasks_is_one_finding() -> None:
    report = check_suite(Suite(answering(won=None)), tasks=3)
    assert max(finding.count for finding in report.findings) > 1
    assert len({(finding.promise, finding.fault) for finding in report.findings}) == len(report.findings)


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stepcredit.cli", "check-env", *arguments]
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


class TestCommand:
    def test_the_example_passes(self) -> None:
        done = run("own_environment:DialSuite", "--largest", "3", folder=EXAMPLES)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("own_environment:DialSuite: keeps every promise; 6 tasks, ")

    def test_order_of_a_set_shows_between_processes(self, tmp_path: Path) -> None:
        source = (EXAMPLES / "own_environment.py").read_text(encoding="utf-8")
        shuffled = "{list(set('abcdefghijklmnopqrstuvwxyz'))}"
        changed = source.replace("The dial shows {side}.", f"The dial shows {{side}} {shuffled}.")
        assert changed != source
        (tmp_path / "mine.py").write_text(changed, encoding="utf-8")
        done = run("mine:DialSuite", "--json", folder=tmp_path)
        assert done.returncode == 1
        assert {finding["promise"] for finding in json.loads(done.stdout)["findings"]} == {"other processes"}
        done = run("mine:DialSuite", folder=tmp_path)
        assert done.returncode == 1
        assert done.stdout.splitlines()[0].startswith("other processes [train/1]: Another process")

    @pytest.mark.parametrize(
        ("target", "complaint"),
        [
            ("nothing:Here", "Cannot load 'nothing:Here': No module named 'nothing'"),
            ("own_environment:Suite", "has no attribute 'Suite'; expected MODULE:CLASS"),
            ("houshold", "Did you mean 'household'?"),
            (":", "Cannot load"),
        ],
    )
    def test_what_cannot_be_loaded(self, target: str, complaint: str) -> None:
        done = run(target, folder=EXAMPLES)
        assert done.returncode == 2
        assert complaint in done.stderr
        assert done.stdout == ""


def test_suites_of_lists() -> None:
    task = Task("1", "f", "g")
    suite = ListSuite("mine", horizon=3, tasks={"train": [task]}, make=Counter, entities=["cup 1"])
    assert (suite.name, suite.horizon, suite.warnings) == ("mine", 3, [])
    assert (suite.splits(), suite.tasks("train"), suite.entities()) == (("train",), (task,), ("cup 1",))
    assert suite.make(task).task is task
    with pytest.raises(OptionError, match="Did you mean 'train'"):
        suite.tasks("trian")
    with pytest.raises(OptionError, match="'mine' has no expert"):
        suite.expert(suite.make(task))
    expert = object()
    taught = ListSuite("mine", horizon=3, tasks={}, make=Counter, expert=lambda environment: expert)
    assert taught.expert(Counter(task)) is expert


def test_own_suites_have_options_like_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    entry = find_environment("own_environment:DialSuite")
    assert entry.options()["largest"].type_name == "int"
    assert len(make_suite("own_environment:DialSuite", largest=2).tasks("train")) == 2
    with pytest.raises(OptionError, match="Did you mean 'largest'"):
        make_suite("own_environment:DialSuite", lagest=2)


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (EXAMPLES.parent / "docs" / "environments" / "your_own.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    source = (EXAMPLES / "own_environment.py").read_text(encoding="utf-8")
    assert len(blocks) == 2
    assert [block for block in blocks if block not in source] == []
    assert sum(len(block.splitlines()) for block in blocks) <= 40


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mine:Task", "Cannot make 'mine:Task': missing a required argument: 'task'"),
        ("mine:NUMBER", "'mine:NUMBER' is a int; expected MODULE:CLASS"),
        ("mine:Untyped", "Option 'size' of 'mine:Untyped' has no type; annotate it"),
        ("broken:Suite", "Cannot load 'broken:Suite': SyntaxError: "),
        ("mine:Raising", "Cannot make 'mine:Raising': RuntimeError: no such game."),
    ],
)
def test_what_is_no_suite_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, message: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "broken.py").write_text("def")
    (tmp_path / "mine.py").write_text(
        "NUMBER = 3\n"
        "class Task:\n    def __init__(self, task): ...\n"
        "class Untyped:\n    def __init__(self, *, size=3): ...\n"
        "class Raising:\n    def __init__(self): raise RuntimeError('no such game')\n"
    )
    with pytest.raises((OptionError, EnvironmentFaultError), match=re.escape(message)):
        make_suite(target)
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--environment", target, "--model", "linear", "--out", str(tmp_path / "run")])


@pytest.mark.parametrize("limits", [{"tasks": 0}, {"steps": -1}])
def test_checking_nothing_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="expected at least one of each"):
        check_suite(Suite(), **limits)
