"""An agent loop that plays our environments inside verl: one training row a turn, environments off the event loop.

A session is played by our own collector in a thread: it waits for tokens from verl's server through the event loop,
and for environments in a pool of processes with a time limit per step. All sessions of a prompt play the same task, and
a task gives the same texts in every process, so a group starts from one state.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from omegaconf import DictConfig, OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from stepcredit.core.errors import unknown_name
from stepcredit.environments.protocol import Task
from stepcredit.integrations.engines.generation import EnginePolicy, Generated, without_entropy
from stepcredit.integrations.engines.pool import PooledSuite
from stepcredit.integrations.engines.rows import episode_rows
from stepcredit.integrations.engines.tokens import turn_rows
from stepcredit.integrations.verl.settings import EnvironmentSettings, environment_settings
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.tokens import Codec
from stepcredit.rollouts.branch import Opening, branch
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.types import Rollout

NAME = "stepcredit"
"""The agent loop's name for verl."""

_THREADS = 1024
"""Sessions that one worker plays at once, at most; a thread mostly waits."""


def settings_of(config: DictConfig) -> EnvironmentSettings:
    """The settings under ``data.stepcredit``.

    Raises:
        OptionError: an unknown key or a value that does not fit.
    """
    given = OmegaConf.to_container(config.get("stepcredit") or OmegaConf.create({}), resolve=True)
    assert isinstance(given, dict)
    return environment_settings({str(key): value for key, value in given.items()})


@dataclass(frozen=True)
class Host:
    """What all sessions of one process share."""

    suite: PooledSuite
    tasks: dict[str, Task]
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, "stepcredit"))

    def task(self, name: str) -> Task:
        """The task of that id.

        Raises:
            OptionError: there is none.
        """
        if name not in self.tasks:
            raise unknown_name(f"task of {self.suite.name!r}:", name, self.tasks)
        return self.tasks[name]


_MAKING_HOST = threading.Lock()


def host_of(settings: bytes) -> Host:
    """The host of this process, made on first use; tasks may have to be read, so not on the event loop.

    Args:
        settings: ``EnvironmentSettings`` as JSON.
    """
    with _MAKING_HOST:
        return _make_host(settings)


@lru_cache(maxsize=1)
def _make_host(settings: bytes) -> Host:
    chosen = EnvironmentSettings.model_validate_json(settings)
    suite = PooledSuite(
        chosen.environment,
        chosen.environment_options,
        processes=chosen.processes,
        step_timeout=chosen.step_timeout,
    )
    return Host(suite, {task.id: task for split in suite.splits() for task in suite.tasks(split)})


@dataclass
class Words:
    """verl's server as a generator for one session, called from the session's thread.

    Attributes:
        versions: versions of the weights that answered so far; verl wants the first and the last.
    """

    server: Any
    loop: asyncio.AbstractEventLoop
    session: str
    sampling: dict[str, Any]
    versions: list[int] = field(default_factory=list)

    def __call__(self, prompts: list[list[int]]) -> list[Generated]:
        """One answer per prompt, asked for at the same time."""
        return asyncio.run_coroutine_threadsafe(self._answers(prompts), self.loop).result()

    async def _answers(self, prompts: list[list[int]]) -> list[Generated]:
        outputs = await asyncio.gather(
            *(
                # The same name for a session's turns keeps them on the server that has their prefix.
                self.server.generate(request_id=self.session, prompt_ids=prompt, sampling_params=dict(self.sampling))
                for prompt in prompts
            )
        )
        for output in outputs:
            for bound in ("min_global_steps", "max_global_steps"):
                if (version := output.extra_fields.get(bound)) is not None:
                    self.versions.append(int(version))
        return [Generated(output.token_ids, output.log_probs or ()) for output in outputs]


@register(NAME)
class TurnAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays one episode a session; configured by ``data.stepcredit``, see ``EnvironmentSettings``."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """One output a turn, the branches' after the root's; none where the episode never had a turn."""
        settings = settings_of(self.data_config)
        host = await self.loop.run_in_executor(None, host_of, orjson.dumps(settings.model_dump()))
        session = f"{kwargs['uid']}_{kwargs['session_id']}"
        limit = settings.max_response_tokens or self.rollout_config.response_length
        sampling = {**sampling_params, "logprobs": True, "max_tokens": limit}
        words = Words(self.server_manager, self.loop, session, sampling)
        template = load_template(settings.prompt, response_format=settings.response_format, history=settings.history)
        conversation = Conversation(template, Codec(self.tokenizer))
        policy = EnginePolicy(words, conversation, max_prompt_tokens=self.rollout_config.prompt_length)
        play = Play(
            host=host,
            settings=settings,
            policy=policy,
            task=host.task(kwargs["stepcredit_task"]),
            session=session,
            suffixes=int(kwargs["stepcredit_suffixes"]),
            temperature=float(sampling["temperature"]),
            seed=(settings.seed, int(kwargs["global_steps"]), int(kwargs["index"]), int(kwargs["session_id"])),
        )
        rollouts = await self.loop.run_in_executor(host.threads, play)
        return self._outputs(rollouts, conversation, words.versions)

    def _outputs(
        self, rollouts: Sequence[Rollout], conversation: Conversation, versions: Sequence[int]
    ) -> list[AgentLoopOutput]:
        outputs = []
        for rollout in rollouts:
            learnt = int(rollout.episode.stop != "error")
            tokens = turn_rows(rollout, conversation)
            for row, own in zip(episode_rows(rollout.episode), tokens, strict=True):
                outputs.append(
                    AgentLoopOutput(
                        prompt_ids=own.prompt.tolist(),
                        response_ids=own.completion.tolist(),
                        response_mask=[learnt] * len(own.completion),
                        response_logprobs=own.logprobs.tolist() if self.rollout_config.calculate_log_probs else None,
                        num_turns=2,
                        metrics={},
                        extra_fields={
                            "stepcredit": row,
                            "turn_scores": [],
                            "tool_rewards": [],
                            "min_global_steps": min(versions, default=None),
                            "max_global_steps": max(versions, default=None),
                        },
                    )
                )
        if outputs:
            # verl takes the last row's score for the session and copies it to all its rows.
            root = rollouts[0].episode
            outputs[-1].reward_score = sum(turn.reward - turn.penalty for turn in root.turns)
            outputs[-1].extra_fields["reward_extra_info"] = {"acc": float(root.success), "turns": len(root.turns)}
        return outputs


@dataclass(frozen=True)
class Play:
    """One session: a root episode of a task, and suffixes from one of its states where they are asked for."""

    host: Host
    settings: EnvironmentSettings
    policy: EnginePolicy
    task: Task
    session: str
    suffixes: int
    temperature: float
    seed: tuple[int, ...]

    def __call__(self) -> list[Rollout]:
        """The rollouts, root first; none where the root never had a turn."""
        settings = self.settings
        horizon = settings.horizon or self.host.suite.horizon
        rules: dict[str, Any] = {
            "horizon": horizon,
            "temperature": self.temperature,
            "response_format": settings.response_format,
            "reward_scale": settings.reward_scale,
            "invalid_penalty": settings.invalid_penalty,
            "state_key": settings.state_key,
        }
        suite = self.host.suite
        roots = list(collect(self.policy, suite, [self.task], group_size=1, seed=(0,), **rules).rollouts)
        rollouts = [_named(root, f"{self.task.id}#{self.session}") for root in roots]
        if self.suffixes and rollouts and rollouts[0].episode.stop != "error":
            root = rollouts[0]
            turn = int(np.random.default_rng(self.seed).integers(len(root.responses)))
            opening = Opening(root, turn, self.suffixes)
            rollouts += branch(self.policy, suite, [opening], seed=(0,), **rules).rollouts
        return [replace(rollout, episode=without_entropy(rollout.episode)) for rollout in rollouts]


def _named(rollout: Rollout, name: str) -> Rollout:
    """The rollout under a name that no other session of the batch has; the collector only knows this one."""
    return replace(rollout, episode=replace(rollout.episode, episode=name))
