"""One of two processes that train together: ``python -m torch.distributed.run … trl_two_processes.py AGENT OUT``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")

from tiny_agent import ENVIRONMENT_OPTIONS, HORIZON, MAX_RESPONSE_TOKENS
from transformers import AutoTokenizer
from trl import GRPOConfig

from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.trl import EnvironmentRollout, StepCreditGRPOTrainer, task_dataset
from stepcredit.rollouts.prompts import load_template

GROUP = 4


class Watched(StepCreditGRPOTrainer):
    """Writes down this process's part of the first batch."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        rows = [
            {"spans": row["stepcredit"].spans, "advantages": output["advantages"][index].tolist()}
            for index, row in enumerate(inputs)
        ]
        (Path(sys.argv[2]) / f"rank{self.accelerator.process_index}.json").write_text(json.dumps(rows))
        return output


def main(agent: str, out: Path) -> None:
    suite = make_suite("household", **ENVIRONMENT_OPTIONS)
    trainer = Watched(
        model=agent,
        args=GRPOConfig(
            output_dir=str(out),
            per_device_train_batch_size=GROUP // 2,  # a group is spread over both processes
            num_generations=GROUP,
            max_completion_length=600,
            max_steps=1,
            beta=0.0,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
        ),
        train_dataset=task_dataset(suite, "train"),
        processing_class=AutoTokenizer.from_pretrained(agent),
        rollout_func=EnvironmentRollout(
            suite, load_template("compact"), horizon=HORIZON, max_response_tokens=MAX_RESPONSE_TOKENS
        ),
        method="gigpo",
        rollout_folder=out / "rollouts",
    )
    trainer.train()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
