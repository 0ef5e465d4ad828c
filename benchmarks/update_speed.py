"""Tokens a second and peak memory of one update: padded rows, packed rows, the prefix tree, and TRL's trainer.

    python benchmarks/update_speed.py MODEL [--turns 10] [--repeats 3] [--batch NAME …] [--trl PYTHON] [--json FILE]

MODEL is a model folder: RUN/model of a run of the tiny model, or models/smollm2. Every variant makes the same update of
the same rows (gradient of the clipped loss over all of them, one AdamW step) in a process of its own on one core, with
the same limit on tokens in one forward pass, padding included:

* padded: rows filled up to the longest, the model's own attention with a mask, logits of response tokens only;
* packed: rows end to end without padding;
* tree: what rows begin with alike computed once;
* trl: GRPOTrainer's loss on the padded rows, run by the interpreter of an environment that has TRL (.venv-trl).

Tokens a second count every row's tokens once, whatever a variant computes for them, in CPU time, so other work on the
machine does not count. Memory is the peak above what the loaded model needs.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

HERE = Path(__file__).parent
VARIANTS = ("padded", "packed", "tree", "trl")
MICRO_BATCH_TOKENS = 4096
LEARNING_RATE = 1e-6


def measured(update: Callable[[], object], repeats: int) -> dict[str, float]:
    """Peak memory of the first update above what was there before, MB, and CPU seconds of the fastest of the others.

    Without repetitions the first one counts, which costs a model of a minute an update little.
    """
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status(status, "VmRSS")
    started = time.process_time()
    update()
    seconds = math.inf if repeats else time.process_time() - started
    memory = (_status(status, "VmHWM") - before) / 1e3
    for _ in range(repeats):
        started = time.process_time()
        update()
        seconds = min(seconds, time.process_time() - started)
    return {"seconds": seconds, "memory": memory}


def _status(file: Path, name: str) -> float:
    (line,) = (line for line in file.read_text().splitlines() if line.startswith(name))
    return float(line.split()[1])


def packed_update(model: Path, sequences: Sequence[Any], advantage: np.ndarray, *, share: bool) -> Callable[[], object]:
    """Our update, with or without sharing what rows begin with."""
    from stepcredit.policy import packing
    from stepcredit.policy.gradient import backward_policy
    from stepcredit.policy.loading import load_model
    from stepcredit.policy.optimizer import Optimizer
    from stepcredit.policy.settings import Objective

    if not share:
        packing.LEAST_SHARE = math.inf
    packed, _ = load_model(model, workers=1)
    optimizer = Optimizer(packed.module)

    def update() -> None:
        backward_policy(packed, sequences, advantage, Objective(), micro_batch_tokens=MICRO_BATCH_TOKENS)
        packed.workers.call(lambda: optimizer.step(0.0, lr=LEARNING_RATE, max_grad_norm=1.0))

    return update


def padded_update(model: Path, sequences: Sequence[Any], advantage: np.ndarray) -> Callable[[], object]:
    """The same loss from padded rows."""
    from transformers import AutoModelForCausalLM

    from stepcredit.policy.losses import policy_loss
    from stepcredit.policy.optimizer import Optimizer
    from stepcredit.policy.settings import Objective

    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").eval()
    optimizer = Optimizer(module)
    total = sum(len(one.target) for one in sequences)

    def update() -> None:
        for batch in padded_batches(sequences, advantage):
            hidden = module.model(
                input_ids=batch["ids"], attention_mask=batch["mask"], use_cache=False
            ).last_hidden_state
            learnt = batch["learnt"]
            logp = torch.log_softmax(module.lm_head(hidden[learnt]), dim=-1)
            logprob = logp.gather(1, batch["target"][learnt][:, None])[:, 0]
            entropy = -(logp.exp() * logp).sum(-1)
            loss, _ = policy_loss(
                Objective(),
                logprob=logprob,
                old=torch.full_like(logprob, math.log(0.01)),
                advantage=batch["advantage"][learnt],
                turn=torch.arange(len(logprob)),
                turns=len(logprob),
                weight=torch.full_like(logprob, 1 / total),
                entropy=entropy.detach(),
            )
            loss.backward()
        optimizer.step(0.0, lr=LEARNING_RATE, max_grad_norm=1.0)

    return update


def padded_batches(sequences: Sequence[Any], advantage: np.ndarray) -> list[dict[str, Tensor]]:
    """Rows in their order, as many at once as fit the limit, filled up on the right.

    ``learnt`` marks the places whose successor, in ``target``, is a response token.
    """
    size = max(MICRO_BATCH_TOKENS // max(len(one.tokens) for one in sequences), 1)
    batches = []
    for start in range(0, len(sequences), size):
        own = sequences[start : start + size]
        shape = (len(own), max(len(one.tokens) for one in own))
        batch = {name: torch.zeros(shape, dtype=torch.int64) for name in ("ids", "mask", "target")}
        batch["learnt"] = torch.zeros(shape, dtype=torch.bool)
        batch["advantage"] = torch.zeros(shape)
        for row, one in enumerate(own):
            batch["ids"][row, : len(one.tokens)] = torch.from_numpy(one.tokens)
            batch["mask"][row, : len(one.tokens)] = 1
            batch["target"][row, one.place] = torch.from_numpy(one.target).long()
            batch["learnt"][row, one.place] = True
            batch["advantage"][row, one.place] = torch.from_numpy(advantage[one.turn]).float()
        batches.append(batch)
    return batches


def run_variant(variant: str, model: Path, batch: str, turns: int, repeats: int) -> dict[str, float]:
    """One variant on one batch, in this process."""
    from recorded_rows import advantages, describe, rows

    torch.set_num_threads(1)
    sequences = rows(batch, model, turns)
    advantage = advantages(sequences)
    if variant == "trl":
        from update_speed_trl import trl_update

        update = trl_update(model, padded_batches(sequences, advantage), LEARNING_RATE)
    elif variant == "padded":
        update = padded_update(model, sequences, advantage)
    else:
        update = packed_update(model, sequences, advantage, share=variant == "tree")
    return {**describe(sequences), **measured(update, repeats)}


def run_apart(python: Path, variant: str, arguments: argparse.Namespace, batch: str) -> dict[str, float]:
    """One variant on one batch in a process of its own."""
    command = [str(python), __file__, str(arguments.model), "--variant", variant, "--batch", batch]
    command += ["--turns", str(arguments.turns), "--repeats", str(arguments.repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{variant} on {batch!r} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Measure, print, write."""
    from recorded_rows import BATCHES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("--turns", type=int, default=10, help="turns an episode may take")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions; the fastest counts, the first update if 0")
    parser.add_argument("--batch", nargs="+", choices=BATCHES, default=list(BATCHES), help="which batches")
    parser.add_argument("--trl", type=Path, default=HERE.parent / ".venv-trl/bin/python", help="interpreter with TRL")
    parser.add_argument("--variant", choices=VARIANTS, help="measure this one here and print its figures")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.variant:
        (batch,) = arguments.batch
        figures = run_variant(arguments.variant, arguments.model, batch, arguments.turns, arguments.repeats)
        print(json.dumps(figures))
        return
    variants = VARIANTS if arguments.trl.exists() else VARIANTS[:-1]
    if not arguments.trl.exists():
        print(f"No {arguments.trl}: TRL is left out; scripts/setup-engine makes it.", file=sys.stderr)
    table = Table(title=f"One update of {arguments.model.name}, one core: tokens/s (MB)")
    for column in ("batch", "tokens", "each once", *variants):
        table.add_column(column, justify="left" if column == "batch" else "right")
    results: dict[str, dict[str, Any]] = {}
    for batch in arguments.batch:
        found = {
            variant: run_apart(arguments.trl if variant == "trl" else Path(sys.executable), variant, arguments, batch)
            for variant in variants
        }
        one = found["tree"]
        speeds = {variant: one["tokens"] / figures["seconds"] for variant, figures in found.items()}
        cells = (f"{speeds[variant]:,.0f} ({found[variant]['memory']:,.0f})" for variant in variants)
        table.add_row(batch, *(f"{one[name]:,}" for name in ("tokens", "distinct")), *cells)
        results[batch] = {
            **{name: one[name] for name in ("rows", "tokens", "padded", "distinct", "learnt")},
            "tokens per second": speeds,
            "memory, MB": {variant: figures["memory"] for variant, figures in found.items()},
        }
    Console().print(table)
    if arguments.json is not None:
        record = {
            "command": f"benchmarks/update_speed.py MODEL --turns {arguments.turns} --repeats {arguments.repeats}",
            "model": arguments.model.name,
            "micro_batch_tokens": MICRO_BATCH_TOKENS,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "batches": results,
        }
        arguments.json.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
