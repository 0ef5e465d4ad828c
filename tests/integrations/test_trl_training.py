"""Inside TRL: two updates of a tiny model on household episodes, with credit by turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs TRL: scripts/test-engines trl")
os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")

import torch
from tiny_agent import ENVIRONMENT_OPTIONS, HORIZON, MAX_RESPONSE_TOKENS
from transformers import AutoTokenizer
from trl import GRPOConfig

from stepcredit.core.errors import OptionError
from stepcredit.core.files import read_episodes, read_turns
from stepcredit.credit.catalogue import assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.engines.examine import examine
from stepcredit.integrations.engines.installed import TRL
from stepcredit.integrations.trl import EnvironmentRollout, StepCreditGRPOTrainer, task_dataset
from stepcredit.rollouts.prompts import load_template

GROUP = 4
pytestmark = pytest.mark.timeout(1500)


class Watched(StepCreditGRPOTrainer):
    """Keeps what every generation batch became."""

    seen: list[dict[str, Any]]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.seen.append({"played": [row["stepcredit"] for row in inputs], **output})
        return output


def make_trainer(agent: Path, out: Path, **options: Any) -> Watched:
    suite = make_suite("household", **ENVIRONMENT_OPTIONS)
    rollout = EnvironmentRollout(
        suite, load_template("compact"), horizon=HORIZON, max_response_tokens=MAX_RESPONSE_TOKENS
    )
    arguments = GRPOConfig(
        output_dir=str(out),
        per_device_train_batch_size=2 * GROUP,
        num_generations=GROUP,
        max_completion_length=600,
        max_steps=2,
        learning_rate=1e-3,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
        seed=3,
    )
    trainer = Watched(
        model=str(agent),
        args=arguments,
        train_dataset=task_dataset(suite, "train"),
        processing_class=AutoTokenizer.from_pretrained(agent),
        rollout_func=rollout,
        rollout_folder=out / "rollouts",
        **options,
    )
    trainer.seen = []
    return trainer


@pytest.fixture(scope="module", params=[("graft", {"lam": 0.8}), ("gaca", {})], ids=lambda param: param[0])
def trained(request: pytest.FixtureRequest, agent_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    method, options = request.param
    trainer = make_trainer(agent_folder, tmp_path_factory.mktemp(method), method=method, method_options=options)
    trainer.before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    return trainer


def test_advantages_equal_assign_on_the_written_rollouts(trained: Watched) -> None:
    files = sorted(trained.rollout_folder.iterdir())
    assert [file.name for file in files] == ["000000.jsonl", "000001.jsonl"]
    spread = 0.0
    for file, batch in zip(files, trained.seen, strict=True):
        turns = read_turns(file)
        credit = assign(turns, trained.method, **trained.method_options)
        names = [played.episode.task for played in batch["played"]]
        assert [turns.task_names[task] for task in turns.episode_task] == names
        for row, played in enumerate(batch["played"]):
            expected = credit.advantage[turns.start[row] : turns.start[row + 1]]
            got = batch["advantages"][row]
            for value, (start, end) in zip(expected, played.spans, strict=True):
                np.testing.assert_allclose(got[start:end], value, atol=1e-5)
        spread = max(spread, float(credit.advantage.std()))
    assert spread > 0.1  # the comparison is not one of zeros


def test_only_tokens_the_policy_wrote_are_learnt(trained: Watched) -> None:
    for batch in trained.seen:
        learnt = batch["tool_mask"] * batch["completion_mask"]
        for row, played in enumerate(batch["played"]):
            written = torch.zeros_like(learnt[row])
            for start, end in played.spans:
                written[start:end] = 1
            assert torch.equal(learnt[row], written)
            assert not batch["advantages"][row][written == 0].any()
        assert batch["num_items_in_batch"] == learnt.sum()


def test_recorded_log_probabilities_are_the_models(trained: Watched) -> None:
    batch = trained.seen[0]
    episodes = list(read_episodes(sorted(trained.rollout_folder.iterdir())[0]))
    for played, written in zip(batch["played"], episodes, strict=True):
        assert [turn.nll for turn in played.episode.turns] == pytest.approx([turn.nll for turn in written.turns])
        assert all(turn.entropy is not None and turn.entropy >= 0 for turn in written.turns)
    model = trained.model
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(trained.before[name])
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        width = batch["completion_ids"].shape[1]
        logits = model(input_ids=ids, attention_mask=mask).logits[:, -width - 1 : -1]
        expected = torch.log_softmax(logits, -1).gather(2, batch["completion_ids"][..., None])[..., 0]
    for row, played in enumerate(batch["played"]):
        for turn, (start, end) in zip(played.episode.turns, played.spans, strict=True):
            np.testing.assert_allclose(turn.logprobs, expected[row, start:end], atol=1e-4)


def test_weights_moved(trained: Watched) -> None:
    norms = [line["grad_norm"] for line in trained.state.log_history if "grad_norm" in line]
    assert len(norms) == 2
    assert all(norm > 0 for norm in norms)
    assert all("stepcredit/mean_abs_advantage" in line for line in trained.state.log_history if "grad_norm" in line)


def test_a_group_spread_over_processes_is_one_group(agent_folder: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("trl_two_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    done = subprocess.run(
        [*command, str(script), str(agent_folder), str(tmp_path)], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-4000:]
    turns = read_turns(tmp_path / "rollouts" / "000000.jsonl")
    assert len(turns.task_names) == 1
    assert len(turns.episode_names) == 4
    credit = assign(turns, "gigpo")
    rows = [row for rank in (0, 1) for row in json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8"))]
    for index, row in enumerate(rows):
        expected = credit.advantage[turns.start[index] : turns.start[index + 1]]
        for value, (start, end) in zip(expected, row["spans"], strict=True):
            np.testing.assert_allclose(row["advantages"][start:end], value, atol=1e-5)


def test_doctor_finds_nothing_wrong() -> None:
    report = examine(TRL)
    assert report.version is not None
    assert report.problems == ()


def test_mistakes_are_named(agent_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="append-only"):
        EnvironmentRollout(make_suite("household", **ENVIRONMENT_OPTIONS), load_template("chat"))
    with pytest.raises(OptionError, match="graft"):
        make_trainer(agent_folder, tmp_path, method="grafd")
    trainer = make_trainer(agent_folder, tmp_path)
    with pytest.raises(OptionError, match="'gae' needs 'values' for every turn, which TRL has no model for"):
        make_trainer(agent_folder, tmp_path, method="gae")
    with pytest.raises(OptionError, match="Unknown task"):
        trainer.rollout_func(["no such task"], trainer)
