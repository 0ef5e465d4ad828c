"""Advantages by turn inside verl's V1 trainer.

verl's own step still runs first, so that reward models, rollout correction and its metrics keep working; what it wrote
as ``advantages`` is then replaced. Rows come from ``extra_fields["stepcredit"]``, see ``engines.rows``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import InputError, OptionError
from stepcredit.core.files import write_episodes
from stepcredit.credit.catalogue import find_method
from stepcredit.integrations.engines.rows import Row, RowCredit, credit_rows, needed_columns
from stepcredit.integrations.verl.plugin import PREFIX, replaced

ROW = "stepcredit"
"""The key of ``extra_fields`` that holds a row's turn."""

TASKS = "stepcredit.integrations.verl.tasks"
"""The module of our dataset, whose items are played by our agent loop."""


def change(trainer: type[Any]) -> None:
    """Let a trainer class compute our advantages where the configuration asks for them; all else stays stock."""
    stock_init, stock_advantage = trainer.__init__, trainer._compute_advantage

    def initialise(self: Any, config: DictConfig, *args: Any, **kwargs: Any) -> None:
        if _is_ours(config):
            check_config(config)
        stock_init(self, config, *args, **kwargs)

    def compute_advantage(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        if not _is_ours(self.config):
            return stock_advantage(self, batch, metrics)
        token = replaced.set(True)
        try:
            batch = stock_advantage(self, batch, metrics)
        finally:
            replaced.reset(token)
        return replace_advantages(self, batch, metrics)

    trainer.__init__ = initialise
    trainer._compute_advantage = compute_advantage


def method_of(algorithm: DictConfig) -> tuple[str, dict[str, Any]]:
    """Method and options that ``algorithm.adv_estimator`` and ``algorithm.stepcredit`` name.

    Raises:
        OptionError: no such method or option, or a value that does not fit.
    """
    name = str(algorithm.adv_estimator).removeprefix(PREFIX)
    given = OmegaConf.to_container(algorithm.get("stepcredit") or OmegaConf.create({}), resolve=True)
    assert isinstance(given, dict)
    texts = {str(key): "off" if value is None else str(value) for key, value in given.items()}
    return name, find_method(name).parse_options(texts)


def check_config(config: DictConfig) -> None:
    """Refuse what would not mean what it says, before anything is rolled out.

    Raises:
        OptionError: no such method or option; a method whose numbers nothing supplies; a KL penalty in the reward,
            which turn rewards would not contain; or an allocator that worker processes would copy.
    """
    name, _ = method_of(config.algorithm)
    needed = needed_columns(name)
    if "values" in needed and not config.critic.enable:
        raise OptionError(
            f"Method {name!r} takes the values of verl's critic; set critic.enable=True and critic.model.path."
        )
    if "hindsight" in needed and str(config.data.get("custom_cls", {}).get("path", "")).endswith(TASKS):
        raise OptionError(
            f"Method {name!r} needs 'hindsight' for every turn, which stepcredit's agent loop does not score; "
            f"use an agent loop of your own that does."
        )
    if config.algorithm.use_kl_in_reward:
        raise OptionError(
            "algorithm.use_kl_in_reward changes token rewards, and credit is computed from turn rewards; "
            "use actor_rollout_ref.actor.use_kl_loss=True instead."
        )
    settings = config.data.get("stepcredit") or {}
    if settings.get("root", "shuffle") != "shuffle" and (
        config.data.dataloader_num_workers or config.trainer.v1.trainer_mode != "sync"
    ):
        raise OptionError(
            "data.stepcredit.root chooses tasks from the outcomes of the last update; "
            "set data.dataloader_num_workers=0 and trainer.v1.trainer_mode=sync."
        )


def replace_advantages(trainer: Any, batch: Any, metrics: dict[str, Any]) -> Any:
    """Write our advantages over verl's, and take rows without a score out of the loss.

    Raises:
        InputError: a row that is no padding has no turn.
    """
    method, options = method_of(trainer.config.algorithm)
    fields = ["extra_fields", "response_mask", "loss_mask", "entropy", "values"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    masks = data["response_mask"].unbind()
    rows = batch_rows(batch, data["extra_fields"])
    if "entropy" in data:
        rows = with_entropy(rows, data["entropy"].unbind(), masks)
    if "values" in data:
        rows = with_values(rows, data["values"].unbind(), masks)
    credit = credit_rows(rows, method, options)
    targets = critic_targets(rows, credit.advantage) if "values" in needed_columns(method) else credit.advantage
    scored = (~np.isnan(credit.advantage)).tolist()
    new = {
        "advantages": _on_tokens(credit.advantage, masks),
        "returns": _on_tokens(targets, masks),
        "response_mask": _jagged([mask * keep for mask, keep in zip(masks, scored, strict=True)]),
        "loss_mask": _jagged([mask * keep for mask, keep in zip(data["loss_mask"].unbind(), scored, strict=True)]),
    }
    tq.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(new, batch_size=len(batch.keys))
    )
    metrics.update(credit_metrics(rows, credit))
    curriculum = getattr(trainer.train_dataset, "curriculum", None)
    if curriculum is not None:
        curriculum.observe(credit.episodes)
    if folder := trainer.config.trainer.get("rollout_data_dir"):
        # The asynchronous modes make several updates a step.
        part = f"-{trainer.local_trigger_step}" if trainer.parameter_sync_step > 1 else ""
        path = Path(folder) / "stepcredit" / f"{trainer.global_steps:06d}{part}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_episodes(path, credit.episodes)
    return batch


def batch_rows(batch: Any, extra_fields: Sequence[Any]) -> list[Row | None]:
    """The turn of every row; None for padding, whose fields are copies of a real row's.

    Raises:
        InputError: a row that is no padding has no turn.
    """
    rows: list[Row | None] = []
    for key, tag, fields in zip(batch.keys, batch.tags, extra_fields, strict=True):
        if tag.get("is_padding"):
            rows.append(None)
            continue
        plain = getattr(fields, "data", fields)
        if ROW not in plain:
            raise InputError(
                f"Row {key} has no turn in extra_fields[{ROW!r}]; "
                f"use the agent loop 'stepcredit', or let your own fill it."
            )
        rows.append(plain[ROW])
    return rows


def with_entropy(
    rows: Sequence[Row | None], entropy: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]
) -> list[Row | None]:
    """Rows that do not record their entropy get the actor's: the mean over their response tokens, nats."""
    filled: list[Row | None] = []
    for row, own, mask in zip(rows, entropy, masks, strict=True):
        if row is not None and row.get("entropy") is None and bool(mask.any()):
            row = {**row, "entropy": float(own[mask.bool()].mean())}
        filled.append(row)
    return filled


def with_values(
    rows: Sequence[Row | None], values: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]
) -> list[Row | None]:
    """Rows with the critic's V(s_t): its value where the first response token was still to come.

    verl keeps a value per response token, each read off the token before it, so the first one knows the whole prompt
    and nothing of the response.
    """
    return [
        None if row is None else {**row, "value": float(own[int(mask.argmax())])}
        for row, own, mask in zip(rows, values, masks, strict=True)
    ]


def critic_targets(rows: Sequence[Row | None], advantage: FloatArray) -> FloatArray:
    """``[R]`` what the critic learns, A_t + P_t + V_t: GAE's own return, which leaves penalties out."""
    before = np.array([0.0 if row is None else row["value"] + (row.get("penalty") or 0.0) for row in rows])
    targets: FloatArray = advantage + before
    return targets


def credit_metrics(rows: Sequence[Row | None], credit: RowCredit) -> dict[str, float]:
    """What verl logs beside its own metrics."""
    roots = [episode for episode in credit.episodes if episode.parent is None]
    metrics: dict[str, float] = {
        "stepcredit/rows": float(sum(row is not None for row in rows)),
        "stepcredit/padding_rows": float(sum(row is None for row in rows)),
        "stepcredit/unscored_rows": float(np.isnan(credit.advantage).sum()),
        "stepcredit/episodes": float(len(credit.episodes)),
        "stepcredit/success": float(np.mean([episode.success for episode in roots])) if roots else 0.0,
    }
    sizes: Mapping[str, float] = {} if credit.credit is None else credit.credit.diagnostics["mean_abs"]
    return metrics | {f"stepcredit/mean_abs_{name}": float(value) for name, value in sizes.items()}


def _is_ours(config: DictConfig) -> bool:
    return str(config.algorithm.adv_estimator).startswith(PREFIX)


def _on_tokens(values: FloatArray, masks: Sequence[torch.Tensor]) -> torch.Tensor:
    """A row's number on each of its response tokens, 0 on those of rows without one."""
    return _jagged([mask.float() * float(value) for mask, value in zip(masks, np.nan_to_num(values), strict=True)])


def _jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
