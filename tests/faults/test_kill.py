"""Killed anywhere, a verb goes on to the same bytes, and nothing half-written is ever taken for whole.

``benchmarks/soak.py`` does the same at 200 moments.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from faults.killing import Unhurt, kill_and_go_on, run_unhurt, scenarios
from faults.nursery import Nursery

MOMENTS = {"train": 4, "train-branching": 2, "assign": 3, "convert": 3, "evaluate": 3, "demonstrate": 3}


@pytest.mark.parametrize("name", MOMENTS)
def test_killed_anywhere_it_ends_bit_equal(
    name: str, nursery: Nursery, trained: tuple[Path, Unhurt], tmp_path: Path
) -> None:
    scenario = next(one for one in scenarios(trained[0]) if one.name == name)
    unhurt = trained[1] if name == "train" else run_unhurt(nursery, scenario, tmp_path / "unhurt")
    for number in range(MOMENTS[name]):
        kill_and_go_on(nursery, scenario, unhurt, tmp_path / str(number), Random(f"{name} {number}"))


def test_every_update_is_logged_once(trained: tuple[Path, Unhurt]) -> None:
    """Bit-equal runs therefore log it once as well, whenever they were killed."""
    lines = [json.loads(line) for line in (trained[0] / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines if line["kind"] == "update"] == [1, 2, 3]
    assert [line["moment"] for line in lines if line["kind"] == "evaluation"] == ["before", "update-2", "after"]
