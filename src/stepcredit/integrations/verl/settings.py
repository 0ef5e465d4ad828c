"""The keys under ``data.stepcredit`` of verl's configuration: which environment is played, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stepcredit.training.config import Count, NonNegative, Positive, checked


class EnvironmentSettings(BaseModel):
    """What our dataset and agent loop need to know; given as ``+data.stepcredit.KEY=VALUE``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    environment: str = Field("household", description="name in `stepcredit envs`")
    environment_options: dict[str, Any] = Field(default_factory=dict, description="options of the environment")
    prompt: str = Field("chat", description="built-in template name or a template file")
    history: Count = Field(2, description="past turns a re-rendered prompt shows, turns")
    response_format: Literal["action", "think-action"] = Field("action", description="what a response looks like")
    horizon: Positive | None = Field(None, description="turns an episode may take; the environment's own without it")
    max_response_tokens: Positive | None = Field(
        None, description="token limit of a response; `data.max_response_length` without it"
    )
    reward_scale: NonNegative = Field(10.0, description="reward units per unit of the environment's reward")
    invalid_penalty: NonNegative = Field(0.1, description="cost of an invalid response, reward units")
    state_key: Literal["environment", "observation"] = Field("environment", description="what a state is known by")
    processes: Positive = Field(2, description="processes that hold environments, per agent-loop worker")
    step_timeout: Annotated[float, Field(gt=0)] = Field(120.0, description="seconds an environment may take for a step")
    suffixes: Count = Field(0, description="branches a root episode gets at a random state of its own")
    root: Literal["shuffle", "fitted", "uniform"] = Field("shuffle", description="how tasks and quotas are chosen")
    group_size: Positive | None = Field(
        None, description="episodes a task on average where an allocator sets the quotas"
    )
    allocation_options: dict[str, Any] = Field(default_factory=dict, description="options of the allocator")
    seed: Count = Field(0, description="fixes the allocator's draws and where suffixes leave")


def environment_settings(values: Mapping[str, Any]) -> EnvironmentSettings:
    """Checked settings.

    Raises:
        OptionError: an unknown key or a value that does not fit; one sentence naming the key.
    """
    return checked(
        EnvironmentSettings, values, unknown="key under data.stepcredit:", known=lambda key: f"data.stepcredit.{key}"
    )
