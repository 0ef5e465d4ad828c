"""Recipes: what is accepted, and how a mistake is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepcredit.core.errors import InputError, OptionError
from stepcredit.policy.model_options import ModelOptions
from stepcredit.training.build import STATED, imitate_settings, state_policy, update_settings
from stepcredit.training.config import TrainConfig, config_model_options, config_objective, load_config, make_config

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
        (
            {"objective_options": {"clip_high": "x"}},
            "Objective option 'clip_high': got 'x'; input should be a valid number",
        ),
        ({"model_options": {"lora_rang": 8}}, "Unknown model option 'lora_rang'. Did you mean 'lora_rank'?"),
        (
            {"model_options": {"lora_rank": "many"}},
            "Model option 'lora_rank': got 'many'; input should be a valid integer",
        ),
        (
            {"model_options": {"dtype": "bf16"}},
            "Model option 'dtype': got 'bf16'; input should be 'auto', 'float32' or",
        ),
        ({"model_options": {"context": -1}}, "context is -1; expected 0 or more."),
        ({"update_options": {"epoch": 3}}, "Unknown update option 'epoch'. Did you mean 'epochs'?"),
        ({"update_options": {"lr": 3}}, "Unknown update option 'lr'. Expected one of: epochs, max_grad_norm,"),
        ({"update_options": {"minibatch": 0}}, "minibatch is 0; expected a finite number of at least 1."),
        ({"method": "gae"}, "set method = 'gae' and objective = 'ppo' together."),
        ({"objective": "ppo"}, "set method = 'gae' and objective = 'ppo' together."),
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


def test_options_of_model_and_update_reach_their_settings() -> None:
    config = make_config(
        {
            "model_options": {"dtype": "bfloat16", "lora_rank": 16, "gradient_checkpointing": True, "context": 2560},
            "update_options": {"epochs": 1, "minibatch": 8, "max_grad_norm": 0.5, "micro_batch_tokens": 999},
            "imitation_weight": 0.25,
            "updates": 3,
            "learning_rate": 4e-4,
            "final_learning_rate": 2e-4,
        }
    )
    assert config_model_options(config) == ModelOptions(
        dtype="bfloat16", lora_rank=16, gradient_checkpointing=True, context=2560
    )
    settings = update_settings(config, 1)
    assert (settings.epochs, settings.minibatch, settings.max_grad_norm) == (1, 8, 0.5)
    assert (settings.micro_batch_tokens, settings.imitation_coef, settings.lr) == (999, 0.25, pytest.approx(3e-4))
    assert imitate_settings(config, 0).micro_batch_tokens == 999
    plain = make_config({})
    assert config_model_options(plain) == ModelOptions()
    assert (update_settings(plain, 0).epochs, update_settings(plain, 0).minibatch) == (2, 32)


def test_a_pretrained_model_does_not_imitate_observations() -> None:
    assert imitate_settings(make_config({}), 0).observation_weight == 0.1
    assert imitate_settings(make_config({"model": "a/b"}), 0).observation_weight == 0.0


class Told:
    def describe(self) -> dict[str, object]:
        return {
            "architecture": "Llama", "parameters": 1_000_000, "trained_parameters": 8192, "weights": "bfloat16",
            "arithmetic": "bfloat16", "device": "cpu", "attention": "packed rows", "context": 2560, "workers": 2,
        }  # fmt: skip


def test_what_is_trained_is_said_and_kept(tmp_path: Path) -> None:
    said: list[str] = []
    state_policy(Told(), tmp_path, said.append)  # type: ignore[arg-type]
    assert said == [
        "Model: Llama, 8,192 of 1,000,000 parameters trained, bfloat16 weights, bfloat16 arithmetic, "
        "attention by packed rows, on cpu with 2 worker(s), context 2,560 tokens."
    ]
    assert json.loads((tmp_path / STATED).read_text()) == Told().describe()


@pytest.mark.parametrize(("content", "message"), [(b"a = ", "not valid TOML"), (b"\xff\xfe", "not valid TOML")])
def test_a_broken_recipe_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    recipe = tmp_path / "broken.toml"
    recipe.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_config(recipe, {})


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot read the recipe"):
        load_config(tmp_path / "none.toml", {})
