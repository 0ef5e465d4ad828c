"""A policy without torch: softmax over the admissible commands, linear in hashed features.

With φ(c) the binary features of command c in its situation, w the weights and T the temperature,

    π(c) = exp(w·φ(c)/T) / Σ_b exp(w·φ(b)/T),   ∇_w log π(c) = (φ(c) − Σ_b π(b) φ(b)) / T.

A response is one token: the command. Gradients are exact, and one core trains it in seconds.

Letters: ``D`` decisions (turns), ``C`` commands of all decisions, ``F`` feature indices of all commands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.core.errors import CheckpointError, InputError, NumericsError, OptionError
from stepcredit.policy.linear_features import FeatureHasher, Memory
from stepcredit.policy.settings import ImitateSettings, Objective, Replay, UpdateSettings
from stepcredit.rollouts.types import PastTurn, Request, Response, Rollout

_STATE_FILE = "linear.npz"
_CONFIG_FILE = "linear.json"
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_CLAMP = 10.0
"""The ``k3`` penalty is clamped to ± this."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice among commands, as an update needs it.

    Attributes:
        indices: ``[F]`` feature indices, command after command.
        lengths: ``[C]`` how many of them each command has, ≥ 1.
        chosen: which command was chosen.
        temperature: what it was drawn at.
    """

    indices: IntArray
    lengths: IntArray
    chosen: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Decisions laid out flat.

    Attributes:
        indices: ``[F]`` feature indices.
        lengths: ``[C]`` features per command.
        first_feature: ``[C]`` where each command's features begin.
        first_command: ``[D]`` where each decision's commands begin.
        decision: ``[C]`` the decision each command belongs to.
        chosen: ``[D]`` the chosen command, an index into ``[C]``.
        temperature: ``[D]``.
    """

    indices: IntArray
    lengths: IntArray
    first_feature: NDArray[np.int64]
    first_command: NDArray[np.int64]
    decision: NDArray[np.int64]
    chosen: NDArray[np.int64]
    temperature: FloatArray

    @classmethod
    def of(cls, decisions: Sequence[Decision]) -> Batch:
        """Lay out at least one decision."""
        lengths = np.concatenate([decision.lengths for decision in decisions])
        commands = np.array([len(decision.lengths) for decision in decisions])
        first_command = _starts(commands)
        return cls(
            indices=np.concatenate([decision.indices for decision in decisions]),
            lengths=lengths,
            first_feature=_starts(lengths),
            first_command=first_command,
            decision=np.repeat(np.arange(len(decisions)), commands),
            chosen=first_command + np.array([decision.chosen for decision in decisions]),
            temperature=np.array([decision.temperature for decision in decisions]),
        )

    def log_probs(self, weights: FloatArray) -> FloatArray:
        """``[C]`` log-probability of every command."""
        scores = np.add.reduceat(weights[self.indices], self.first_feature) / self.temperature[self.decision]
        scores -= np.maximum.reduceat(scores, self.first_command)[self.decision]
        return scores - np.log(np.add.reduceat(np.exp(scores), self.first_command))[self.decision]

    def pull_back(self, by_command: FloatArray, size: int) -> FloatArray:
        """``[size]`` gradient with respect to the weights, given that with respect to each command's log-probability.

        With u_c = ∂L/∂log π(c): ∂L/∂score(c) = (u_c − π(c) Σ_b u_b) / T; ``by_command`` already is that difference
        before the division.
        """
        by_score = by_command / self.temperature[self.decision]
        return np.bincount(self.indices, weights=np.repeat(by_score, self.lengths), minlength=size)


class LinearPolicy:
    """Softmax over admissible commands from hashed features, trained by AdamW without decay.

    Args:
        size: number of weights, a power of two.

    Raises:
        OptionError: ``size`` is not a power of two.
    """

    def __init__(self, size: int = 2**17) -> None:
        if size < 1 or size & (size - 1):
            raise OptionError(f"size is {size}; expected a power of two.")
        self.weights: FloatArray = np.zeros(size)
        self._reference: FloatArray | None = None
        self._moments: FloatArray = np.zeros((2, size))
        self._steps = 0
        self.hasher = FeatureHasher(size)

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> LinearSession:
        """Start answering a batch of episodes; a request's ``key`` and ``seed`` fix its draws, whoever else plays."""
        return LinearSession(self, seed, temperature)

    def update(
        self,
        rollouts: Sequence[Rollout],
        advantage: FloatArray,
        settings: UpdateSettings,
        seed: Sequence[int],
        replay: Replay | None = None,
    ) -> dict[str, float]:
        """Improve the policy on its own rollouts.

        Every objective applies with one token a turn, so all aggregations but ``seq-mean-token-sum-norm`` (which
        divides by ``norm_length``) are the mean over the scored turns of a minibatch.

        Args:
            rollouts: what this policy played.
            advantage: ``[N]`` per turn in rollout order; NaN where a turn is not scored.
            settings: how to update.
            seed: fixes the order of the minibatches.
            replay: demonstrations mixed in with weight ``settings.imitation_coef``.

        Returns:
            Means over the optimiser steps: ``loss``, ``entropy``, ``kl`` (−mean log ratio), ``clip_fraction``,
            ``penalty``, ``grad_norm``; ``ratio_error`` (largest |ratio − 1| before the first step); ``steps`` and
            ``skipped_steps`` (not finite).

        Raises:
            InputError: ``advantage`` has another length, or a rollout was not sampled by this policy.
            NumericsError: an advantage is infinite.
            OptionError: a penalty without a reference policy.
        """
        objective = settings.objective
        if objective.penalty_coef > 0 and self._reference is None:
            raise OptionError("The reference penalty needs a reference policy; set penalty_coef to 0 or set one.")
        turns = sum(len(rollout.responses) for rollout in rollouts)
        if len(advantage) != turns:
            raise InputError(f"{len(advantage)} advantages for {turns} turns; expected one a turn.")
        if np.isinf(advantage).any():
            raise NumericsError("An advantage is infinite; expected finite numbers, or NaN for turns not scored.")
        episodes = _scored_episodes(rollouts, advantage)
        copied = [] if replay is None or not settings.imitation_coef else self._demonstrated(replay)
        rng = np.random.default_rng([*seed])
        log = _Log()
        for _ in range(settings.epochs):
            order = rng.permutation(len(episodes))
            copied_order = rng.permutation(len(copied))
            cuts = range(0, len(order), settings.minibatch)
            for number, cut in enumerate(cuts):
                rows = [row for index in order[cut : cut + settings.minibatch] for row in episodes[index]]
                gradient, metrics = self._surrogate(rows, objective)
                share = [row for index in copied_order[number :: len(cuts)] for row in copied[index]]
                if share:
                    loss, pull, _ = self._likelihood(share)
                    gradient += settings.imitation_coef * pull
                    metrics["imitation_loss"] = loss
                log.add(metrics, self._descend(gradient, settings.lr, settings.max_grad_norm))
        return log.result()

    def imitate(
        self, rollouts: Sequence[Rollout], weight: FloatArray, settings: ImitateSettings, seed: Sequence[int]
    ) -> dict[str, float]:
        """One epoch of maximum likelihood on demonstrations, Σ w·(−log π) / Σ w over each minibatch.

        Args:
            rollouts: demonstrations; every turn's ``extra["admissible"]`` lists the commands it was chosen from.
            weight: ``[N]`` per turn in rollout order; 0 masks a turn.
            settings: how to learn.
            seed: fixes the order of the minibatches.

        Returns:
            Means over the optimiser steps: ``loss``, ``accuracy`` (most probable command), ``grad_norm``; ``steps``
            and ``skipped_steps``.

        Raises:
            InputError: ``weight`` has another length, a turn lacks its admissible commands, or its command is not
                one of them.
        """
        episodes = self._demonstrated(Replay(rollouts, weight))
        order = np.random.default_rng([*seed]).permutation(len(episodes))
        log = _Log()
        for cut in range(0, len(order), settings.minibatch):
            rows = [row for index in order[cut : cut + settings.minibatch] for row in episodes[index]]
            loss, gradient, accuracy = self._likelihood(rows)
            norm = self._descend(gradient, settings.lr, settings.max_grad_norm)
            log.add({"loss": loss, "accuracy": accuracy}, norm)
        return log.result()

    def set_reference(self, folder: Path) -> None:
        """Take a saved policy as the reference of penalties.

        Raises:
            CheckpointError: the folder does not hold one of this size.
        """
        self._reference = _read(folder, len(self.weights))[0]

    def save(self, folder: Path) -> None:
        """Write weights and optimiser state into an existing folder."""
        np.savez(folder / _STATE_FILE, weights=self.weights, moments=self._moments)
        config = {"policy": "linear", "size": len(self.weights), "steps": self._steps}
        (folder / _CONFIG_FILE).write_text(json.dumps(config) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take over what ``save`` wrote.

        Raises:
            CheckpointError: the folder does not hold a linear policy of this size.
        """
        self.weights, self._moments, self._steps = _read(folder, len(self.weights))

    def _surrogate(self, rows: Sequence[tuple[Decision, float, float]], objective: Objective) -> _Pulled:
        """Gradient and metrics of the policy loss on (decision, behaviour log-probability, advantage) rows."""
        batch = Batch.of([decision for decision, _, _ in rows])
        old = np.array([logprob for _, logprob, _ in rows])
        advantage = np.array([value for _, _, value in rows])
        log_probs = batch.log_probs(self.weights)
        probs = np.exp(log_probs)
        log_ratio = log_probs[batch.chosen] - old
        ratio = np.exp(log_ratio)
        value, slope, clipped = surrogate(ratio, advantage, objective)
        entropy = -np.add.reduceat(probs * log_probs, batch.first_command)
        scale = 1.0 / len(rows)
        if objective.aggregation == "seq-mean-token-sum-norm" and objective.surrogate == "clip":
            scale /= objective.norm_length
        loss = -value - objective.entropy_coef * entropy
        # ∂loss/∂score: the chosen command's term, then the entropy's: ∂H/∂score(c) = −π(c) (log π(c) + H).
        by_chosen = -slope
        penalty = np.zeros(len(rows))
        if objective.penalty_coef > 0 and self._reference is not None:
            delta = batch.log_probs(self._reference)[batch.chosen] - log_probs[batch.chosen]
            penalty, penalty_slope = reference_penalty(delta, objective)
            loss = loss + objective.penalty_coef * penalty
            by_chosen = by_chosen - objective.penalty_coef * penalty_slope
        by_score = objective.entropy_coef * probs * (log_probs + entropy[batch.decision])
        by_score -= probs * by_chosen[batch.decision]
        by_score[batch.chosen] += by_chosen
        gradient = batch.pull_back(scale * by_score, len(self.weights))
        return gradient, {
            "loss": float(scale * loss.sum()),
            "entropy": float(entropy.mean()),
            "kl": float(-log_ratio.mean()),
            "clip_fraction": float(clipped.mean()),
            "penalty": float(penalty.mean()),
            "ratio_error": float(np.abs(ratio - 1.0).max()),
        }

    def _likelihood(self, rows: Sequence[tuple[Decision, float]]) -> tuple[float, FloatArray, float]:
        """Loss, gradient and accuracy of maximum likelihood on (decision, weight) rows."""
        batch = Batch.of([decision for decision, _ in rows])
        weight = np.array([value for _, value in rows])
        weight = weight / weight.sum()
        log_probs = batch.log_probs(self.weights)
        by_score = np.exp(log_probs) * weight[batch.decision]
        by_score[batch.chosen] -= weight
        best = np.maximum.reduceat(log_probs, batch.first_command)
        accuracy = float(weight @ (log_probs[batch.chosen] >= best))
        loss = float(-weight @ log_probs[batch.chosen])
        return loss, batch.pull_back(by_score, len(self.weights)), accuracy

    def _descend(self, gradient: FloatArray, lr: float, max_norm: float) -> float:
        """One AdamW step; returns the gradient's norm, without a step where that is not finite."""
        norm = float(np.sqrt(gradient @ gradient))
        if not np.isfinite(norm):
            return norm
        if norm > max_norm:
            gradient = gradient * (max_norm / norm)
        self._steps += 1
        first, second = self._moments
        first += (1 - _BETA1) * (gradient - first)
        second += (1 - _BETA2) * (gradient * gradient - second)
        scale = lr / (1 - _BETA1**self._steps)
        self.weights -= scale * first / (np.sqrt(second / (1 - _BETA2**self._steps)) + _EPSILON)
        return norm

    def _demonstrated(self, replay: Replay) -> list[list[tuple[Decision, float]]]:
        """(decision, weight) rows of every demonstration that has any with a weight."""
        turns = sum(len(rollout.episode.turns) for rollout in replay.rollouts)
        if len(replay.weight) != turns:
            raise InputError(f"{len(replay.weight)} weights for {turns} turns; expected one a turn.")
        episodes = []
        row = 0
        for rollout in replay.rollouts:
            end = row + len(rollout.episode.turns)
            episodes.append(_decisions(self.hasher, rollout, replay.weight[row:end]))
            row = end
        return [rows for rows in episodes if rows]


class LinearSession:
    """A batch of growing episodes answered by a linear policy."""

    def __init__(self, policy: LinearPolicy, seed: Sequence[int], temperature: float) -> None:
        self._policy = policy
        self._seed = tuple(seed)
        self._temperature = temperature
        self._memory: dict[int, Memory] = {}
        self._rng: dict[int, np.random.Generator] = {}

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One command per request; a request without admissible commands gets a failure."""
        answerable = [request for request in requests if request.admissible]
        if not answerable:
            return [_UNANSWERABLE for _ in requests]
        described = [self._policy.hasher.describe(request, self._remember(request)) for request in answerable]
        temperature = self._temperature or 1.0
        batch = Batch.of([Decision(indices, lengths, 0, temperature) for indices, lengths in described])
        log_probs = np.split(batch.log_probs(self._policy.weights), batch.first_command[1:])
        answers = iter(
            self._choose(request, indices, lengths, own)
            for request, (indices, lengths), own in zip(answerable, described, log_probs, strict=True)
        )
        return [next(answers) if request.admissible else _UNANSWERABLE for request in requests]

    def finish(self, key: int) -> None:
        """Forget the episode."""
        self._memory.pop(key, None)
        self._rng.pop(key, None)

    def _choose(self, request: Request, indices: IntArray, lengths: IntArray, log_probs: FloatArray) -> Response:
        if self._temperature == 0:
            chosen = int(log_probs.argmax())
            return Response(request.admissible[chosen], (0.0,), 0.0, Decision(indices, lengths, chosen, 0.0))
        probs = np.exp(log_probs)
        rng = self._rng.get(request.key)
        if rng is None:
            rng = self._rng[request.key] = np.random.default_rng([*self._seed, request.key])
        reached = probs.cumsum()
        chosen = min(int(reached.searchsorted(rng.random() * reached[-1], side="right")), len(probs) - 1)
        return Response(
            text=request.admissible[chosen],
            logprobs=(float(log_probs[chosen]),),
            entropy=max(float(-(probs @ log_probs)), 0.0),
            record=Decision(indices, lengths, chosen, self._temperature),
        )

    def _remember(self, request: Request) -> Memory:
        memory = self._memory.setdefault(request.key, Memory())
        for past in request.history[memory.turns :]:
            memory.take_in(past)
        return memory


_UNANSWERABLE = Response("", (), 0.0, failure="the linear policy chooses among admissible commands, and none is listed")


def surrogate(
    ratio: FloatArray, advantage: FloatArray, objective: Objective
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Clipped surrogate of one-token turns: min(ρA, clip(ρ, 1 − ε_l, 1 + ε_h)A), and max(·, cA) for A < 0 (dual clip).

    Returns:
        Value, its derivative by log π, and where the clip is active; each ``[D]``.
    """
    clipped_ratio = np.clip(ratio, 1.0 - objective.clip_low, 1.0 + objective.clip_high)
    plain, bounded = ratio * advantage, clipped_ratio * advantage
    clipped = bounded < plain
    value = np.where(clipped, bounded, plain)
    if objective.dual_clip is not None:
        floor = objective.dual_clip * advantage
        dual = (advantage < 0) & (value < floor)
        value = np.where(dual, floor, value)
        clipped |= dual
    return value, np.where(clipped, 0.0, plain), clipped


def reference_penalty(delta: FloatArray, objective: Objective) -> tuple[FloatArray, FloatArray]:
    """Penalty k(δ) for leaving the reference policy, δ = log π_ref − log π, and its derivative k'(δ); each ``[D]``.

    ``k1`` −δ; ``abs`` |δ|; ``k2`` δ²/2; ``k3`` e^δ − δ − 1, clamped to ±10; ``tangent`` (TSBPO) the same up to
    δ* = ln(1 + M), beyond it the tangent M − δ* + M(δ − δ*).
    """
    match objective.penalty:
        case "k1":
            return -delta, -np.ones_like(delta)
        case "abs":
            return np.abs(delta), np.sign(delta)
        case "k2":
            return delta * delta / 2, delta
        case "k3":
            value = np.expm1(np.minimum(delta, _CLAMP)) - delta
            inside = (value <= _CLAMP) & (delta <= _CLAMP)
            return np.clip(value, -_CLAMP, _CLAMP), np.where(inside, np.expm1(np.minimum(delta, _CLAMP)), 0.0)
        case "tangent":
            bound = objective.tangent_bound
            corner = np.log1p(bound)
            below = np.minimum(delta, corner)
            value = np.expm1(below) - below + bound * (delta - below)
            return value, np.expm1(below)


class _Log:
    """Metrics of optimiser steps, averaged; ``ratio_error`` keeps its first value."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._first_ratio_error: float | None = None
        self._steps = 0
        self._skipped = 0

    def add(self, metrics: dict[str, float], norm: float) -> None:
        """One step's metrics; a step whose gradient norm is not finite only counts as skipped."""
        ratio_error = metrics.pop("ratio_error", None)
        if self._first_ratio_error is None:
            self._first_ratio_error = ratio_error
        if not np.isfinite(norm):
            self._skipped += 1
            return
        self._steps += 1
        for name, value in {**metrics, "grad_norm": norm}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def result(self) -> dict[str, float]:
        """Means over the steps, and the counts."""
        means = {name: total / self._steps for name, total in self._sums.items()}
        if self._first_ratio_error is not None:
            means["ratio_error"] = self._first_ratio_error
        return {**means, "steps": self._steps, "skipped_steps": self._skipped}


_Pulled = tuple[FloatArray, dict[str, float]]


def _scored_episodes(rollouts: Sequence[Rollout], advantage: FloatArray) -> list[list[tuple[Decision, float, float]]]:
    """(decision, behaviour log-probability, advantage) of every scored turn, by rollout; rollouts with none left out."""
    episodes = []
    row = 0
    for rollout in rollouts:
        rows = []
        for response in rollout.responses:
            value = float(advantage[row])
            row += 1
            if np.isnan(value):
                continue
            decision = response.record
            if not isinstance(decision, Decision):
                raise InputError(f"Episode {rollout.episode.episode!r} was not played by a linear policy.")
            if decision.temperature == 0:
                raise InputError(f"Episode {rollout.episode.episode!r} was played greedily; train on sampled episodes.")
            rows.append((decision, response.logprobs[0], value))
        if rows:
            episodes.append(rows)
    return episodes


def _decisions(hasher: FeatureHasher, rollout: Rollout, weight: FloatArray) -> list[tuple[Decision, float]]:
    """(decision, weight) of every turn of a demonstration that has a weight."""
    memory = Memory()
    for past in rollout.prefix:
        memory.take_in(past)
    rows = []
    for turn, response, value in zip(rollout.episode.turns, rollout.responses, weight, strict=True):
        if value > 0:
            admissible = turn.extra.get("admissible", ())
            if turn.action not in admissible:
                raise InputError(
                    f"Episode {rollout.episode.episode!r} demonstrates {turn.action!r}, which is not among the turn's "
                    f"{len(admissible)} recorded admissible commands; record them with the demonstration."
                )
            request = Request(0, rollout.goal, (), turn.observation, admissible, 0)
            indices, lengths = hasher.describe(request, memory)
            rows.append((Decision(indices, lengths, admissible.index(turn.action), 1.0), float(value)))
        memory.take_in(PastTurn(turn.observation, response, turn.action))
    return rows


def _starts(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Where segments of these lengths begin when laid out one after the other."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _read(folder: Path, size: int) -> tuple[FloatArray, FloatArray, int]:
    """Weights, moments and number of steps that ``save`` wrote."""
    try:
        config = json.loads((folder / _CONFIG_FILE).read_text(encoding="utf-8"))
        with np.load(folder / _STATE_FILE, allow_pickle=False) as state:
            weights, moments = state["weights"], state["moments"]
        steps = int(config["steps"])
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise CheckpointError(f"{str(folder)!r} does not hold a linear policy: {error}.") from None
    if weights.shape != (size,) or moments.shape != (2, size):
        raise CheckpointError(f"{str(folder)!r} holds a linear policy of size {len(weights)}; expected {size}.")
    return weights, moments, steps
