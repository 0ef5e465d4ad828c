"""From what a command line names (a run, a model, an endpoint) to the agent that is evaluated."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stepcredit.core.errors import CheckpointError, OptionError
from stepcredit.environments.protocol import TaskSuite
from stepcredit.evaluation.agents import REFLEXION_TRIALS, Agent
from stepcredit.evaluation.protocols import Protocol
from stepcredit.policy.endpoint import ChatEndpoint
from stepcredit.policy.endpoint_policy import EndpointPolicy
from stepcredit.policy.limits import PromptLimit
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.react import RESPONSE_FORMAT, VERBATIM, ReActPolicy
from stepcredit.rollouts.responses import ResponseFormat
from stepcredit.rollouts.types import Policy
from stepcredit.training.build import build_policy
from stepcredit.training.config import TrainConfig, make_config
from stepcredit.training.run_folder import RunFolder

Prompting = Literal["plain", "react", "reflexion"]

_WHOLE = 64 << 20
"""Bytes of a file that are all hashed; of a longer one the first and the last few."""
_SAMPLE = 1 << 20
_CHAT_MODEL: Mapping[str, Any] = {"prompt": "chat", "response_format": RESPONSE_FORMAT, "constrained": False}
"""How a model that no recipe of ours trained is asked: in words, answering in words."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is evaluated, before its environment is known.

    Attributes:
        name: run folder, model folder or hub name; the server's name of the model where there is an endpoint.
        config: the run's recipe, or how a bare model is asked.
        run: the run folder, where it is one.
        checkpoint: folder of the policy in it.
        endpoint: who answers instead of a local model.
    """

    name: str
    config: TrainConfig
    run: RunFolder | None = None
    checkpoint: Path | None = None
    endpoint: ChatEndpoint | None = None


def find_target(
    name: str, changes: Mapping[str, Any], *, at_start: bool = False, endpoint: ChatEndpoint | None = None
) -> Target:
    """The target of a name.

    Args:
        name: run folder, model folder, hub name, ``tiny`` or ``linear``; with an endpoint any text.
        changes: recipe keys that replace the run's, or those a bare model is asked with.
        at_start: the policy a run's reinforcement learning began from, instead of its newest.
        endpoint: where the model is served.

    Raises:
        OptionError: an unknown recipe key or a value that does not fit.
        CheckpointError: a run without the checkpoint that is asked for.
    """
    run = RunFolder(Path(name))
    # A model folder has a config.json too.
    is_run = run.config_file.exists() and any((run.path / part).exists() for part in ("lock", "checkpoints"))
    if endpoint is not None or not is_run:
        if at_start:
            raise OptionError(f"--at-start is about runs, and {name!r} is none.")
        ours = endpoint is None and name in ("tiny", "linear")
        model = "linear" if endpoint is not None else name  # the recipe's model is not used then
        return Target(
            name, make_config({"model": model, **({} if ours else _CHAT_MODEL), **changes}), endpoint=endpoint
        )
    config = make_config({**run.read_config(), **changes})
    if at_start:
        return Target(name, config, run, run.path / "start")
    found = run.latest()
    if found is None:
        raise CheckpointError(f"{name!r} has no checkpoint yet; let it train for a while.")
    return Target(name, config, run, found[1])


def identify(target: Target, prompting: Prompting) -> dict[str, Any]:
    """What tells this agent from others, as plain values; an evaluation is only continued with the same one."""
    config = target.config
    who: dict[str, Any] = {"name": Path(target.name).name if Path(target.name).exists() else target.name}
    if target.endpoint is not None:
        who["endpoint"] = target.endpoint.base_url
    else:
        folder = target.checkpoint or Path(target.name)
        who["checkpoint"] = folder.name if target.checkpoint else None
        who["weights"] = _fingerprint(folder) if folder.is_dir() else None
        who["constrained"] = config.constrained and prompting == "plain"
    who["prompting"] = prompting
    who["prompt"] = config.prompt if prompting == "plain" else prompting
    who["response_format"] = config.response_format if prompting == "plain" else RESPONSE_FORMAT
    return who


def build_agent(target: Target, prompting: Prompting, suite: TaskSuite, protocol: Protocol, scratch: Path) -> Agent:
    """The agent, ready to play.

    Args:
        target: what is evaluated.
        prompting: ``plain``: as its recipe asks it; ``react``, ``reflexion``: prompting baselines.
        suite: gives the tiny model its words.
        protocol: history and token limits.
        scratch: folder for files that only a bare tiny model needs.

    Raises:
        OptionError: a prompting baseline without a language model, or an endpoint that is asked for commands alone.
    """
    response_format: ResponseFormat = target.config.response_format
    if target.endpoint is not None:
        template = VERBATIM
        if prompting == "plain":
            template = load_template(target.config.prompt, response_format=response_format, history=protocol.history)
        speaker: Policy = EndpointPolicy(target.endpoint, template, max_response_tokens=protocol.response_tokens)
    else:
        speaker = _local(target, prompting, suite, protocol, scratch)
    if prompting == "plain":
        return Agent(speaker, response_format)
    policy = ReActPolicy(speaker, history=protocol.history)
    if prompting == "react":
        return Agent(policy, RESPONSE_FORMAT)
    return Agent(policy, RESPONSE_FORMAT, trials=REFLEXION_TRIALS, speaker=speaker)


def _local(target: Target, prompting: Prompting, suite: TaskSuite, protocol: Protocol, scratch: Path) -> Policy:
    """The model of a folder, hub name or run, asked as its recipe says or with whole messages."""
    if target.config.model == "linear":
        if prompting != "plain":
            raise OptionError(f"{prompting!r} needs a language model, and 'linear' is none.")
        return _load(target, suite, scratch)
    from stepcredit.policy.conversation import Conversation
    from stepcredit.policy.transformer import TransformerPolicy

    asked = target.config.model_copy(
        update={"history": protocol.history, "max_response_tokens": protocol.response_tokens}
    )
    policy = _load(Target(target.name, asked, target.run, target.checkpoint), suite, scratch)
    assert isinstance(policy, TransformerPolicy)
    if prompting != "plain":
        policy.conversation = Conversation(VERBATIM, policy.conversation.codec)
        policy.constrained = False
    if protocol.prompt_tokens is None:
        return policy
    return PromptLimit(policy, policy.conversation, protocol.prompt_tokens)


def _load(target: Target, suite: TaskSuite, scratch: Path) -> Policy:
    policy = build_policy(target.config, suite, target.run.path if target.run else scratch)
    if target.checkpoint is not None:
        policy.load(target.checkpoint)
    return policy


def _fingerprint(folder: Path) -> str:
    """A short hash of a model folder's files: names, sizes and contents, of long files the beginning and the end."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as opened:
            if size <= _WHOLE:
                digest.update(opened.read())
            else:
                digest.update(opened.read(_SAMPLE))
                opened.seek(-_SAMPLE, 2)
                digest.update(opened.read())
    return digest.hexdigest()[:16]
