"""The recipe: every knob of ``stepcredit train``, flat and with its unit; TOML and command line share names."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from stepcredit.core.errors import InputError, OptionError, misfit, unknown_name
from stepcredit.credit.catalogue import parse_options
from stepcredit.environments.catalogue import find_environment
from stepcredit.policy.model_options import ModelOptions
from stepcredit.policy.settings import Objective, UpdateSettings, find_objective

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Settings = TypeVar("Settings", bound=BaseModel)

UPDATE_OPTIONS = ("epochs", "minibatch", "max_grad_norm", "micro_batch_tokens")
"""What ``update_options`` may hold; the other fields of ``UpdateSettings`` have recipe keys of their own."""


class TrainConfig(BaseModel):
    """A training recipe. Defaults train the tiny model in the household.

    Unknown keys are refused with the nearest known name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: Count = Field(0, description="fixes tasks, draws and initial weights")

    # What is played.
    environment: str = Field("household", description="name in `stepcredit envs`, or `module:Class` of your own")
    environment_options: dict[str, Any] = Field(default_factory=dict, description="options of the environment")
    eval_splits: tuple[str, ...] = Field(
        (), description="splits evaluated before, during and after; no choice sees them"
    )

    # Who plays.
    model: str = Field("tiny", description="`tiny`, `linear`, a folder or a hub name")
    model_options: dict[str, Any] = Field(
        default_factory=dict, description="device, types, context and adapters of a language model, see docs/policy"
    )
    response_format: Literal["action", "think-action"] = Field("action", description="what a response looks like")
    prompt: str = Field("compact", description="built-in template name or a template file")
    history: Count = Field(2, description="past turns a re-rendered prompt shows, turns")
    constrained: bool = Field(True, description="decode only admissible commands")
    max_response_tokens: Positive = Field(64, description="token limit of a free response")

    # Supervised start on expert demonstrations.
    demonstrations: dict[str, Count] = Field(default_factory=dict, description="games per family; empty: no start")
    imitation_epochs: Count = Field(40, description="passes over the demonstrations at most")
    imitation_target: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="stop the start at this success on demonstrated families"
    )
    imitation_learning_rate: Rate = Field(2e-3, description="AdamW learning rate of the start")
    imitation_weight: NonNegative = Field(0.0, description="weight of replayed demonstrations in every update")

    # Credit.
    method: str = Field("gigpo", description="name in `stepcredit methods`")
    method_options: dict[str, Any] = Field(default_factory=dict, description="options of the method")

    # Which tasks, and where to branch.
    root: Literal["families", "uniform", "fitted"] = Field("families", description="how tasks and quotas are chosen")
    branch: Literal["none", "random", "fitted"] = Field("none", description="how states to branch are chosen")
    branch_budget: Count = Field(0, description="suffixes an update")
    allocation_options: dict[str, Any] = Field(default_factory=dict, description="options of the allocator")

    # One update.
    updates: Count = Field(60, description="updates in all")
    tasks_per_update: Positive = Field(16, description="tasks")
    group_size: Positive = Field(8, description="episodes a task")
    horizon: Positive = Field(30, description="turns an episode may take")
    temperature: Rate = Field(1.0, description="sampling temperature while training")
    success_reward: Rate = Field(10.0, description="training reward of a success")
    invalid_penalty: NonNegative = Field(0.1, description="cost of an invalid response, reward units")
    learning_rate: Rate = Field(5e-4, description="AdamW learning rate of the first update")
    final_learning_rate: NonNegative = Field(1e-4, description="of the last update, linear in between")
    update_options: dict[str, Any] = Field(
        default_factory=dict,
        description="`epochs` over an update's episodes [2], `minibatch` episodes an optimiser step [32], "
        "`max_grad_norm` [1], `micro_batch_tokens` of one forward pass [4096]",
    )
    objective: str = Field("gigpo", description="policy objective by name, see docs/policy")
    objective_options: dict[str, Any] = Field(default_factory=dict, description="fields of the objective to replace")

    # Evaluation and the run folder.
    also_evaluate: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="label → {split, horizon, environment options…}: other games, evaluated alike"
    )
    control_epochs: Count = Field(
        0, description="imitation epochs of the control: the start policy, given these instead of updates"
    )
    eval_every: Count = Field(20, description="updates between evaluations; 0: only before and after")
    eval_tasks: Positive = Field(120, description="tasks a split and evaluation, at most")
    eval_temperature: NonNegative = Field(0.4, description="sampling temperature while evaluating")
    checkpoint_every: Positive = Field(1, description="updates between checkpoints")


_LONGEST_RECIPE = 1 << 16
"""Characters; the time to read some TOML grows with the square of its length."""


def load_config(recipe: Path | None, overrides: Mapping[str, Any]) -> TrainConfig:
    """A recipe file with single values replaced.

    Args:
        recipe: TOML file; None for the defaults.
        overrides: key → value; a table merges into the recipe's table.

    Raises:
        InputError: the file cannot be read or is not TOML.
        OptionError: an unknown key or a value that does not fit.
    """
    values: dict[str, Any] = {}
    if recipe is not None:
        try:
            text = recipe.read_text(encoding="utf-8")
            if len(text) > _LONGEST_RECIPE:
                raise InputError(
                    f"The recipe {str(recipe)!r} has {len(text):,} characters; expected a short TOML file."
                )
            values = tomllib.loads(text)
        except OSError as error:
            raise InputError(f"Cannot read the recipe {str(recipe)!r}: {error.strerror}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"The recipe {str(recipe)!r} is not valid TOML: {error}.") from None
    for key, value in overrides.items():
        old = values.get(key)
        values[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return make_config(values)


def checked(kind: type[Settings], values: Mapping[str, Any], *, unknown: str, known: Callable[[str], str]) -> Settings:
    """Settings from plain values.

    Args:
        kind: which settings.
        values: by key.
        unknown: what a key that is none of theirs is called.
        known: what is said of a key whose value does not fit.

    Raises:
        OptionError: an unknown key or a value that does not fit; one sentence naming the key.
    """
    for key in values:
        if key not in kind.model_fields:
            raise unknown_name(unknown, key, kind.model_fields)
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise misfit(known(key), first["input"], error) from None


def make_config(values: Mapping[str, Any]) -> TrainConfig:
    """A checked configuration from plain values.

    Raises:
        OptionError: an unknown key or a value that does not fit; one sentence naming the key.
    """
    config = checked(TrainConfig, values, unknown="recipe key", known=lambda key: f"Recipe key {key!r}")
    find_environment(config.environment)
    method_options(config)
    if (config_objective(config).value_coef > 0) != (config.method == "gae"):
        raise OptionError(
            "Method 'gae' takes the values of a critic, and only an objective with a value loss trains one; "
            "set method = 'gae' and objective = 'ppo' together."
        )
    config_model_options(config)
    config_update(config)
    if config.branch != "none" and config.root == "families":
        raise OptionError(
            f"branch = {config.branch!r} needs an allocator; set root to 'fitted' (or to the control 'uniform')."
        )
    return config


def method_options(config: TrainConfig) -> dict[str, Any]:
    """The recipe's method options as the method takes them.

    Raises:
        OptionError: no such method or option, or a value that does not fit.
    """
    return parse_options(config.method, {name: str(value) for name, value in config.method_options.items()})


def config_objective(config: TrainConfig) -> Objective:
    """The recipe's objective: the named one with its options replaced.

    Raises:
        OptionError: no such objective or option, or a value that does not fit.
    """
    fields = [field.name for field in dataclasses.fields(Objective)]
    options = {name: None if value == "off" else value for name, value in config.objective_options.items()}
    return dataclasses.replace(
        find_objective(config.objective), **_check_fields("objective", Objective, fields, options)
    )


def config_model_options(config: TrainConfig) -> ModelOptions:
    """The recipe's model options.

    Raises:
        OptionError: no such option, or a value that does not fit.
    """
    fields = [field.name for field in dataclasses.fields(ModelOptions)]
    return ModelOptions(**_check_fields("model", ModelOptions, fields, config.model_options))


def config_update(config: TrainConfig) -> UpdateSettings:
    """Settings of an update as far as they are the same in each.

    Raises:
        OptionError: no such option, or a value that does not fit.
    """
    options = _check_fields("update", UpdateSettings, UPDATE_OPTIONS, config.update_options)
    return UpdateSettings(objective=config_objective(config), imitation_coef=config.imitation_weight, **options)


def _check_fields(kind: str, owner: type[Any], fields: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for some fields of a dataclass, checked against their annotations.

    Raises:
        OptionError: an unknown field, or a value of another type.
    """
    hints = get_type_hints(owner)
    checked = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown_name(f"{kind} option", name, fields)
        try:
            checked[name] = TypeAdapter(hints[name]).validate_python(value)
        except ValidationError as error:
            raise misfit(f"{kind.capitalize()} option {name!r}", value, error) from None
    return checked
