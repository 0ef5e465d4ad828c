"""The neural policy: a causal language model that answers turns and learns from credit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import OptionError
from stepcredit.policy import supervised
from stepcredit.policy.checkpoint import has_adapters, load_policy, load_trained, save_policy
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.critic import Critic
from stepcredit.policy.generation import TransformerSession
from stepcredit.policy.limits import LimitedSession
from stepcredit.policy.loading import load_alike, load_model
from stepcredit.policy.model import PackedModel
from stepcredit.policy.model_options import ModelOptions
from stepcredit.policy.optimizer import Optimizer
from stepcredit.policy.settings import ImitateSettings, Replay, Returns, UpdateSettings
from stepcredit.policy.tokens import Codec
from stepcredit.policy.update import turn_values, update
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import Rollout, Session


class TransformerPolicy:
    """A causal language model of the transformers family as a policy; see ``rollouts.types.Policy``.

    Args:
        model: the model; every parameter that requires a gradient is trained.
        tokenizer: its tokenizer, chat template included where it has one.
        template: how a request becomes a message.
        constrained: True: only admissible commands, through a token trie, and log-probabilities renormalised over the
            allowed next tokens. False: any text.
        max_response_tokens: token limit of a free response, end of sequence included.
    """

    def __init__(
        self,
        model: PackedModel,
        tokenizer: Any,
        template: PromptTemplate,
        *,
        constrained: bool = True,
        max_response_tokens: int = 64,
    ) -> None:
        if max_response_tokens < 1:
            raise OptionError(f"max_response_tokens is {max_response_tokens}; expected at least 1.")
        if max_response_tokens >= model.context:
            raise OptionError(
                f"max_response_tokens is {max_response_tokens}, and the context holds {model.context} tokens, the "
                "prompt included; lower the one or raise the other."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.conversation = Conversation(template, Codec(tokenizer))
        self.constrained = constrained
        self.max_response_tokens = max_response_tokens
        self.optimizer = Optimizer(model.module)
        self.critic: Critic | None = None
        self._reference_folder: Path | None = None
        self._reference: PackedModel | None = None

    @classmethod
    def from_folder(
        cls,
        name: str | Path,
        template: PromptTemplate,
        *,
        model_options: ModelOptions | None = None,
        seed: int = 0,
        workers: int | None = None,
        **options: Any,
    ) -> Self:
        """The policy of a model folder or hub name.

        Args:
            name: the folder or hub name.
            template: how a request becomes a message.
            model_options: device, types, context, adapters.
            seed: fixes the first weights of adapters.
            workers: parts of a batch computed at once; None for as many as torch has threads. No result depends on it.
            options: those of the class.

        Raises:
            InputError: no such folder or name, no model or no tokenizer in it.
            OptionError: a model that cannot run on packed rows, or a device that is not there.
            MissingExtraError: adapters without the extra ``lora``.
        """
        model, tokenizer = load_model(name, model_options, seed=seed, workers=workers)
        return cls(model, tokenizer, template, **options)

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Session:
        """Start answering a batch of episodes; the same seed, requests and weights give the same bits.

        A prompt that leaves no room for ``max_response_tokens`` in the model's context gets a failed response.

        Raises:
            OptionError: a negative temperature.
        """
        if not temperature >= 0:
            raise OptionError(f"The temperature is {temperature}; expected 0 (greedy) or more.")
        session = TransformerSession(
            self.model,
            self.conversation,
            constrained=self.constrained,
            max_response_tokens=self.max_response_tokens,
            seed=seed,
            temperature=temperature,
        )
        return LimitedSession(session, self.conversation, self.model.context - self.max_response_tokens)

    def update(
        self,
        rollouts: Sequence[Rollout],
        advantage: FloatArray,
        settings: UpdateSettings,
        seed: Sequence[int],
        replay: Replay | None = None,
        returns: Returns | None = None,
    ) -> dict[str, float]:
        """``settings.epochs`` passes over the rollouts in shuffled minibatches, one AdamW step each.

        Args:
            rollouts: episodes this policy played; their responses carry its token records.
            advantage: ``[N]`` per turn in rollout order; NaN turns contribute nothing, not even to a divisor.
            settings: the objective and its step.
            seed: fixes the order of the minibatches.
            replay: demonstrations whose imitation loss is added with ``settings.imitation_coef``.
            returns: what the critic learns; needed where ``objective.value_coef`` > 0, and unused elsewhere.

        Returns:
            Means over steps: ``loss``, ``imitation_loss``, ``grad_norm`` (before clipping). Means over response tokens:
            ``clip_share``, ``approx_kl`` (ρ − 1 − log ρ), ``entropy``. ``ratio_deviation``: greatest |ρ − 1| before the
            first step. ``turns``, ``tokens``: active turns and their response tokens. ``skipped_steps``: steps left out
            because loss or gradient was not finite. ``value_loss``, mean over steps, where a critic learns.

        Raises:
            InputError: a count of advantages or returns that is not the turn count, or a response without token record.
            OptionError: a reference penalty without reference policy, or a value loss without returns.
        """
        learns_values = settings.objective.value_coef > 0
        if learns_values and returns is None:
            raise OptionError("A value loss needs returns; pass those of the policy's own values(rollouts).")
        return update(
            self.model,
            self.optimizer,
            self.conversation,
            rollouts,
            advantage,
            settings,
            seed,
            replay=replay,
            reference=self._load_reference() if settings.objective.penalty_coef else None,
            critic=self._critic() if learns_values else None,
            returns=returns if learns_values else None,
        )

    def values(self, rollouts: Sequence[Rollout]) -> FloatArray:
        """The critic's value of the state before every turn, ``[N]`` in rollout order, reward units.

        A fresh critic says 0 everywhere, and a turn without a response token has value 0.

        Raises:
            InputError: a response without token record.
        """
        limit = UpdateSettings().micro_batch_tokens
        return turn_values(self.model, self._critic(), self.conversation, rollouts, limit)

    def _critic(self) -> Critic:
        if self.critic is None:
            width: int = self.model.config.get_text_config().hidden_size
            self.critic = Critic(width, self.model.parameters[0])
        return self.critic

    def imitate(
        self, rollouts: Sequence[Rollout], weight: FloatArray, settings: ImitateSettings, seed: Sequence[int]
    ) -> dict[str, float]:
        """One epoch of supervised learning over demonstrations in shuffled minibatches.

        Args:
            rollouts: demonstrations; ``Response.text`` is what is to be said.
            weight: ``[N]`` per turn in rollout order; 0 masks a turn out of the loss, its tokens stay context.
            settings: the step.
            seed: fixes the order of the minibatches.

        Returns:
            ``imitation_loss``, ``response_nll`` (mean −log π of response tokens, nats), ``grad_norm``: means over
            steps; ``tokens``: input tokens; ``skipped_steps``.

        Raises:
            InputError: a weight count that is not the turn count.
        """
        return supervised.imitate(self.model, self.optimizer, self.conversation, rollouts, weight, settings, seed)

    def set_reference(self, folder: Path) -> None:
        """Compare reference penalties with the model in a folder (of ``save``, or another), read when first needed.

        A folder that holds adapters alone costs their memory alone: the frozen weights are shared. Fresh adapters add
        nothing, so that the reference then is the model with its adapters off.
        """
        self._reference_folder = folder
        self._reference = None

    def _load_reference(self) -> PackedModel:
        if self._reference is None:
            folder = self._reference_folder
            if folder is None:
                raise OptionError("A reference penalty needs a reference policy; call set_reference first.")
            if has_adapters(folder):
                self._reference = self.model.frozen_copy()
                load_trained(folder, self._reference)
            else:
                self._reference = load_alike(self.model, folder)
        return self._reference

    def response_nll(self, rollouts: Sequence[Rollout], weight: FloatArray) -> float:
        """Mean −log π per response token of demonstrations, nats, weighted by turn; nothing is learnt.

        Raises:
            InputError: a weight count that is not the turn count.
        """
        return supervised.response_nll(self.model, self.conversation, rollouts, weight)

    def describe(self) -> dict[str, Any]:
        """Architecture, sizes, types, device and attention, as plain values."""
        return self.model.describe()

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser and critic; the folder is an ordinary model folder too.

        Raises:
            OSError: the disk refuses.
        """
        save_policy(folder, self.model, self.tokenizer, self.optimizer, self.critic)

    def load(self, folder: Path) -> None:
        """Restore weights and optimiser bit by bit.

        Raises:
            CheckpointError: the folder cannot be read or belongs to another model.
        """
        load_policy(folder, self.model, self.optimizer)
        self.critic = Critic.restored(folder, self.model.parameters[0])
