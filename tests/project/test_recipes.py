"""The recipe stays small, and every shipped recipe loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepcredit.training.config import TrainConfig, load_config

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.toml"))


def test_train_has_at_most_forty_keys() -> None:
    assert len(TrainConfig.model_fields) <= 40


def test_every_key_says_what_it_is() -> None:
    assert [name for name, field in TrainConfig.model_fields.items() if not field.description] == []


def test_there_are_recipes() -> None:
    assert RECIPES


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_loads(recipe: Path) -> None:
    assert isinstance(load_config(recipe, {}), TrainConfig)
