"""A policy without torch: softmax over the admissible commands, linear in hashed features.

With φ(c) the binary features of command c in its situation, w the weights and T the temperature,

    π(c) = exp(w·φ(c)/T) / Σ_b exp(w·φ(b)/T),   ∇_w log π(c) = (φ(c) − Σ_b π(b) φ(b)) / T.

A response is one token: the command. It needs environments that list their admissible commands and the response format
``action``; one core trains it in seconds, so it serves learning tests and studies over many seeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.core.errors import CheckpointError, InputError, NumericsError, OptionError
from stepcredit.core.objects import read_object
from stepcredit.policy.linear_features import FeatureHasher, Memory
from stepcredit.policy.linear_gradient import Batch, Decision, PolicyStep, likelihood_step, policy_step
from stepcredit.policy.settings import ImitateSettings, Replay, Returns, UpdateSettings
from stepcredit.rollouts.responses import concrete
from stepcredit.rollouts.types import PastTurn, Request, Response, Rollout

_STATE_FILE = "linear.npz"
_CONFIG_FILE = "linear.json"
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8

Choice = tuple[Decision, float, float]
"""A decision, its log-probability under the behaviour policy, and its advantage."""
Shown = tuple[Decision, float]
"""A demonstrated decision and its weight > 0."""


class LinearPolicy:
    """Softmax over admissible commands from hashed features, trained by Adam.

    Args:
        size: number of weights, a power of two; more weights, fewer features that collide.

    Raises:
        OptionError: ``size`` is not a power of two.
    """

    def __init__(self, size: int = 2**18) -> None:
        if size < 1 or size & (size - 1):
            raise OptionError(f"size is {size}; expected a power of two.")
        self.weights: FloatArray = np.zeros(size)
        self._moments: FloatArray = np.zeros((2, size))
        self._steps = 0
        self._reference: FloatArray | None = None
        self._hasher = FeatureHasher(size)

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> LinearSession:
        """Start answering a batch of episodes; ``seed`` and a request's key fix its draws, whoever else plays."""
        return LinearSession(self, self._hasher, seed, temperature)

    def update(
        self,
        rollouts: Sequence[Rollout],
        advantage: FloatArray,
        settings: UpdateSettings,
        seed: Sequence[int],
        replay: Replay | None = None,
        returns: Returns | None = None,
    ) -> dict[str, float]:
        """Improve the policy on its own rollouts; see ``linear_gradient.policy_step`` for the loss.

        Args:
            rollouts: what this policy played, at a temperature above 0.
            advantage: ``[N]`` per turn in rollout order; NaN where a turn is not scored.
            settings: how to update.
            seed: fixes the order of the minibatches.
            replay: demonstrations mixed in with weight ``settings.imitation_coef``.
            returns: unused; there is no critic.

        Returns:
            ``loss``, ``imitation_loss`` and ``grad_norm``, means over the optimiser steps; ``clip_share``,
            ``approx_kl`` and ``entropy``, means over turns; ``ratio_deviation``, the largest |ratio − 1| before the
            first step; ``turns``; ``skipped_steps``, whose gradient was not finite.

        Raises:
            InputError: ``advantage`` has another length, or a rollout was not sampled by this kind of policy.
            NumericsError: an advantage is infinite.
            OptionError: a reference penalty without a reference policy.
        """
        if settings.objective.penalty_coef and self._reference is None:
            raise OptionError("A reference penalty needs a reference policy; set one, or set penalty_coef to 0.")
        if np.isinf(advantage).any():
            raise NumericsError("An advantage is infinite; expected finite numbers, and NaN for turns not scored.")
        episodes = [
            list(_choices(rollout, values)) for rollout, values in _by_rollout(rollouts, advantage, "advantage")
        ]
        shown = self._shown(replay.rollouts, replay.weight) if replay and settings.imitation_coef else []
        steps: list[PolicyStep] = []
        imitation_losses: list[float] = []
        norms: list[float] = []
        for epoch in range(settings.epochs):
            batches = _minibatches(len(episodes), settings.minibatch, (*seed, epoch))
            order = np.random.default_rng((*seed, epoch, 1)).permutation(len(shown))
            for chosen, share in zip(batches, np.array_split(order, max(len(batches), 1)), strict=False):
                gradient = np.zeros_like(self.weights)
                if choices := [choice for index in chosen for choice in episodes[index]]:
                    steps.append(self._policy_step(choices, settings))
                    gradient += steps[-1].gradient
                if copied := [one for index in share for one in shown[index]]:
                    loss, pull = self._likelihood_step(copied)
                    imitation_losses.append(loss)
                    gradient += settings.imitation_coef * pull
                if choices or copied:
                    norms.append(self._descend(gradient, settings.lr, settings.max_grad_norm))
        return _metrics(steps, imitation_losses, norms, sum(map(len, episodes)))

    def values(self, rollouts: Sequence[Rollout]) -> FloatArray:
        """Refused.

        Raises:
            OptionError: always; a critic needs a neural model.
        """
        raise OptionError("The linear policy has no critic; choose a neural model, or an objective without value loss.")

    def imitate(
        self, rollouts: Sequence[Rollout], weight: FloatArray, settings: ImitateSettings, seed: Sequence[int]
    ) -> dict[str, float]:
        """One epoch of maximum likelihood on demonstrations: Σ w·(−log π)/Σ w over each minibatch.

        Args:
            rollouts: demonstrations; every turn's ``extra["admissible"]`` lists the commands it was chosen from.
            weight: ``[N]`` per turn in rollout order; 0 masks a turn.
            settings: how to learn; ``observation_weight`` has no meaning here.
            seed: fixes the order of the minibatches.

        Returns:
            ``imitation_loss`` and ``grad_norm``, means over the optimiser steps, and ``skipped_steps``.

        Raises:
            InputError: ``weight`` has another length, or a turn's command is not among its admissible commands.
        """
        shown = self._shown(rollouts, weight)
        losses: list[float] = []
        norms: list[float] = []
        for chosen in _minibatches(len(shown), settings.minibatch, seed):
            if copied := [one for index in chosen for one in shown[index]]:
                loss, gradient = self._likelihood_step(copied)
                losses.append(loss)
                norms.append(self._descend(gradient, settings.lr, settings.max_grad_norm))
        return {
            "imitation_loss": _mean(losses),
            "grad_norm": _mean([norm for norm in norms if np.isfinite(norm)]),
            "skipped_steps": float(sum(not np.isfinite(norm) for norm in norms)),
        }

    def set_reference(self, folder: Path) -> None:
        """Take a saved policy as the reference of penalties.

        Raises:
            CheckpointError: the folder does not hold a linear policy of this size.
        """
        self._reference, _, _ = _read(folder, len(self.weights))

    def save(self, folder: Path) -> None:
        """Write weights and optimiser state into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / _STATE_FILE, weights=self.weights, moments=self._moments)
        config = {"policy": "linear", "size": len(self.weights), "steps": self._steps}
        (folder / _CONFIG_FILE).write_text(json.dumps(config) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take over what ``save`` wrote, bit by bit.

        Raises:
            CheckpointError: the folder does not hold a linear policy of this size.
        """
        self.weights, self._moments, self._steps = _read(folder, len(self.weights))

    def _policy_step(self, choices: Sequence[Choice], settings: UpdateSettings) -> PolicyStep:
        return policy_step(
            Batch.of([decision for decision, _, _ in choices]),
            self.weights,
            old=np.array([logprob for _, logprob, _ in choices]),
            advantage=np.array([value for _, _, value in choices]),
            objective=settings.objective,
            reference=self._reference,
        )

    def _likelihood_step(self, shown: Sequence[Shown]) -> tuple[float, FloatArray]:
        batch = Batch.of([decision for decision, _ in shown])
        return likelihood_step(batch, self.weights, np.array([weight for _, weight in shown]))

    def _descend(self, gradient: FloatArray, lr: float, max_norm: float) -> float:
        """One Adam step along a gradient of at most ``max_norm``; returns its norm before that.

        A gradient that is not finite moves nothing.
        """
        norm = float(np.sqrt(gradient @ gradient))
        if not np.isfinite(norm):
            return norm
        if norm > max_norm:
            gradient = gradient * (max_norm / norm)
        self._steps += 1
        first, second = self._moments
        first += (1 - _BETA1) * (gradient - first)
        second += (1 - _BETA2) * (gradient * gradient - second)
        step_size = lr / (1 - _BETA1**self._steps)
        self.weights -= step_size * first / (np.sqrt(second / (1 - _BETA2**self._steps)) + _EPSILON)
        return norm

    def _shown(self, rollouts: Sequence[Rollout], weight: FloatArray) -> list[list[Shown]]:
        return [
            list(_demonstrated(self._hasher, rollout, values))
            for rollout, values in _by_rollout(rollouts, weight, "weight")
        ]


class LinearSession:
    """A batch of growing episodes answered by a linear policy.

    Args:
        policy: whose weights answer.
        hasher: describes the commands.
        seed: fixes the draws.
        temperature: ≥ 0; 0 takes the first of the most probable commands.
    """

    def __init__(self, policy: LinearPolicy, hasher: FeatureHasher, seed: Sequence[int], temperature: float) -> None:
        self._policy = policy
        self._hasher = hasher
        self._seed = tuple(seed)
        self._temperature = temperature
        self._memory: dict[int, Memory] = {}
        self._rng: dict[int, np.random.Generator] = {}

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One command per request; a request that lists no commands gets a failure."""
        requests = [replace(request, admissible=concrete(request.admissible)) for request in requests]
        answerable = [request for request in requests if request.admissible]
        if not answerable:
            return [_UNANSWERABLE] * len(requests)
        decisions = [self._describe(request) for request in answerable]
        batch = Batch.of(decisions)
        by_decision = np.split(batch.log_probs(self._policy.weights), batch.first_command[1:])
        answers = map(self._choose, answerable, decisions, by_decision)
        return [next(answers) if request.admissible else _UNANSWERABLE for request in requests]

    def finish(self, key: int) -> None:
        """Forget the episode."""
        self._memory.pop(key, None)
        self._rng.pop(key, None)

    def _describe(self, request: Request) -> Decision:
        memory = self._memory.setdefault(request.key, Memory())
        for past in request.history[memory.turns :]:
            memory.take_in(past)
        indices, lengths = self._hasher.describe(request.goal, request.observation, request.admissible, memory)
        return Decision(indices, lengths, chosen=0, temperature=self._temperature or 1.0)

    def _choose(self, request: Request, described: Decision, log_probs: FloatArray) -> Response:
        if self._temperature == 0:
            chosen = int(log_probs.argmax())
            record = Decision(described.indices, described.lengths, chosen, temperature=0.0)
            return Response(request.admissible[chosen], (0.0,), 0.0, record)
        probs = np.exp(log_probs)
        rng = self._rng.get(request.key)
        if rng is None:
            rng = self._rng[request.key] = np.random.default_rng((*self._seed, request.key))
        reached = probs.cumsum()
        chosen = min(int(reached.searchsorted(rng.random() * reached[-1], side="right")), len(probs) - 1)
        return Response(
            text=request.admissible[chosen],
            logprobs=(float(log_probs[chosen]),),
            entropy=max(-float(probs @ log_probs), 0.0),
            record=Decision(described.indices, described.lengths, chosen, self._temperature),
        )


_UNANSWERABLE = Response(
    "", (), 0.0, failure="the linear policy chooses among admissible commands, and the environment lists none"
)


def _by_rollout(rollouts: Sequence[Rollout], values: FloatArray, name: str) -> Iterator[tuple[Rollout, FloatArray]]:
    """Every rollout with its own turns' part of a per-turn column."""
    turns = sum(len(rollout.responses) for rollout in rollouts)
    if len(values) != turns:
        raise InputError(f"Got {len(values)} values of {name} for {turns} turns; expected one each.")
    start = 0
    for rollout in rollouts:
        end = start + len(rollout.responses)
        yield rollout, values[start:end]
        start = end


def _choices(rollout: Rollout, advantage: FloatArray) -> Iterator[Choice]:
    """The scored turns of a rollout."""
    for response, value in zip(rollout.responses, advantage.tolist(), strict=True):
        if np.isnan(value):
            continue
        decision = response.record
        if not isinstance(decision, Decision) or decision.temperature == 0:
            raise InputError(
                f"Episode {rollout.episode.episode!r} was not sampled by a linear policy at a temperature above 0, so "
                f"there is no log-probability to update from."
            )
        yield decision, response.logprobs[0], value


def _demonstrated(hasher: FeatureHasher, rollout: Rollout, weight: FloatArray) -> Iterator[Shown]:
    """The turns of a demonstration that have a weight."""
    memory = Memory()
    for past in rollout.prefix:
        memory.take_in(past)
    for turn, response, value in zip(rollout.episode.turns, rollout.responses, weight.tolist(), strict=True):
        if value > 0:
            admissible = list(turn.extra.get("admissible", ()))
            if turn.action not in admissible:
                raise InputError(
                    f"Episode {rollout.episode.episode!r} demonstrates {turn.action!r}, which is not among the "
                    f"{len(admissible)} admissible commands recorded with that turn."
                )
            indices, lengths = hasher.describe(rollout.goal, turn.observation, admissible, memory)
            yield Decision(indices, lengths, admissible.index(turn.action), temperature=1.0), value
        memory.take_in(PastTurn(turn.observation, response, turn.action))


def _minibatches(count: int, size: int, seed: Sequence[int]) -> list[IntArray]:
    """A seeded permutation of 0 … count − 1 in runs of ``size``."""
    order = np.random.default_rng(tuple(seed)).permutation(count).astype(np.int32)
    return [order[start : start + size] for start in range(0, count, size)]


def _metrics(
    steps: Sequence[PolicyStep], imitation_losses: Sequence[float], norms: Sequence[float], turns: int
) -> dict[str, float]:
    taken = [norm for norm in norms if np.isfinite(norm)]
    seen = max(sum(step.turns for step in steps), 1)
    return {
        "loss": _mean([step.loss for step in steps]),
        "imitation_loss": _mean(imitation_losses),
        "grad_norm": _mean(taken),
        "clip_share": sum(step.clip_share * step.turns for step in steps) / seen,
        "approx_kl": sum(step.approx_kl * step.turns for step in steps) / seen,
        "entropy": sum(step.entropy * step.turns for step in steps) / seen,
        "ratio_deviation": steps[0].ratio_deviation if steps else 0.0,
        "turns": float(turns),
        "skipped_steps": float(len(norms) - len(taken)),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _read(folder: Path, size: int) -> tuple[FloatArray, FloatArray, int]:
    """Weights, moments and number of steps that ``save`` wrote."""
    config_file, state_file = folder / _CONFIG_FILE, folder / _STATE_FILE
    config = read_object(
        config_file, absent=f"{str(folder)!r} does not hold a linear policy: {_CONFIG_FILE} is missing."
    )
    try:
        with state_file.open("rb") as file, np.load(file, allow_pickle=False) as state:
            weights, moments = state["weights"], state["moments"]
        steps = int(config["steps"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        found = f"{str(state_file)!r} beside {config_file.name}"
        raise CheckpointError(f"{found} does not hold a linear policy: {error}.") from None
    if weights.shape != (size,) or moments.shape != (2, size):
        raise CheckpointError(f"{str(folder)!r} holds a linear policy of {len(weights)} weights; expected {size}.")
    return weights, moments, steps
