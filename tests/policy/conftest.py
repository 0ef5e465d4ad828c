"""A tiny model of the chain environment, built once, and ways to play it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.settings import UpdateSettings
from stepcredit.policy.tiny import build_tiny_model
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import Rollout

COMPACT = PromptTemplate("{goal}\n{observation}\n>", append_only=True)
WINDOW = PromptTemplate("{goal}\n{history}\n{observation}\n>", history=2)

MakePolicy = Callable[..., TransformerPolicy]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def suite() -> ChainSuite:
    return ChainSuite(length=2, doors=3)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, suite: ChainSuite) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    build_tiny_model(folder, chain_texts(suite), ["red door", "blue door"], seed=3, width=32, heads=2)
    return folder


@pytest.fixture
def make_policy(tiny_folder: Path) -> MakePolicy:
    def make(template: PromptTemplate = COMPACT, *, double: bool = False, **options: object) -> TransformerPolicy:
        policy = TransformerPolicy.from_folder(tiny_folder, template, **options)
        if double:
            make_double(policy.model.module)
        return policy

    return make


def make_double(module: nn.Module) -> None:
    """Float64 throughout; the norms of transformers would round to float32 on the way."""
    module.double()
    for part in module.modules():
        if hasattr(part, "variance_epsilon"):
            part.forward = partial(_plain_norm, part)


def _plain_norm(norm: Any, hidden: Tensor) -> Tensor:
    return norm.weight * hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + norm.variance_epsilon)


def chain_texts(suite: ChainSuite) -> list[str]:
    texts = []
    for task in suite.tasks("train")[:20]:
        observation, info = suite.make(task).reset()
        texts += [task.goal, observation, *info["admissible"]]
    return texts


def play(
    policy: TransformerPolicy, suite: ChainSuite, *, episodes: int = 6, temperature: float = 1.0, seed: int = 0
) -> tuple[Rollout, ...]:
    tasks = suite.tasks("train")[:episodes]
    collected = collect(policy, suite, tasks, group_size=1, horizon=5, seed=[seed], temperature=temperature)
    assert not collected.failures
    return collected.rollouts


def turn_count(rollouts: Sequence[Rollout]) -> int:
    return sum(len(rollout.responses) for rollout in rollouts)


def random_advantage(rollouts: Sequence[Rollout], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=turn_count(rollouts))


ONE_STEP = UpdateSettings(epochs=1, minibatch=1000, lr=1e-3)
