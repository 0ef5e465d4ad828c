"""Every shipped recipe trains for two updates at a fraction of its size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from stepcredit.training.config import load_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import RunFolder

RECIPES = sorted((Path(__file__).resolve().parents[2] / "examples" / "recipes").glob("*.toml"))


def smaller(recipe: Path) -> dict[str, Any]:
    """Overrides that keep a recipe's shape and shrink its size."""
    config = load_config(recipe, {})
    return {
        "demonstrations": {family: min(count, 4) for family, count in config.demonstrations.items()},
        "imitation_epochs": min(config.imitation_epochs, 1),
        "control_epochs": min(config.control_epochs, 1),
        "updates": 2,
        "tasks_per_update": 3,
        "group_size": 2,
        "branch_budget": min(config.branch_budget, 8),
        "allocation_options": {"pool": 12} if config.allocation_options else {},
        "horizon": 8,
        "eval_tasks": 6,
        "eval_every": 1,
    }


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_trains_for_two_updates(tmp_path: Path, recipe: Path) -> None:
    config = load_config(recipe, smaller(recipe))
    with RunFolder(tmp_path) as run:
        run.write_config(config.model_dump(mode="json"))
        train(config, run, Silent())
        lines = run.metrics()
    updates = [line for line in lines if line["kind"] == "update"]
    assert [line["update"] for line in updates] == [1, 2]
    assert all(math.isfinite(line["policy"]["loss"]) and not line["failures"] for line in updates)
    moments = {line["moment"] for line in lines if line["kind"] == "evaluation"}
    assert {"before", "update-1", "after"} <= moments
