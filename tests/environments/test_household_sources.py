"""Games from files: official trees and compact files, with broken and unsolvable games among them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stepcredit.core.errors import InputError, OptionError
from stepcredit.environments.household.generator import generate
from stepcredit.environments.household.goals import FAMILIES, FORMULAS, TASK_TYPES, recognise
from stepcredit.environments.household.suite import HouseholdSuite


def texts(family: str = "heat", number: int = 0) -> tuple[str, str]:
    return generate(0, "small", "train", family, number)


def write_game(folder: Path, problem: str, task: str, **fields: object) -> Path:
    folder.mkdir(parents=True)
    grammar = f'grammar :: """ {{"task": [ {{ "rhs": "Your task is to: {task}" }} ]}} """;'
    path = folder / "game.tw-pddl"
    values = {"pddl_domain": "", "grammar": grammar, "pddl_problem": problem, "solvable": True, **fields}
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def tree(root: Path) -> Path:
    """Two playable training games, one held-out game, and one of every kind that is left out."""
    base = root / "json_2.1.1"
    write_game(base / "train" / "task-b" / "trial_2", *texts("heat"))
    write_game(base / "train" / "task-a" / "trial_1", *texts("look"))
    write_game(base / "valid_seen" / "task-c" / "trial_3", *texts("pick"))
    write_game(base / "train" / "task-d" / "unsolved", *texts("cool"), solvable=False)
    write_game(base / "train" / "task-e-MugSliced" / "sliced", *texts("cool"))
    write_game(base / "train" / "task-f" / "broken", "(define", "put a mug in desk.")
    problem, task = texts("clean")
    closed = "\n".join(line for line in problem.splitlines() if "canContain" not in line)
    write_game(base / "train" / "task-g" / "impossible", closed, task)
    (base / "train" / "task-h" / "garbled").mkdir(parents=True)
    (base / "train" / "task-h" / "garbled" / "game.tw-pddl").write_bytes(b'{"pddl_problem": "\xff"}')
    return root


def test_a_tree_loads_in_sorted_order_with_the_sentence_of_its_grammar(tmp_path: Path) -> None:
    suite = HouseholdSuite(games=str(tree(tmp_path)))
    assert suite.splits() == ("train", "valid_seen")
    tasks = suite.tasks("train")
    assert [task.id for task in tasks] == ["train/task-a/trial_1", "train/task-b/trial_2"]
    assert [task.family for task in tasks] == ["look", "heat"]
    assert [task.goal for task in tasks] == [texts("look")[1], texts("heat")[1]]
    assert suite.make(tasks[0]).reset()[0].endswith(f"Your task is to: {tasks[0].goal}")


def test_games_left_out_are_named_with_the_reason(tmp_path: Path) -> None:
    suite = HouseholdSuite(games=str(tree(tmp_path)))
    suite.tasks("train")
    unsolved, broken, impossible, garbled = suite.warnings
    assert "task-d/unsolved/game.tw-pddl: marked as unsolvable" in unsolved
    assert "task-f/broken/game.tw-pddl: expected the sections" in broken
    assert "task-g/impossible/game.tw-pddl: the game cannot be won" in impossible
    assert "task-h/garbled/game.tw-pddl: not valid JSON" in garbled
    suite.tasks("train")
    assert len(suite.warnings) == 4


def test_the_place_of_the_tree_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tree(tmp_path)))
    assert len(HouseholdSuite(games="$ALFWORLD_DATA/json_2.1.1").tasks("train")) == 2


@pytest.mark.parametrize("name", ["games.jsonl", "games.jsonl.gz"])
def test_a_compact_file_keeps_its_order(tmp_path: Path, name: str) -> None:
    lines = []
    for number, family in enumerate(FAMILIES):
        problem, task = texts(family)
        split = "valid_seen" if number % 2 else "train"
        lines.append(json.dumps({"id": f"{split}/{family}", "problem": problem, "task": task}))
    lines.insert(2, '{"id": "train/cut", "problem": "(def')
    lines.insert(3, '{"id": "train/half", "problem": "(define)"}')
    lines.insert(4, lines[0])
    lines.append('["train/list"]')
    lines.append('{"id": "lonely", "problem": "", "task": ""}')
    data = "\n".join(lines).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    suite = HouseholdSuite(games=str(path))
    assert suite.splits() == ("train", "valid_seen")
    assert [task.id for task in suite.tasks("train")] == ["train/pick", "train/clean", "train/cool"]
    assert [task.family for task in suite.tasks("valid_seen")] == ["look", "heat", "pick2"]
    assert [warning.removeprefix(str(path)).split(": ")[0] for warning in suite.warnings] == [
        ":3", ":4", ":5", ":10", ":11",
    ]  # fmt: skip
    reasons = ("not valid JSON", "field 'task'", "was there before", "expected an object", "expected SPLIT/")
    assert all(reason in warning for reason, warning in zip(reasons, suite.warnings, strict=True))


def test_the_official_file_loads_completely(shared_data: Path) -> None:
    suite = HouseholdSuite(games=str(shared_data / "alfworld" / "games.jsonl.gz"))
    assert {split: len(suite.tasks(split)) for split in suite.splits()} == {
        "train": 54,
        "valid_train": 200,
        "valid_seen": 140,
    }
    assert suite.warnings == []
    for split in suite.splits():
        for task in suite.tasks(split):
            assert task.id.split("/")[1].split("-")[0] == TASK_TYPES[task.family]


def test_families_are_chosen_in_files_too(tmp_path: Path) -> None:
    suite = HouseholdSuite(games=str(tree(tmp_path)), families=["heat"])
    assert [task.id for task in suite.tasks("train")] == ["train/task-b/trial_2"]
    with pytest.raises(InputError, match="'valid_seen' has no playable game of heat"):
        suite.tasks("valid_seen")


def test_entities_cover_the_games_read(tmp_path: Path) -> None:
    problem, task = texts("heat")
    write_game(tmp_path / "train" / "t" / "one", problem.replace("Fridge_bar", "Igloo_bar"), task)
    suite = HouseholdSuite(games=str(tmp_path))
    assert "cabinet 27" in suite.entities()
    assert "igloo 1" not in suite.entities()
    suite.tasks("train")
    assert "igloo 1" in suite.entities()


@pytest.mark.parametrize("family", FAMILIES)
def test_goal_formulas_are_recognised_whatever_their_spacing_and_case(family: str) -> None:
    formula = FORMULAS[family].format(target="Mug", destination="Desk")
    assert recognise(formula.replace(" ", "\n  ").replace("(", " ( ").upper()) == (family, "mugtype", "desktype")
    with pytest.raises(InputError, match="none of the six"):
        recognise(formula.replace("?o", "?x", 1))


def test_two_types_in_a_pair_of_objects_are_no_family() -> None:
    formula = FORMULAS["pick2"].format(target="Mug", destination="Desk")
    with pytest.raises(InputError, match="none of the six"):
        recognise(formula.replace("MugType", "CupType", 1))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"games": "nowhere.jsonl"}, InputError, "Cannot read 'nowhere.jsonl': No such file or directory"),
        ({"families": ["heet"]}, OptionError, "Unknown family 'heet'. Did you mean 'heat'?"),
        ({"families": []}, OptionError, "No family chosen"),
        ({"train": 0, "valid_seen": 0, "valid_unseen": 0}, OptionError, "No games asked for"),
        ({"games": "somewhere", "room": "large"}, OptionError, "'room' is about generated games"),
        ({"games": "somewhere", "train": 5}, OptionError, "Got train=5 beside games='somewhere'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        HouseholdSuite(**options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_an_empty_folder_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    for place in (tmp_path, tmp_path / "empty.jsonl"):
        with pytest.raises(InputError, match="No household games in"):
            HouseholdSuite(games=str(place))


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}" * 1000)[:-20])
    with pytest.raises(InputError, match="Cannot read"):
        HouseholdSuite(games=str(path))


def test_unknown_splits_and_games_are_refused_with_a_way_out(tmp_path: Path) -> None:
    suite = HouseholdSuite(games=str(tree(tmp_path)))
    with pytest.raises(OptionError, match=r"Unknown split 'valid_sen'\. Did you mean 'valid_seen'\?"):
        suite.tasks("valid_sen")
    with pytest.raises(OptionError, match=r"did you mean 'train/task-a/trial_1'\?"):
        suite.find("train/task-a/trial_9")
    with pytest.raises(InputError, match=r"task-f/broken/game.tw-pddl: expected the sections"):
        suite.find("train/task-f/broken")
    generated = HouseholdSuite(train=1)
    with pytest.raises(OptionError, match="expected generated-SEED/ROOM/SPLIT/FAMILY/NUMBER"):
        generated.find("generated-0/small")
    with pytest.raises(OptionError, match="Unknown family 'heet'"):
        generated.find("generated-0/small/train/heet/0")
