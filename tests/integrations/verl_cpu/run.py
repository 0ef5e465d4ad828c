"""Start verl's own ``main_ppo`` on two shared cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]

_ENGINES = ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp")

MACHINE = (
    "trainer.device=cpu",
    "trainer.n_gpus_per_node=1",
    "trainer.nnodes=1",
    "trainer.logger=[console]",
    "trainer.val_before_train=False",
    "trainer.resume_mode=disable",
    "trainer.save_freq=-1",
    "ray_kwargs.ray_init.num_cpus=16",
    "+ray_kwargs.ray_init.num_gpus=1",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.rollout.name=cpu_hf",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "actor_rollout_ref.rollout.disable_log_stats=True",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8",
    "critic.strategy=fsdp2",
    "critic.ppo_micro_batch_size_per_gpu=8",
    "critic.model.use_remove_padding=False",
    "critic.model.enable_gradient_checkpointing=False",
    *(f"{engine}.use_torch_compile=False" for engine in _ENGINES),
    *(f"{engine}.model_dtype=fp32" for engine in _ENGINES),
    *(f"+{engine}.mixed_precision.{part}_dtype=fp32" for engine in _ENGINES for part in ("param", "reduce", "buffer")),
)
"""Overrides that a machine without an accelerator needs; none of them is about credit."""


def main_ppo(overrides: list[str], folder: Path, seconds: int) -> str:
    """Run to the end; what was printed.

    Raises:
        AssertionError: verl failed; with the end of what it printed.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu.register",
        "VERL_PLATFORM": "cpu",
        "RAY_AUTH_MODE": "disabled",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "HYDRA_FULL_ERROR": "1",
        "OMP_NUM_THREADS": "1",
        "VERL_CPU_RECORD": str(folder / "record"),
    }
    command = [sys.executable, "-W", "ignore", "-m", "verl.trainer.main_ppo", *MACHINE, *overrides]
    printed = folder / "printed.txt"
    with printed.open("w", encoding="utf-8") as out:
        # A session of its own: Ray's processes end with it, whatever happens.
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True)
        try:
            code = process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    text = printed.read_text(encoding="utf-8")
    assert code == 0, text[-6000:]
    return text
