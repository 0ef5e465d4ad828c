"""Loaded by every verl process of the test (``VERL_USE_EXTERNAL_MODULES``)."""

from __future__ import annotations

from typing import Any

from stepcredit.integrations.verl.watching import after_import
from verl_cpu import platform  # noqa: F401  registers itself, before anything asks for a platform
from verl_cpu.record import watch


def _register() -> None:
    from verl.utils import model
    from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)
    EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithValueHead)
    model.load_valuehead_model = _value_model
    RolloutReplicaRegistry.register("cpu_hf", _replica)
    after_import("verl.trainer.ppo.v1.trainer_base", watch)
    base._ROLLOUT_REGISTRY[("cpu_hf", "async")] = "verl_cpu.server.HfAdapter"


def _value_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """As verl's own, which asks for flash attention."""
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, attn_implementation="eager"
    )


def _replica() -> type:
    from verl_cpu.server import HfReplica

    return HfReplica


_register()
