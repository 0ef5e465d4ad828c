"""Supervised fine-tuning on a chat file: cosine decay, warm-up, held-out loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import InputError, OptionError
from stepcredit.policy.settings import ImitateSettings
from stepcredit.rollouts.types import Rollout
from stepcredit.training.chats import Chat, chat_rollouts
from stepcredit.training.monitor import Monitor

_FLOOR = 0.1
"""Share of the highest learning rate that the cosine ends at."""


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """How a model is tuned.

    Attributes:
        epochs: passes over the conversations.
        lr: AdamW's highest learning rate.
        warmup: share of all steps over which the rate rises from 0.
        minibatch: conversations an optimiser step.
        held_out: share of the tasks whose conversations are only measured, in [0, 1).
        micro_batch_tokens: tokens in one forward pass.
        seed: fixes the split and the order.
    """

    epochs: int = 3
    lr: float = 1e-5
    warmup: float = 0.03
    minibatch: int = 16
    held_out: float = 0.1
    micro_batch_tokens: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("minibatch", 1), ("micro_batch_tokens", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}; expected at least {least}.")
        for name in ("warmup", "held_out"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; expected a share from 0 up to, not including, 1.")
        if not 0 < self.lr < math.inf:
            raise OptionError(f"lr is {self.lr}; expected a finite number above 0.")


class Pupil(Protocol):
    """A policy that learns from demonstrations."""

    def imitate(
        self, rollouts: Sequence[Rollout], weight: FloatArray, settings: ImitateSettings, seed: Sequence[int]
    ) -> dict[str, float]:
        """One epoch of supervised learning."""
        ...

    def response_nll(self, rollouts: Sequence[Rollout], weight: FloatArray) -> float:
        """Mean −log π per response token, nats."""
        ...


def split_chats(chats: Sequence[Chat], share: float, seed: int) -> tuple[list[Chat], list[Chat]]:
    """Conversations to learn from, and those of a drawn share of the tasks, which are only measured.

    At least one task is held out where ``share`` is above 0 and there are two or more.
    """
    tasks = list(dict.fromkeys(chat.task for chat in chats))
    count = min(max(round(share * len(tasks)), 1), len(tasks) - 1) if share else 0
    drawn = np.random.default_rng(seed).permutation(len(tasks))[:count]
    held = {tasks[index] for index in drawn}
    return [chat for chat in chats if chat.task not in held], [chat for chat in chats if chat.task in held]


def rate(step: int, steps: int, settings: TuningSettings) -> float:
    """Learning rate of a step: η·(s+1)/w for the w first steps, then η·(f + (1−f)·(1 + cos πx)/2), x from 0 to 1.

    w = ⌈warmup·steps⌉, x = (s − w)/(steps − w), f = 0.1.
    """
    rising = math.ceil(settings.warmup * steps)
    if step < rising:
        return settings.lr * (step + 1) / rising
    done = (step - rising) / max(steps - rising, 1)
    return settings.lr * (_FLOOR + (1 - _FLOOR) * (1 + math.cos(math.pi * done)) / 2)


def fine_tune(
    pupil: Pupil, chats: Sequence[Chat], settings: TuningSettings, monitor: Monitor
) -> list[dict[str, float]]:
    """Tune a policy whose template is ``CHAT``.

    Args:
        pupil: who learns.
        chats: the conversations.
        settings: how.
        monitor: where progress is shown.

    Returns:
        One line an epoch, the first before any step: ``epoch``, ``steps``, ``response_nll`` (mean over the steps that
        the epoch took, each before it was taken; absent where it took none), ``held_out_nll`` (after the epoch, where
        something is held out), ``skipped_steps``.

    Raises:
        InputError: nothing to learn from.
    """
    learnt, held = split_chats(chats, settings.held_out, settings.seed)
    rollouts, weight = chat_rollouts(learnt)
    if not weight.any():
        raise InputError("No answer of the demonstrations has a weight above 0; there is nothing to learn.")
    ends = np.cumsum([0, *(len(rollout.responses) for rollout in rollouts)])
    measured = chat_rollouts(held)
    per_epoch = -(-len(rollouts) // settings.minibatch)
    steps = settings.epochs * per_epoch
    lines: list[dict[str, float]] = [_line(pupil, measured, {"epoch": 0, "steps": 0})]
    monitor.stage("steps", steps)
    step = 0
    for epoch in range(settings.epochs):
        order = np.random.default_rng((settings.seed, epoch + 1)).permutation(len(rollouts))
        metrics = []
        for first in range(0, len(order), settings.minibatch):
            chosen = order[first : first + settings.minibatch]
            metrics.append(
                pupil.imitate(
                    [rollouts[index] for index in chosen],
                    np.concatenate([weight[ends[index] : ends[index + 1]] for index in chosen]),
                    ImitateSettings(
                        lr=rate(step, steps, settings),
                        minibatch=len(chosen),
                        observation_weight=0.0,
                        micro_batch_tokens=settings.micro_batch_tokens,
                    ),
                    (settings.seed, step),
                )
            )
            step += 1
            taken = _taken(metrics[-1:])
            monitor.advance(step, f"response_nll {taken[0]:.3f}" if taken else "step skipped")
        line: dict[str, float] = {"epoch": epoch + 1, "steps": step}
        if taken := _taken(metrics):
            line["response_nll"] = float(np.mean(taken))
        line["skipped_steps"] = sum(one["skipped_steps"] for one in metrics)
        lines.append(_line(pupil, measured, line))
    return lines


def _taken(metrics: Sequence[Mapping[str, float]]) -> list[float]:
    """``response_nll`` of the steps that were taken: not of a broken one, nor of one that had no token to learn."""
    return [one["response_nll"] for one in metrics if one["tokens"] and not one["skipped_steps"]]


def _line(pupil: Pupil, measured: tuple[list[Rollout], FloatArray], line: dict[str, float]) -> dict[str, float]:
    rollouts, weight = measured
    return {**line, "held_out_nll": pupil.response_nll(rollouts, weight)} if rollouts else line
