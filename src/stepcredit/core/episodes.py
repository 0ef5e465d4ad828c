"""Episode and Turn: what happened, exactly as a rollout file stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the policy saw ``observation`` and the environment executed ``action``.

    ``reward`` is the environment's reward for this turn and ``penalty`` (≥ 0) a local cost charged to this turn only,
    both in reward units. ``nll`` is the mean negative log-likelihood per response token under the behaviour policy and
    ``entropy`` the mean token entropy, both in nats. ``state`` is the state key where it is not the observation.
    ``extra`` keeps every field the format does not name (``response``, ``admissible``, …) untouched.
    """

    observation: str
    action: str
    reward: float = 0.0
    penalty: float = 0.0
    valid: bool = True
    nll: float | None = None
    logprobs: tuple[float, ...] | None = None
    entropy: float | None = None
    state: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def state_key(self) -> str:
        """The state key: ``state`` where given, else the observation."""
        return self.observation if self.state is None else self.state

    @property
    def mean_nll(self) -> float | None:
        """``nll`` where given, else −mean(``logprobs``); None where neither is known."""
        if self.nll is not None:
            return self.nll
        if self.logprobs:
            return -sum(self.logprobs) / len(self.logprobs)
        return None


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a branch left its parent: its first turn was taken at the state before ``turn`` of ``episode``.

    ``turn`` is 0-based and counts the parent's own listed turns.
    """

    episode: str
    turn: int


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode of a task group: a root (``parent`` is None) or a branch that lists only its new turns.

    ``final_observation`` is what the environment showed after the last turn, ``success`` the verifier's outcome of the
    whole physical path, ``score`` a graded outcome in [0, 1], ``stop`` the reason the episode ended.
    """

    task: str
    episode: str
    turns: tuple[Turn, ...]
    final_observation: str
    success: bool
    parent: Parent | None = None
    score: float | None = None
    stop: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
