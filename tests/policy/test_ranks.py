"""Two processes make the same update as one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

from policy.conftest import COMPACT, make_double, play, random_advantage
from stepcredit.core.episodes import Episode, Turn
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy import ranks
from stepcredit.policy.settings import Objective, Replay, Returns, UpdateSettings
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.types import Response, Rollout

RANKS = 2
OBJECTIVE = Objective(aggregation="seq-mean-token-sum", entropy_coef=0.01, value_coef=0.5)
SETTINGS = UpdateSettings(
    objective=OBJECTIVE, epochs=2, minibatch=3, lr=1e-3, imitation_coef=0.3, micro_batch_tokens=60
)


def updated(model: Path, folder: Path) -> dict[str, float]:
    """Play, update and keep the result; what every rank does, and a lone process as well."""
    torch.set_num_threads(1)
    suite = ChainSuite(length=2, doors=3)
    policy = TransformerPolicy.from_folder(model, COMPACT, workers=1)
    make_double(policy.model.module)
    rollouts = play(policy, suite, episodes=8)
    advantage = random_advantage(rollouts)
    returns = Returns(target=advantage + 1, value=policy.values(rollouts))
    spoken = Rollout(
        Episode("t", "d", (Turn("A red lamp burns.", "wait"),), "", True), "Leave.", (Response("wait", (), 0.0),)
    )
    metrics = policy.update(rollouts, advantage, SETTINGS, [0], Replay([spoken], np.ones(1)), returns)
    named = {name: value.detach() for name, value in policy.model.module.named_parameters()}
    assert policy.critic is not None
    head = {f"critic.{place}": value.detach() for place, value in enumerate(policy.critic.parameters)}
    save_file({**named, **head}, folder / f"{dist.get_rank() if dist.is_initialized() else 'alone'}.safetensors")
    return metrics


def one_rank(rank: int, model: Path, folder: Path) -> None:
    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=timedelta(seconds=120))
    try:
        metrics = updated(model, folder)
        alike = ranks.gather([metrics], RANKS)
        assert alike == [metrics] * RANKS
        if rank == 0:
            torch.save(metrics, folder / "metrics.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_an_update_does_not_depend_on_the_number_of_ranks(tiny_folder: Path, tmp_path: Path) -> None:
    """Float64: parameters of model and critic, and every metric, up to the order of a sum."""
    alone = updated(tiny_folder, tmp_path)
    mp.spawn(one_rank, (tiny_folder, tmp_path), nprocs=RANKS)
    together = torch.load(tmp_path / "metrics.pt", weights_only=True)
    assert together == pytest.approx(alone, rel=1e-9)
    expected = load_file(tmp_path / "alone.safetensors")
    start = load_file(tiny_folder / "model.safetensors")
    moved = [name for name in start if not torch.allclose(start[name].double(), expected[name])]
    assert moved
    for rank in range(RANKS):
        got = load_file(tmp_path / f"{rank}.safetensors")
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.allclose(got[name], value, rtol=1e-9, atol=1e-10), name


def test_a_lone_process_computes_everything() -> None:
    assert ranks.share([1, 2, 3]) == [1, 2, 3]
    assert ranks.gather(["a", "b"], 2) == ["a", "b"]
    parameter = torch.nn.Parameter(torch.zeros(2))
    gradients = [None, torch.ones(2)]
    assert ranks.add_up(gradients, [parameter, parameter]) is gradients
