"""``stepcredit convert``: megabytes and turns a second, and peak memory, for logs of every format.

python benchmarks/convert_speed.py [--megabytes 32] [--formats verl trl …] [--out RESULT.json]

The logs are made here: household-like episodes with thinking, of the lengths that a training run logs. Each conversion
runs in a process of its own; seconds are those of its CPU, imports left out. Peak memory is measured with the whole log
and with an eighth of it: what streams needs as much for both.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stepcredit.integrations.convert.conversion import Choices, convert
from stepcredit.integrations.convert.write_back import write_advantages

SEED = 0
GROUP, TURNS, TOKENS = 8, 30, 120
"""Episodes of a task, turns of an episode, tokens of a response."""
SHARE = 8
"""The small log's part of the whole."""
_WORDS = ("fridge", "drawer", "shelf", "cabinet", "the", "on", "in", "mug", "plate", "open", "closed", "you", "see")

Record = dict[str, Any]


class Log:
    """Random episodes, the same for a seed."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng([SEED])

    def words(self, count: int) -> str:
        """That many random words."""
        return " ".join(_WORDS[at] for at in self._rng.integers(len(_WORDS), size=count))

    def observation(self) -> str:
        """What an environment shows, some 200 characters."""
        return f"You arrive at shelf {self._rng.integers(20)}. {self.words(40)}."

    def response(self) -> str:
        """Thinking and an action, some 400 characters."""
        action = f"go to {_WORDS[self._rng.integers(4)]} {self._rng.integers(20)}"
        return f"<think>{self.words(80)}</think><action>{action}</action>"

    def logprobs(self) -> list[float]:
        """One a token, nats."""
        return (-self._rng.exponential(0.4, TOKENS)).tolist()

    def reward(self) -> float:
        """0 or 1."""
        return float(self._rng.integers(2))

    def messages(self) -> list[Record]:
        """An episode as a chat."""
        messages = [{"role": "system", "content": "You act in a house."}]
        for _ in range(TURNS):
            messages.append({"role": "user", "content": self.observation()})
            messages.append({"role": "assistant", "content": self.response()})
        return messages


def verl(log: Log, episode: int) -> Iterator[Record]:
    """A row a turn, each with two past turns in its prompt."""
    score = log.reward()
    for turn in range(TURNS):
        past = "\n".join(f"{log.observation()}\n> go" for _ in range(min(turn, 2)))
        prompt = f"system\nYou act in a house.\nuser\n{past}\n{log.observation()}\nassistant\n"
        uid = f"{episode // GROUP:08x}_{episode % GROUP}_{turn}"
        yield {"input": prompt, "output": log.response(), "gts": None, "score": score, "step": 1, "uid": uid}


def verl_v0(log: Log, episode: int) -> Iterator[Record]:
    """A line an episode."""
    prompt = f"system\nYou act in a house.\nuser\nTask {episode // GROUP}.\nassistant\n"
    said = "".join(f"{log.response()}\nuser\n{log.observation()}\nassistant\n" for _ in range(TURNS))
    yield {"input": prompt, "output": f"{said}done", "gts": "", "score": log.reward(), "step": 1}


def trl(log: Log, episode: int) -> Iterator[Record]:
    """A row an episode."""
    prompt = [{"role": "user", "content": f"Task {episode // GROUP}."}]
    yield {
        "step": 1,
        "prompt": prompt,
        "completion": log.messages()[2:],
        "success": log.reward(),
        "advantage": 0.0,
    }


def verifiers(log: Log, episode: int) -> Iterator[Record]:
    """A trace an episode: a chain of messages, with token ids, masks and log-probabilities."""
    nodes: list[Record] = []
    for message in log.messages():
        sampled = message["role"] == "assistant"
        nodes.append(
            {
                "parent": len(nodes) - 1 if nodes else None,
                "message": message,
                "sampled": sampled,
                "token_ids": list(range(TOKENS)),
                "mask": [sampled] * TOKENS,
                "logprobs": log.logprobs() if sampled else [],
            }
        )
    trace = {"id": f"t{episode}", "nodes": nodes, "rewards": {"success": {"score": log.reward(), "weight": 1.0}}}
    yield {"id": f"e{episode}", "task": {}, "group": {"id": f"g{episode // GROUP}"}, "traces": [trace]}


def atif(log: Log, episode: int) -> Iterator[Record]:
    """A trajectory a line, with log-probabilities."""
    steps: list[Record] = [{"source": "user", "message": "Put a mug on the shelf."}]
    for _ in range(TURNS):
        call = {"function_name": "act", "arguments": {"command": f"go to shelf {len(steps)}"}}
        observation = {"results": [{"content": log.observation()}]}
        metrics = {"logprobs": log.logprobs()}
        step = {"source": "agent", "message": log.words(80), "tool_calls": [call]}
        steps.append({**step, "observation": observation, "metrics": metrics})
    extra = {"task": f"g{episode // GROUP}", "reward": log.reward()}
    yield {"schema_version": "ATIF-v1.8", "trajectory_id": f"e{episode}", "steps": steps, "extra": extra}


def skyrl(log: Log, episode: int) -> Iterator[Record]:
    """A line a turn whose prompt holds everything before it."""
    text = f"<|im_start|>system\nYou act in a house.<|im_end|>\n<|im_start|>user\nTask {episode // GROUP}."
    for turn in range(TURNS):
        prompt = f"{text}<|im_end|>\n<|im_start|>assistant\n"
        response = f"{log.response()}<|im_end|>\n"
        score = log.reward() if turn == TURNS - 1 else 0.0
        yield {
            "input_prompt": prompt,
            "output_response": response,
            "score": score,
            "stop_reason": "stop",
            "env_extras": {"task": episode // GROUP},
        }
        text = f"{prompt}{response}<|im_start|>user\n{log.observation()}"


def openai(log: Log, episode: int) -> Iterator[Record]:
    """A chat a line."""
    yield {"messages": log.messages(), "reward": log.reward(), "group": f"g{episode // GROUP}"}


FORMATS: dict[str, tuple[Callable[[Log, int], Iterator[Record]], Choices]] = {
    "verl": (verl, Choices()),
    "verl, v0": (verl_v0, Choices(group_by=("step", "input"))),
    "trl": (trl, Choices(group_by=("step", "prompt"))),
    "verifiers": (verifiers, Choices()),
    "atif": (atif, Choices(group_by=("extra.task",), reward="extra.reward")),
    "skyrl": (skyrl, Choices(group_by=("env_extras.task",))),
    "openai": (openai, Choices()),
}
BACK = "verifiers, credit back"


def write_log(name: str, path: Path, size: int) -> None:
    """Episodes until the file has ``size`` bytes."""
    make, log, episode = FORMATS[name][0], Log(), 0
    if name == "trl":
        import pyarrow
        from pyarrow import parquet

        rows, written = [], 0
        while written < size:
            rows += list(make(log, episode))
            written += len(orjson.dumps(rows[-1]))
            episode += 1
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return
    with path.open("wb") as file:
        while file.tell() < size:
            for record in make(log, episode):
                file.write(orjson.dumps(record) + b"\n")
            episode += 1


def write_credit(rollouts: Path, credit: Path) -> None:
    """An advantage for every turn, as ``assign`` writes them."""
    with rollouts.open("rb") as episodes, credit.open("wb") as out:
        for episode in map(orjson.loads, episodes):
            for turn in range(len(episode["turns"])):
                out.write(orjson.dumps({"episode": episode["episode"], "turn": turn, "advantage": 0.5}) + b"\n")


def one(name: str, path: Path, out: Path) -> Record:
    """Convert in this process; what it took."""
    began = time.process_time()
    if name == BACK:
        turns = write_advantages([path], path.with_suffix(".credit"), out).turns
    else:
        turns = convert([path], out, FORMATS[name][1]).turns
    seconds = time.process_time() - began
    return {"turns": turns, "seconds": seconds, "peak": peak_memory()}


def peak_memory() -> int:
    """Bytes this process held at most; a process's usage record would count its parent's, from before it started."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def measure(name: str, size: int, folder: Path) -> Record:
    """Every figure of one format."""
    peaks = []
    for part in (size // SHARE, size):
        path, out = folder / ("log.parquet" if name == "trl" else "log.jsonl"), folder / "out.jsonl"
        write_log(name.partition(", credit")[0], path, part)
        if name == BACK:
            convert([path], out, FORMATS["verifiers"][1])
            write_credit(out, path.with_suffix(".credit"))
        command = [sys.executable, __file__, "--one", name, str(path), str(out)]
        done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        peaks.append(round(done["peak"] / 1e6))
    megabytes = path.stat().st_size / 1e6
    return {
        "format": name,
        "megabytes": round(megabytes, 1),
        "turns": done["turns"],
        "seconds": round(done["seconds"], 2),
        "megabytes_per_second": round(megabytes / done["seconds"], 1),
        "turns_per_second": round(done["turns"] / done["seconds"]),
        "peak_mb": peaks[1],
        "peak_mb_of_an_eighth": peaks[0],
    }


def main() -> None:
    """Print a line a format, and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=32, help="of the log; of its text for parquet")
    parser.add_argument("--formats", nargs="+", choices=[*FORMATS, BACK], default=[*FORMATS, BACK])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, path, out = options.one
        print(json.dumps(one(name, Path(path), Path(out))))
        return
    rows = []
    for name in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, options.megabytes * 1_000_000, Path(folder)))
        print(json.dumps(rows[-1]))
    if options.out:
        stored = {
            "command": f"python benchmarks/convert_speed.py {' '.join(sys.argv[1:])}",
            "machine": f"two shared cores, {platform.machine()}, Python {platform.python_version()}",
            "seed": SEED,
            "rows": rows,
        }
        options.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
