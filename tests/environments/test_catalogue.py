"""The catalogue of environments: names, options, and refusals."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stepcredit.core.errors import OptionError
from stepcredit.environments.catalogue import ENVIRONMENTS, make_suite
from stepcredit.environments.protocol import Environment, Snapshots, TaskSuite


def test_names_lead_to_suites() -> None:
    for name, entry in ENVIRONMENTS.items():
        assert entry.load().name == name
        assert entry.summary


def test_options_are_read_off_the_suite() -> None:
    options = ENVIRONMENTS["household"].options()
    assert list(options) == ["games", "families", "room", "train", "valid_seen", "valid_unseen", "seed"]
    assert options["room"].type_name == "small | medium | large"
    assert options["families"].type_name == "list of str"
    assert options["games"].type_name == "str"
    assert all(option.meaning for option in options.values())
    assert options["families"].parse("heat,cool") == ["heat", "cool"]
    assert options["train"].parse("12") == 12


def test_make_suite_passes_checked_options() -> None:
    suite: TaskSuite = make_suite("household", train=6, room="small", families=["pick"])
    environment: Environment = suite.make(suite.tasks("train")[0])
    assert isinstance(environment, Snapshots)
    assert [task.family for task in suite.tasks("train")] == ["pick"] * 6


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("houshold", {}, "Unknown environment 'houshold'. Did you mean 'household'?"),
        ("household", {"rooms": "small"}, "Unknown household option 'rooms'. Did you mean 'room'?"),
        ("household", {"room": "huge"}, "Environment option 'room': got 'huge'"),
        ("household", {"train": -1}, "Environment option 'train': got -1"),
        ("household", {"train": "many"}, "Environment option 'train': got 'many'"),
    ],
)
def test_refusals_name_the_option_and_the_way_out(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_suite(name, **options)
    assert message in str(caught.value)


def test_the_catalogue_imports_no_environment() -> None:
    program = "import sys, stepcredit.environments.catalogue; print([m for m in sys.modules if 'household' in m])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
