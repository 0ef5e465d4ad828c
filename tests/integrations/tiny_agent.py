"""A tiny model that has learnt two household tasks half: some episodes win, some fail, some responses are invalid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from stepcredit.environments.catalogue import make_suite
from stepcredit.policy.settings import ImitateSettings
from stepcredit.policy.tiny import build_tiny_model
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.prompts import load_template
from stepcredit.training.demonstrations import demonstrate

ENVIRONMENT_OPTIONS: dict[str, Any] = {"families": ["pick"], "train": 2, "valid_seen": 1, "valid_unseen": 1}
HORIZON = 8
MAX_RESPONSE_TOKENS = 8
EPOCHS = 30


def build_agent(folder: Path) -> None:
    """Write the model into a folder; the same bits every time."""
    torch.set_num_threads(1)
    suite = make_suite("household", **ENVIRONMENT_OPTIONS)
    tasks = list(suite.tasks("train")) * 6
    rollouts, weight = demonstrate(suite, tasks, noise=0.5, horizon=HORIZON, seed=(0,))
    texts = [text for one in rollouts for turn in one.episode.turns for text in (turn.observation, turn.action)]
    goals = [rollout.goal for rollout in rollouts]
    build_tiny_model(folder, [*texts, *goals, "nothing happens."], suite.entities(), seed=0)
    policy = TransformerPolicy.from_folder(folder, load_template("compact"), constrained=False, workers=1)
    for epoch in range(EPOCHS):
        policy.imitate(rollouts, np.asarray(weight), ImitateSettings(lr=3e-3, minibatch=6), seed=(0, epoch))
    policy.save(folder)
