"""Writes down what the trainer is about to learn from, as verl itself holds it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "VERL_CPU_RECORD"
"""Environment variable: where to write ``STEP.json``, one record a row."""


def watch(module: ModuleType) -> None:
    """Record every batch of a trainer right before its actor is updated."""
    stock = module.PPOTrainer._update_actor

    def update_actor(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        write(Path(os.environ[FOLDER]) / f"{self.global_steps}.json", batch)
        return stock(self, batch, metrics)

    module.PPOTrainer._update_actor = update_actor


def write(path: Path, batch: Any) -> None:
    import transfer_queue as tq

    fields = ["advantages", "returns", "values", "response_mask", "loss_mask", "extra_fields", "prompts", "responses"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    rows = [
        {
            "key": key,
            "padding": bool(tag.get("is_padding")),
            "turn": getattr(data["extra_fields"][index], "data", data["extra_fields"][index])["stepcredit"],
            **{name: data[name][index].tolist() for name in fields if name != "extra_fields" and name in data},
        }
        for index, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
