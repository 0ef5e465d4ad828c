"""A training recipe as the overrides of verl's ``main_ppo``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stepcredit.core.errors import OptionError
from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.verl.settings import environment_settings
from stepcredit.policy.settings import Objective
from stepcredit.training.config import TrainConfig, config_objective, config_update, method_options

MODULE = "verl.trainer.main_ppo"

_PENALTIES = {"k1": "k1", "abs": "abs", "k2": "k2", "k3": "low_var_kl", "tangent": "stepcredit_tangent"}
_NO_DUAL_CLIP = 1e6
"""verl always has a dual clip; at this bound it never acts."""
_CRITIC_RATE = 10.0
"""Learning rate of the critic over the policy's, as between verl's own defaults and in our own trainer."""
_TANGENT_BOUND = Objective().tangent_bound
_BARE = re.compile(r"[A-Za-z_/][\w./:-]*")
"""Text that Hydra reads as itself, without quotes."""

_HERE_ONLY = {
    "demonstrations": {},
    "imitation_weight": 0.0,
    "also_evaluate": {},
    "model_options": {},
    "control_epochs": 0,
}
"""Recipe keys that only our own trainer knows, and what they are where they ask for nothing."""


def overrides(config: TrainConfig) -> list[str]:
    """The recipe as ``KEY=VALUE`` arguments of verl's ``main_ppo``.

    What a recipe does not say (the machine, token limits, micro-batches, the rollout engine) keeps verl's defaults and
    is given after these: later arguments win.

    Raises:
        OptionError: the recipe asks for something that verl cannot do; names the key.
    """
    _refuse(config)
    method = {f"+algorithm.stepcredit.{name}": value for name, value in method_options(config).items()}
    values: dict[str, Any] = {
        "algorithm.adv_estimator": f"stepcredit_{config.method}",
        **method,
        **_data(config),
        **_rollout(config),
        **_actor(config),
        **_critic(config),
        "trainer.total_training_steps": config.updates,
        # verl stops at the first of the two limits, and a pass over few tasks is few updates.
        "trainer.total_epochs": config.updates,
        "trainer.test_freq": config.eval_every or -1,
        "trainer.save_freq": config.checkpoint_every,
    }
    return [f"{key}={_spelled(value)}" for key, value in values.items()]


def _refuse(config: TrainConfig) -> None:
    problems = {
        name: "only stepcredit's own trainer knows it; leave it out"
        for name, nothing in _HERE_ONLY.items()
        if getattr(config, name) != nothing
    }
    if config.model in ("tiny", "linear"):
        problems["model"] = f"{config.model!r} is stepcredit's own; name a model folder or hub name"
    if config.constrained:
        problems["constrained"] = "verl's engines sample any text; set constrained = false"
    if config.branch == "fitted":
        problems["branch"] = "verl has no round of branches before its update; 'random' branches in a session"
    if config.objective_options.get("tangent_bound", _TANGENT_BOUND) != _TANGENT_BOUND:
        problems["objective_options.tangent_bound"] = f"verl's penalty has no options; only {_TANGENT_BOUND:g} fits"
    if config_objective(config).surrogate == "turn-clip" and config_objective(config).dual_clip is not None:
        problems["objective_options.dual_clip"] = "the turn clip has none in verl; set it to 'off'"
    for name in ("minibatch", "micro_batch_tokens"):
        if name in config.update_options:
            problems[f"update_options.{name}"] = "verl counts rows; give actor_rollout_ref.actor.ppo_* itself"
    for key, problem in problems.items():
        raise OptionError(f"Recipe key {key!r} with --engine verl: {problem}.")


def _data(config: TrainConfig) -> dict[str, Any]:
    settings = environment_settings(
        {
            "environment": config.environment,
            "environment_options": config.environment_options,
            "prompt": config.prompt,
            "history": config.history,
            "response_format": config.response_format,
            "horizon": config.horizon,
            "max_response_tokens": config.max_response_tokens,
            "reward_scale": config.success_reward,
            "invalid_penalty": config.invalid_penalty,
            "root": "shuffle" if config.root == "families" else config.root,
            "group_size": None if config.root == "families" else config.group_size,
            "allocation_options": config.allocation_options,
            "suffixes": _suffixes(config),
            "seed": config.seed,
        }
    )
    changed = settings.model_dump(exclude_defaults=True)
    train = make_suite(config.environment, **config.environment_options).splits()[0]
    return {
        "data.custom_cls.path": "pkg://stepcredit.integrations.verl.tasks",
        "data.custom_cls.name": "TaskDataset",
        "data.train_files": train,
        "data.val_files": config.eval_splits or train,
        "data.train_batch_size": config.tasks_per_update,
        "data.val_max_samples": config.eval_tasks,
        "data.seed": config.seed,
        "data.max_response_length": config.max_response_tokens,
        **({"data.dataloader_num_workers": 0} if settings.root != "shuffle" else {}),
        **{f"+data.stepcredit.{key}": value for key, value in changed.items()},
    }


def _suffixes(config: TrainConfig) -> int:
    """Suffixes per root that spend the recipe's budget as nearly as whole numbers can."""
    if config.branch == "none":
        return 0
    return max(round(config.branch_budget / (config.tasks_per_update * config.group_size)), 1)


def _rollout(config: TrainConfig) -> dict[str, Any]:
    rollout = "actor_rollout_ref.rollout"
    return {
        "actor_rollout_ref.model.path": config.model,
        f"{rollout}.n": config.group_size,
        f"{rollout}.temperature": config.temperature,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.val_kwargs.temperature": config.eval_temperature,
        f"{rollout}.val_kwargs.do_sample": config.eval_temperature > 0,
    }


def _actor(config: TrainConfig) -> dict[str, Any]:
    objective = config_objective(config)
    actor = "actor_rollout_ref.actor"
    mode, aggregation = _loss(objective)
    values: dict[str, Any] = {
        **_optimizer(f"{actor}.optim", config.learning_rate, config),
        f"{actor}.ppo_epochs": config_update(config).epochs,
        f"{actor}.ppo_mini_batch_size": config.tasks_per_update,
        f"{actor}.policy_loss.loss_mode": mode,
        f"{actor}.loss_agg_mode": aggregation,
        f"{actor}.clip_ratio_low": objective.clip_low,
        f"{actor}.clip_ratio_high": objective.clip_high,
        f"{actor}.clip_ratio_c": objective.dual_clip or _NO_DUAL_CLIP,
        f"{actor}.entropy_coeff": objective.entropy_coef,
        f"{actor}.use_kl_loss": objective.penalty_coef > 0,
    }
    if objective.aggregation == "seq-mean-token-sum-norm":
        values[f"{actor}.loss_scale_factor"] = objective.norm_length
    if objective.penalty_coef > 0:
        values[f"{actor}.kl_loss_type"] = _PENALTIES[objective.penalty]
        values[f"{actor}.kl_loss_coef"] = objective.penalty_coef
    return values


def _critic(config: TrainConfig) -> dict[str, Any]:
    """verl's critic, a model of its own that starts as the policy does; ours is a head on the policy's trunk."""
    objective = config_objective(config)
    if not objective.value_coef:
        return {}
    return {
        "critic.enable": True,
        "critic.model.path": config.model,
        **_optimizer("critic.optim", round(_CRITIC_RATE * config.learning_rate, 15), config),
        "critic.cliprange_value": objective.value_clip,
        "critic.loss_agg_mode": "seq-mean-token-mean",  # every turn counts once
    }


def _optimizer(prefix: str, rate: float, config: TrainConfig) -> dict[str, Any]:
    values = {f"{prefix}.lr": rate, f"{prefix}.clip_grad": config_update(config).max_grad_norm}
    if config.final_learning_rate == config.learning_rate:
        return values
    # verl knows no linear decay; half a cosine ends at the same rate.
    ratio = config.final_learning_rate / config.learning_rate
    return {**values, f"{prefix}.lr_scheduler_type": "cosine", f"{prefix}.min_lr_ratio": ratio}


def _loss(objective: Objective) -> tuple[str, str]:
    """Policy loss and aggregation."""
    if objective.surrogate == "turn-clip":
        return "stepcredit_turn_clip", "seq-mean-token-mean"
    if objective.aggregation == "seq-mean-token-sum":
        return "stepcredit_complete_turn", objective.aggregation
    return "vanilla", objective.aggregation


def _spelled(value: Any) -> str:
    """A value as Hydra reads it."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_spelled(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(_spelled, value)) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not _BARE.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
