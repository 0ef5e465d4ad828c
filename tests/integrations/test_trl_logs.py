"""TRL itself writes completions that ``convert`` reads, and trains with one of our environments as its own."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs TRL: scripts/test-engines trl")
os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")

from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from stepcredit.core.episodes import Episode
from stepcredit.core.files import read_episodes
from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.convert.conversion import Choices, convert
from stepcredit.integrations.environments.as_trl import TrlEnvironment, dataset_rows, environment_factory
from stepcredit.policy.tiny import build_tiny_model

FILES = Path(__file__).parent / "files"
NAME = "trl_completions.parquet"


def converted(path: Path, out: Path) -> list[Episode]:
    """The episodes of a log, without its place."""
    convert([path], out, Choices(group_by=("step", "prompt")))
    return [replace(one, episode="", extra={}) for one in read_episodes(out)]


def test_what_trl_logs_now_is_what_the_tests_read(tmp_path: Path) -> None:
    sys.path.insert(0, str(FILES))
    try:
        from make_trl import write
    finally:
        sys.path.remove(str(FILES))
    write(tmp_path)
    assert converted(tmp_path / NAME, tmp_path / "new.jsonl") == converted(FILES / NAME, tmp_path / "old.jsonl")


def test_trl_trains_with_our_environment_as_its_own(tmp_path: Path) -> None:
    pytest.importorskip("jmespath", reason="TRL reads tool calls with jmespath")
    suite = make_suite("household", families=["pick"], train=2, valid_seen=0, valid_unseen=1)
    build_tiny_model(tmp_path, ["use the tool act one command a call"], suite.entities(), seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = qwen3_chat_template
    played: list[TrlEnvironment] = []

    def watch(environments: list[TrlEnvironment], **_: Any) -> list[float]:
        played.extend(environments)
        return [0.0] * len(environments)

    trainer = GRPOTrainer(
        model=str(tmp_path),
        reward_funcs=[watch],
        args=GRPOConfig(
            output_dir=str(tmp_path),
            num_generations=2,
            per_device_train_batch_size=4,
            max_completion_length=16,
            max_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            log_completions=True,
            num_completions_to_print=0,
            logging_steps=1,
        ),
        train_dataset=Dataset.from_list(dataset_rows(suite)),
        processing_class=tokenizer,
        environment_factory=environment_factory(suite, horizon=4),
    )
    assert [tool.__name__ for tool in trainer.tools] == ["act"]
    assert trainer.reward_func_names == ["watch", "TrlEnvironment"]
    trainer.train()
    assert len(played) == 4
    # What TRL logged of it: the goal, and the reset's answer behind it.
    log = tmp_path / "completions" / "completions_00001.parquet"
    convert([log], tmp_path / "out.jsonl", Choices(group_by=("step", "prompt"), reward="TrlEnvironment"))
    episodes = list(read_episodes(tmp_path / "out.jsonl"))
    assert [len({one.task for one in episodes}), len(episodes)] == [2, 4]
    prompts = {one.turns[0].observation for one in episodes}
    expected = {
        f"{row['prompt'][0]['content']}{environment_factory(suite)().reset(**row)}" for row in dataset_rows(suite)
    }
    assert prompts == expected
