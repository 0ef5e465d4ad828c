"""Every shipped recipe trains for two updates at a fraction of its size, those for GPUs with another model."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from stepcredit.training.config import TrainConfig, load_config, make_config
from stepcredit.training.loop import train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import RunFolder

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
PAPERS = sorted((FOLDER / "papers").glob("*.toml"))
OURS = ("tiny", "linear")
FEW_GAMES = {"train": 60, "valid_seen": 6, "valid_unseen": 6}
GENERATED: dict[str, dict[str, Any]] = {"household": FEW_GAMES, "shopping": {"nouns": "light"}, "search_qa": {}}
"""Options of each environment that need no file."""


def smaller(recipe: Path) -> TrainConfig:
    """The recipe in its shape, at a small size, on generated tasks and with a model that is at hand."""
    values = tomllib.loads(recipe.read_text(encoding="utf-8"))
    config = load_config(recipe, {})
    values |= {
        "demonstrations": {family: min(count, 4) for family, count in config.demonstrations.items()},
        "imitation_epochs": min(config.imitation_epochs, 1),
        "control_epochs": min(config.control_epochs, 1),
        "updates": 2,
        "tasks_per_update": 3,
        "group_size": 2,
        "branch_budget": min(config.branch_budget, 8),
        "allocation_options": {"pool": 12} if config.allocation_options else {},
        "horizon": min(config.horizon, 8),
        "eval_tasks": 6,
        "eval_every": 1,
    }
    if config.model not in OURS:
        values |= {
            "model": "tiny",
            "model_options": {**config.model_options, "dtype": "float32"},
            "max_response_tokens": min(config.max_response_tokens, 8),
        }
    if recipe in PAPERS:  # long prompts: a few turns say what there is to say
        values |= {"environment_options": GENERATED[config.environment], "horizon": 3, "eval_tasks": 2}
    return make_config(values)


def test_the_papers_are_all_there() -> None:
    methods, environments = ("gaca", "graft", "tsbpo"), ("alfworld", "searchqa", "webshop")
    assert [path.stem for path in PAPERS] == [f"{one}-{method}" for one in environments for method in methods]
    assert all(load_config(path, {}).method == path.stem.split("-")[1] for path in PAPERS)


@pytest.mark.parametrize("recipe", [*RECIPES, *PAPERS], ids=lambda path: path.stem)
def test_recipe_trains_for_two_updates(tmp_path: Path, recipe: Path) -> None:
    config = smaller(recipe)
    with RunFolder(tmp_path) as run:
        run.write_config(config.model_dump(mode="json"))
        train(config, run, Silent())
        lines = run.metrics()
    updates = [line for line in lines if line["kind"] == "update"]
    assert [line["update"] for line in updates] == [1, 2]
    assert all(math.isfinite(line["policy"]["loss"]) and not line["failures"] for line in updates)
    moments = {line["moment"] for line in lines if line["kind"] == "evaluation"}
    assert {"before", "update-1", "after"} <= moments
