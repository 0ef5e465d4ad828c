"""A real OpenAI-compatible server: `transformers serve` with a small model that knows its task teaches another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.utils.import_utils import is_serve_available

from stepcredit.cli import main
from stepcredit.environments.chain import ChainSuite
from stepcredit.policy.settings import ImitateSettings
from stepcredit.policy.tiny import build_tiny_model
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.rollouts.responses import parse_response
from stepcredit.training.chats import CHAT, Chat, chat_rollouts, read_chats

pytestmark = pytest.mark.slow

TEMPLATE = "{goal}\n{observation}\n{history}"
SUITE = ChainSuite(length=3, doors=2)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that thinks, then opens the right door."""
    if not is_serve_available():
        pytest.skip("transformers serve needs fastapi, uvicorn and openai")
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("teacher")
    chats = []
    for task in SUITE.tasks("train")[:40]:
        environment = SUITE.make(task)
        observation, info = environment.reset()
        past = "(nothing)"
        while not info["won"]:
            command = str(environment.right_command)
            prompt = TEMPLATE.format(goal=task.goal, observation=observation, history=past)
            answer = f"<think>the lamp tells</think><action>{command}</action>"
            chats.append(Chat("", task.id, (prompt,), (answer,), (1.0,)))
            past = f"Turn 1 saw: {observation}\nTurn 1 did: {command}"
            observation, *_, info = environment.step(command)
    build_tiny_model(folder / "first", [text for chat in chats for text in (*chat.prompts, *chat.answers)], [], seed=0)
    policy = TransformerPolicy.from_folder(folder / "first", CHAT, constrained=False)
    rollouts, weight = chat_rollouts(chats)
    for epoch in range(12):
        policy.imitate(rollouts, weight, ImitateSettings(lr=3e-3, minibatch=8, observation_weight=0.0), (epoch,))
    assert policy.response_nll(rollouts, np.ones(len(rollouts))) < 0.05
    policy.save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def server(teacher: Path) -> Iterator[str]:
    """Address of the running server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(teacher), "--device", "cpu"]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            assert process.poll() is None, "the server ended"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                    break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def test_a_served_model_demonstrates(server: str, teacher: Path, tmp_path: Path) -> None:
    out, template = tmp_path / "demos.jsonl", tmp_path / "template.txt"
    template.write_text(TEMPLATE)
    command = (
        f"demonstrate {out} --env stepcredit.environments.chain:ChainSuite --split test --tasks 6 --horizon 6 "
        f"--prompt {template} --history 1 --endpoint {server} --model {teacher} --temperature 0 "
        "--max-response-tokens 40 --concurrency 2"
    )
    with pytest.raises(SystemExit) as done:
        main(command.split())
    assert not done.value.code
    chats = read_chats(out)
    assert len({chat.task for chat in chats}) >= 4
    for chat in chats:
        doors = [f"open {colour} door" for colour in ("blue", "red")]
        parsed = parse_response(chat.answers[0], doors, "think-action")
        assert parsed.valid, chat
        lamp = next(colour for colour in ("blue", "red") if f"A {colour} lamp" in chat.prompts[0].split("Turn")[0])
        assert parsed.action == f"open {lamp} door"
