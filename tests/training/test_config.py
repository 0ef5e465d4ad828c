"""Recipes: what is accepted, and how a mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepcredit.core.errors import InputError, OptionError
from stepcredit.training.config import TrainConfig, config_objective, load_config, make_config

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.toml"))


def test_few_keys_each_explained() -> None:
    fields = TrainConfig.model_fields
    assert len(fields) <= 40
    assert [name for name, field in fields.items() if not field.description] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes_load(recipe: Path) -> None:
    assert load_config(recipe, {}).updates >= 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"udpates": 3}, "Unknown recipe key 'udpates'. Did you mean 'updates'?"),
        ({"environment": "housebold"}, "Unknown environment 'housebold'. Did you mean 'household'?"),
        ({"method": "gigop"}, "Unknown method 'gigop'. Did you mean 'gigpo'?"),
        ({"method": "gigpo", "method_options": {"gama": 0.9}}, "'gama'. Did you mean 'gamma'?"),
        ({"objective": "dapoo"}, "Unknown objective 'dapoo'. Did you mean 'dapo'?"),
        ({"objective_options": {"clip_hi": 0.3}}, "Unknown objective option 'clip_hi'. Did you mean 'clip_high'?"),
        ({"horizon": 0}, "Recipe key 'horizon': got 0; input should be greater than or equal to 1."),
        ({"updates": "many"}, "Recipe key 'updates': got 'many'; input should be a valid integer"),
        ({"learning_rate": float("nan")}, "Recipe key 'learning_rate': got nan"),
    ],
)
def test_a_mistake_is_one_sentence(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_config(values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_group_size_one_is_allowed() -> None:
    assert make_config({"group_size": 1}).group_size == 1


def test_overrides_replace_values_and_merge_tables(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('updates = 7\nmethod = "gigpo"\nmethod_options = { gamma = 0.9, step_weight = 2.0 }\n')
    config = load_config(recipe, {"updates": 3, "method_options": {"gamma": 0.5}})
    assert config.updates == 3
    assert config.method_options == {"gamma": 0.5, "step_weight": 2.0}


def test_objective_is_the_named_one_with_its_options_replaced() -> None:
    config = make_config({"objective": "dapo", "objective_options": {"clip_low": 0.1, "dual_clip": 3.0}})
    objective = config_objective(config)
    assert (objective.clip_low, objective.clip_high, objective.dual_clip) == (0.1, 0.28, 3.0)


@pytest.mark.parametrize(("content", "message"), [(b"a = ", "not valid TOML"), (b"\xff\xfe", "not valid TOML")])
def test_a_broken_recipe_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    recipe = tmp_path / "broken.toml"
    recipe.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_config(recipe, {})


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read the recipe"):
        load_config(tmp_path / "none.toml", {})
