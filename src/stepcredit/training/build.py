"""From the recipe to a policy and its settings: the edge where configuration is unpacked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import missing_extra
from stepcredit.environments.protocol import TaskSuite
from stepcredit.policy.settings import ImitateSettings, Replay, UpdateSettings
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.types import Policy, Rollout
from stepcredit.training.config import TrainConfig, config_objective
from stepcredit.training.demonstrations import demonstrate
from stepcredit.training.tasks import spread_over_families, training_tasks


class Learner(Policy, Protocol):
    """A policy that can be trained, saved and restored."""

    def update(
        self,
        rollouts: Sequence[Rollout],
        advantage: FloatArray,
        settings: UpdateSettings,
        seed: Sequence[int],
        replay: Replay | None = None,
    ) -> dict[str, float]:
        """One update: ``settings.epochs`` passes over the rollouts; ``advantage`` ``[N]``, NaN = not scored."""
        ...

    def imitate(
        self, rollouts: Sequence[Rollout], weight: FloatArray, settings: ImitateSettings, seed: Sequence[int]
    ) -> dict[str, float]:
        """One epoch of supervised learning; ``weight`` ``[N]``, 0 masks a turn."""
        ...

    def set_reference(self, folder: Path) -> None:
        """The saved policy that reference penalties compare with."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything an exact continuation needs."""
        ...

    def load(self, folder: Path) -> None:
        """Restore what ``save`` wrote."""
        ...


VOCABULARY_TASKS = 200
"""Training tasks, families in turn, whose texts give the tiny model its words."""


def build_policy(config: TrainConfig, suite: TaskSuite, folder: Path) -> Learner:
    """The recipe's policy with its initial weights.

    Args:
        config: the recipe.
        suite: gives the tiny model its vocabulary.
        folder: run folder; the tiny model is made once, in ``FOLDER/model``.

    Raises:
        MissingExtraError: a neural model without the extra ``train``.
        InputError: no such model folder, or no tokenizer in it.
    """
    if config.model == "linear":
        from stepcredit.policy.linear import LinearPolicy

        return LinearPolicy()
    try:
        from stepcredit.policy.tiny import build_tiny_model
        from stepcredit.policy.transformer import TransformerPolicy
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "train", f"The model {config.model!r}") from None
    source: str | Path = config.model
    if config.model == "tiny":
        source = tiny = folder / "model"
        if not (tiny / "tokenizer.json").exists():
            build_tiny_model(tiny, _vocabulary_texts(config, suite), suite.entities(), config.seed)
    template = load_template(config.prompt, response_format=config.response_format, history=config.history)
    return TransformerPolicy.from_folder(
        source, template, constrained=config.constrained, max_response_tokens=config.max_response_tokens
    )


def _vocabulary_texts(config: TrainConfig, suite: TaskSuite) -> Iterator[str]:
    """What the expert sees and could say on some training tasks of every family."""
    tasks = spread_over_families(training_tasks(suite), VOCABULARY_TASKS)
    rollouts, _ = demonstrate(suite, tasks, noise=0.5, horizon=config.horizon, seed=(0,))
    for rollout in rollouts:
        yield rollout.goal
        yield rollout.episode.final_observation
        for turn in rollout.episode.turns:
            yield turn.observation
            yield from turn.extra["admissible"]


def update_settings(config: TrainConfig, update: int) -> UpdateSettings:
    """Settings of one update; the learning rate falls linearly from the first to the last."""
    done = update / max(config.updates - 1, 1)
    return UpdateSettings(
        objective=config_objective(config),
        lr=config.learning_rate + done * (config.final_learning_rate - config.learning_rate),
        epochs=config.epochs,
        minibatch=config.minibatch,
        imitation_coef=config.imitation_weight,
    )


IMITATION_MINIBATCH = 16
"""Demonstrations an optimiser step; half the size learns as much a step, so twice as much a second."""


def imitate_settings(config: TrainConfig, epoch: int) -> ImitateSettings:
    """Settings of one imitation epoch; the learning rate falls to a tenth along half a cosine, and then stays."""
    done = min(epoch / max(config.imitation_epochs, 1), 1.0)
    lr = config.imitation_learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))
    return ImitateSettings(lr=lr, minibatch=IMITATION_MINIBATCH)
