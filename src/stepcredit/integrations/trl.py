"""TRL: any of our environments behind ``rollout_func``, and step-level credit in ``GRPOTrainer``.

TRL trains one row an episode: the first prompt, then responses and observations in turn. Its loss takes advantages per
token, so a subclass that replaces them is all that step-level credit needs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import GenerationConfig
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from stepcredit.core.credit import FloatArray
from stepcredit.core.episodes import Episode
from stepcredit.core.errors import InputError, OptionError, unknown_name
from stepcredit.core.files import write_episodes
from stepcredit.credit.catalogue import find_method
from stepcredit.environments.protocol import Task, TaskSuite
from stepcredit.integrations.engines.generation import EnginePolicy, Generate, Generated, without_entropy
from stepcredit.integrations.engines.rows import COLUMNS, credit_episodes, needed_columns
from stepcredit.integrations.engines.tokens import TokenRow, dialogue_row, scored_tokens, token_advantages
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.tokens import Codec
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import PromptTemplate
from stepcredit.rollouts.types import Rollout

_PLAYED = "stepcredit"
"""The field of a TRL row that holds what was played."""

DIALOGUE = PromptTemplate(
    "Task: {goal}\n"
    "Turn {step} of at most {horizon}. What you see:\n{observation}\n\n"
    "Commands that do something now:\n{admissible}\n\n"
    "Answer with one of these commands and nothing else.",
    append_only=True,
)
"""A prompt for instruction-tuned models: each turn adds what is new, earlier turns stay in the context."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one row of a batch is: an episode and the places of its responses; no episode where none came about."""

    episode: Episode | None
    spans: tuple[tuple[int, int], ...] = ()


def task_dataset(suite: TaskSuite, split: str, limit: int | None = None) -> Dataset:
    """The tasks of a split as a dataset for ``GRPOTrainer``; ``prompt`` is the task's id.

    Args:
        suite: the environment.
        split: name of the split.
        limit: tasks at most; None for all.

    Raises:
        OptionError: no such split.
    """
    return Dataset.from_dict({"prompt": [task.id for task in suite.tasks(split)[:limit]]})


def episode_return(prompts: Sequence[str], completions: Sequence[str], **fields: Any) -> list[float | None]:
    """The reward function that TRL logs: rewards less penalties of each episode; None where it ended in error."""
    return [
        sum(turn.reward - turn.penalty for turn in played.episode.turns)
        if played.episode is not None and played.episode.stop != "error"
        else None
        for played in fields[_PLAYED]
    ]


class EnvironmentRollout:
    """A ``rollout_func`` that plays tasks of any of our environments with the model being trained.

    All episodes of a batch are played in lock-step, so that the model always answers a whole batch. With several
    processes each plays its own rows; generation must then not depend on the others (plain or DDP models, or vLLM in
    every process: ``vllm_mode="colocate"``).

    Args:
        suite: makes the environments; the prompts of the batch are ids of its tasks.
        template: an append-only prompt template.
        response_format: ``action`` or ``think-action``.
        horizon: turns an episode may take; None for the suite's own.
        max_response_tokens: token limit of one response. ``max_completion_length`` of the trainer's arguments bounds
            the whole dialogue, first prompt included; an episode that would pass it ends in error.
        reward_scale: reward units per unit of the environment's reward.
        invalid_penalty: cost of an invalid response, reward units.
        concurrency: environments that step at once.
        step_timeout: seconds an environment may take for a step; None for no limit.
    """

    def __init__(
        self,
        suite: TaskSuite,
        template: PromptTemplate = DIALOGUE,
        *,
        response_format: str = "action",
        horizon: int | None = None,
        max_response_tokens: int = 64,
        reward_scale: float = 10.0,
        invalid_penalty: float = 0.1,
        concurrency: int = 1,
        step_timeout: float | None = None,
    ) -> None:
        if not template.append_only:
            raise OptionError("TRL keeps an episode in one row; use an append-only template, one without {history}.")
        self.suite = suite
        self.template = template
        self.max_response_tokens = max_response_tokens
        self._rules: dict[str, Any] = {
            "response_format": response_format,
            "horizon": suite.horizon if horizon is None else horizon,
            "reward_scale": reward_scale,
            "invalid_penalty": invalid_penalty,
            "concurrency": concurrency,
            "step_timeout": step_timeout,
        }
        self._tasks: dict[str, Task] = {}

    def __call__(self, prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Play one episode per prompt; what TRL needs to train on them, and the episodes themselves.

        Raises:
            OptionError: a prompt that is no task of the suite, or vLLM behind a server shared by several processes.
        """
        tasks = [self._task(prompt) for prompt in prompts]
        conversation = Conversation(self.template, Codec(trainer.processing_class))
        with _generator(trainer, self.max_response_tokens) as generate:
            policy = EnginePolicy(
                generate,
                conversation,
                max_prompt_tokens=trainer.max_completion_length - self.max_response_tokens,
            )
            collected = collect(
                policy, self.suite, tasks, group_size=1, seed=(0,), temperature=trainer.temperature, **self._rules
            )
        found = {rollout.episode.episode: rollout for rollout in collected.rollouts}
        rows = [
            self._row(found.get(name), conversation, knows_entropy=not trainer.use_vllm)
            for name in _names([task.id for task in tasks])
        ]
        return {
            "prompt_ids": [row.prompt.tolist() for row, _ in rows],
            "completion_ids": [row.completion.tolist() for row, _ in rows],
            "logprobs": [row.logprobs.tolist() for row, _ in rows],
            "env_mask": [row.written.astype(int).tolist() for row, _ in rows],
            _PLAYED: [played for _, played in rows],
        }

    def _task(self, prompt: str) -> Task:
        if not self._tasks:
            self._tasks = {task.id: task for split in self.suite.splits() for task in self.suite.tasks(split)}
        if prompt not in self._tasks:
            raise unknown_name(f"task of {self.suite.name!r}:", prompt, self._tasks)
        return self._tasks[prompt]

    def _row(
        self, rollout: Rollout | None, conversation: Conversation, *, knows_entropy: bool
    ) -> tuple[TokenRow, Played]:
        """Tokens of an episode; one that never had a turn is a single end of sequence that nobody wrote."""
        if rollout is None:
            end = np.array([conversation.codec.eos], dtype=np.int32)
            return TokenRow(end, end, np.zeros(1, dtype=np.bool_), np.zeros(1), ()), Played(None)
        row = dialogue_row(rollout, conversation)
        episode = rollout.episode if knows_entropy else without_entropy(rollout.episode)
        return row, Played(episode, row.spans)


class StepCreditGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is not installed where types are checked
    """``GRPOTrainer`` whose advantages are a credit method's, turn by turn.

    Task groups are gathered over all processes, so a group may be spread over them. Environment tokens and turns
    without a score stay out of the loss. Every other argument is ``GRPOTrainer``'s; options of its own advantages
    (``scale_rewards``) only reach what it logs.

    Args:
        method: name in ``stepcredit methods``.
        method_options: options of the method.
        rollout_folder: where to write every batch of episodes as a rollout file, ``000012.jsonl`` for step 12; None
            for nowhere.

    Raises:
        OptionError: no such method or option, a value that does not fit, or a method whose numbers nothing supplies.
    """

    def __init__(
        self,
        *args: Any,
        method: str = "gigpo",
        method_options: Mapping[str, Any] | None = None,
        rollout_folder: str | Path | None = None,
        reward_funcs: Callable[..., Any] | Sequence[Callable[..., Any]] = episode_return,
        **kwargs: Any,
    ) -> None:
        self.method = method
        self.method_options = find_method(method).check_options(method_options or {})
        needed = needed_columns(method)
        if needed and isinstance(kwargs.get("rollout_func"), EnvironmentRollout):
            raise OptionError(
                f"Method {method!r} needs {needed[0]!r} for every turn, which TRL has no model for; use a rollout "
                f"function of your own that puts {COLUMNS[needed[0]]!r} into the extra of every turn."
            )
        self.rollout_folder = None if rollout_folder is None else Path(rollout_folder)
        super().__init__(*args, reward_funcs=reward_funcs, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        own = [row.get(_PLAYED) for row in inputs]
        if None in own:
            raise InputError(
                f"The rollout function returned no {_PLAYED!r}; use EnvironmentRollout, or return one Played a row."
            )
        everyone = _renamed(gather_object(own))
        advantages, credit = credit_episodes(
            [played.episode for played in everyone if played.episode is not None], self.method, self.method_options
        )
        first = self.accelerator.process_index * len(own)
        ids = output["completion_ids"]
        values, scored = token_columns(everyone[first : first + len(own)], advantages, ids.shape[1])
        output["advantages"] = torch.from_numpy(values).to(ids.device, torch.float32)
        output["tool_mask"] = output["tool_mask"] * torch.from_numpy(scored).to(ids.device, torch.long)
        learnt = (output["completion_mask"] * output["tool_mask"]).sum()
        output["num_items_in_batch"] = self.accelerator.gather(learnt).sum()
        mode = "train" if self.model.training else "eval"
        if credit is not None:
            for name, value in credit.diagnostics["mean_abs"].items():
                self._metrics[mode][f"stepcredit/mean_abs_{name}"].append(value)
        if self.rollout_folder is not None and self.accelerator.is_main_process and mode == "train":
            path = self.rollout_folder / f"{self.state.global_step:06d}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_episodes(path, [played.episode for played in everyone if played.episode is not None])
        return output


def token_columns(
    rows: Sequence[Played], advantages: Mapping[str, FloatArray], width: int
) -> tuple[FloatArray, FloatArray]:
    """Advantage of every token of a batch, and which tokens belong to scored turns (1 or 0); ``[B, width]`` each."""
    values = np.zeros((len(rows), width))
    scored = np.zeros((len(rows), width))
    for row, played in enumerate(rows):
        if played.episode is not None:
            advantage = advantages[played.episode.episode]
            values[row] = token_advantages(advantage, played.spans, width)
            scored[row] = scored_tokens(advantage, played.spans, width)
    return values, scored


def _names(tasks: Sequence[str]) -> list[str]:
    """Names of the episodes, as the collector gives them: ``TASK#k``."""
    counted: Counter[str] = Counter()
    names = []
    for task in tasks:
        names.append(f"{task}#{counted[task]}")
        counted[task] += 1
    return names


def _renamed(everyone: Sequence[Played]) -> list[Played]:
    """The rows of all processes, each episode with a name of its own; every process named its episodes alone."""
    names = _names([played.episode.task if played.episode else "" for played in everyone])
    return [
        replace(played, episode=replace(played.episode, episode=name)) if played.episode else played
        for played, name in zip(everyone, names, strict=True)
    ]


@contextmanager
def _generator(trainer: GRPOTrainer, max_response_tokens: int) -> Iterator[Generate]:
    """What samples one response after each prompt: vLLM where the trainer uses it, else the model itself."""
    if trainer.use_vllm:
        if trainer.args.vllm_mode == "server" and trainer.accelerator.num_processes > 1:
            raise OptionError(
                "Processes that share a vLLM server must answer equally many turns, and episodes do not; "
                "set vllm_mode='colocate'."
            )
        trainer.vllm_generation.max_completion_length = max_response_tokens
        yield lambda prompts: _from_vllm(trainer, prompts)
        return
    settings = GenerationConfig(**{**trainer.generation_kwargs, "max_new_tokens": max_response_tokens})
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
        ) as model,
        torch.no_grad(),
    ):
        training = model.training
        model.eval()
        try:
            yield lambda prompts: _from_model(model, prompts, settings)
        finally:
            model.train(training)


def _from_vllm(trainer: GRPOTrainer, prompts: list[list[int]]) -> list[Generated]:
    _, ids, logprobs, _ = trainer.vllm_generation.generate(prompts=prompts, images=None, num_generations=1)
    return [
        Generated(own, [math.nan if value[0] is None else value[0] for value in values])
        for own, values in zip(ids, logprobs, strict=True)
    ]


def _from_model(model: Any, prompts: list[list[int]], settings: GenerationConfig) -> list[Generated]:
    """One batch, padded on the left; log-probabilities at the sampling temperature, before top-k and the like."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), settings.pad_token_id)
    attention = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        attention[row, width - len(prompt) :] = 1
    made = model.generate(
        input_ids=ids.to(model.device),
        attention_mask=attention.to(model.device),
        generation_config=settings,
        output_logits=True,
        return_dict_in_generate=True,
    )
    sampled = made.sequences[:, width:]
    scores = torch.stack(made.logits, dim=1).float() / settings.temperature
    logprobs = torch.log_softmax(scores, dim=-1)
    chosen = logprobs.gather(2, sampled[..., None])[..., 0]
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    ends = torch.isin(sampled, torch.tensor(settings.eos_token_id, device=sampled.device))
    answers = []
    for row in range(len(prompts)):
        stop = int(ends[row].int().argmax()) + 1 if ends[row].any() else sampled.shape[1]
        answers.append(
            Generated(sampled[row, :stop].tolist(), chosen[row, :stop].tolist(), float(entropy[row, :stop].mean()))
        )
    return answers
