"""Loaded by every verl process of the test (``VERL_USE_EXTERNAL_MODULES``)."""

from __future__ import annotations

from stepcredit.integrations.verl.watching import after_import
from verl_cpu import platform  # noqa: F401  registers itself, before anything asks for a platform
from verl_cpu.record import watch


def _register() -> None:
    from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)
    RolloutReplicaRegistry.register("cpu_hf", _replica)
    after_import("verl.trainer.ppo.v1.trainer_base", watch)
    base._ROLLOUT_REGISTRY[("cpu_hf", "async")] = "verl_cpu.server.HfAdapter"


def _replica() -> type:
    from verl_cpu.server import HfReplica

    return HfReplica


_register()
