"""From the recipe to a policy and its settings: the edge where configuration is unpacked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import missing_extra
from stepcredit.environments.protocol import TaskSuite
from stepcredit.policy.settings import ImitateSettings, Replay, Returns, UpdateSettings
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.types import Policy, Rollout
from stepcredit.training.config import TrainConfig, config_model_options, config_update
from stepcredit.training.demonstrations import demonstrate
from stepcredit.training.run_folder import write_folder
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
        returns: Returns | None = None,
    ) -> dict[str, float]:
        """One update: ``settings.epochs`` passes over the rollouts; ``advantage`` ``[N]``, NaN = not scored."""
        ...

    def values(self, rollouts: Sequence[Rollout]) -> FloatArray:
        """The critic's value of the state before every turn, ``[N]``."""
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


@runtime_checkable
class Described(Protocol):
    """A policy that can say what it is."""

    def describe(self) -> dict[str, Any]:
        """Architecture, sizes, types, device, as plain values."""
        ...


VOCABULARY_TASKS = 200
"""Training tasks, families in turn, whose texts give the tiny model its words."""


def check_installed(config: TrainConfig) -> None:
    """Look for what the recipe's model needs, importing nothing.

    Raises:
        MissingExtraError: a neural model without the extra ``train``.
    """
    for package in () if config.model == "linear" else ("torch", "transformers", "safetensors"):
        if find_spec(package) is None:
            raise missing_extra(package, "train", f"The model {config.model!r}")


def build_policy(config: TrainConfig, suite: TaskSuite, folder: Path) -> Learner:
    """The recipe's policy with its initial weights.

    Args:
        config: the recipe.
        suite: gives the tiny model its vocabulary.
        folder: run folder; the tiny model is made once, in ``FOLDER/model``.

    Raises:
        MissingExtraError: a neural model without the extra ``train``, or adapters without ``lora``.
        InputError: no such model folder, or no tokenizer in it.
        OptionError: a model that cannot run on packed rows, or a device that is not there.
    """
    if config.model == "linear":
        from stepcredit.policy.linear import LinearPolicy

        return LinearPolicy()
    check_installed(config)
    from stepcredit.policy.tiny import build_tiny_model
    from stepcredit.policy.transformer import TransformerPolicy

    source: str | Path = config.model
    if config.model == "tiny":
        source = tiny = folder / "model"
        if not tiny.exists():
            texts = _vocabulary_texts(config, suite)
            write_folder(tiny, lambda partial: build_tiny_model(partial, texts, suite.entities(), config.seed))
    template = load_template(config.prompt, response_format=config.response_format, history=config.history)
    options = config_model_options(config)
    if config.model == "tiny" and options.device == "auto":
        options = replace(options, device="cpu")  # too small to gain from anything else, and the CPU repeats its bits
    return TransformerPolicy.from_folder(
        source,
        template,
        model_options=options,
        seed=config.seed,
        constrained=config.constrained,
        max_response_tokens=config.max_response_tokens,
    )


STATED = "policy.json"
"""File of the run folder that says what was trained, in which types and on which device."""


def state_policy(policy: Learner, folder: Path, say: Callable[[str], None]) -> None:
    """Say what is trained and on what, to the reader and in ``FOLDER/policy.json``; nothing of it is in the recipe."""
    if isinstance(policy, Described):
        facts = policy.describe()
        say(in_words(facts))
        (folder / STATED).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def in_words(facts: Mapping[str, Any]) -> str:
    """What a language model's ``describe`` tells, as one line."""
    trained = f"{facts['trained_parameters']:,} of {facts['parameters']:,} parameters trained"
    types = f"{facts['weights']} weights, {facts['arithmetic']} arithmetic"
    place = f"on {facts['device']} with {facts['workers']} worker(s), context {facts['context']:,} tokens"
    return f"Model: {facts['architecture']}, {trained}, {types}, attention by {facts['attention']}, {place}."


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
    lr = config.learning_rate + done * (config.final_learning_rate - config.learning_rate)
    return replace(config_update(config), lr=lr)


IMITATION_MINIBATCH = 16
"""Demonstrations an optimiser step at most; half the size learns as much a step, so twice as much a second."""


OBSERVATION_WEIGHT = 0.1
"""Weight of the loss on what is observed, for the tiny model: it learns language too. A pretrained one knows it."""


def imitate_settings(config: TrainConfig, epoch: int) -> ImitateSettings:
    """Settings of one imitation epoch; the learning rate falls to a tenth along half a cosine, and then stays."""
    update = config_update(config)
    done = min(epoch / max(config.imitation_epochs, 1), 1.0)
    return ImitateSettings(
        lr=config.imitation_learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))),
        minibatch=min(IMITATION_MINIBATCH, update.minibatch),
        observation_weight=OBSERVATION_WEIGHT if config.model == "tiny" else 0.0,
        micro_batch_tokens=update.micro_batch_tokens,
    )
