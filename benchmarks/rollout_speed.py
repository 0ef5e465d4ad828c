"""Decisions a second of a session beside plain ``model.generate`` on the same prompts, and where the time goes.

    python benchmarks/rollout_speed.py MODEL [--tasks 16] [--group 8] [--turns 10] [--free N] [--json FILE]

MODEL is a model folder: RUN/model of a run of the tiny model, or models/smollm2. The policy plays the household with
the append-only prompt; what it was asked in every round is then given to ``model.generate`` of transformers: the whole
conversation of every episode, padded on the left, 32 at once like ours, sampling at temperature 1 among the admissible
commands (``prefix_allowed_tokens_fn``). ``--free N`` decodes freely instead, at most N tokens. One core, CPU time of
this process, so other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from recorded_rows import SUITES
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM

from stepcredit.environments.catalogue import make_suite
from stepcredit.policy import generation
from stepcredit.policy.transformer import TransformerPolicy
from stepcredit.policy.trie import Node, build_trie
from stepcredit.rollouts.collect import collect
from stepcredit.rollouts.prompts import load_template
from stepcredit.rollouts.types import Request, Response, Session

BATCH = 32
SEED = 0


class Clock:
    """CPU seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add a block's duration to ``name``."""
        started = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] += time.process_time() - started

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*arguments: Any, **options: Any) -> Any:
            with self(name):
                return function(*arguments, **options)

        return timed


class Recorder:
    """A policy and its own session, which is timed and keeps what it was asked."""

    def __init__(self, policy: TransformerPolicy, clock: Clock) -> None:
        self.policy = policy
        self.clock = clock
        self.rounds: list[list[Request]] = []

    def session(self, seed: Sequence[int], *, temperature: float = 1.0) -> Session:
        """Begin the one session."""
        self._session = self.policy.session(seed, temperature=temperature)
        return self

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """As the policy does."""
        self.rounds.append(list(requests))
        with self.clock("respond"):
            return self._session.respond(requests)

    def finish(self, key: int) -> None:
        """As the policy does."""
        self._session.finish(key)


def play(policy: TransformerPolicy, arguments: argparse.Namespace) -> tuple[list[list[Request]], dict[str, float]]:
    """Rounds of requests, and CPU seconds: all of it, and its parts."""
    clock = Clock()
    model, conversation = policy.model, policy.conversation
    model.logits = clock.wrap("model", model.logits)  # type: ignore[method-assign]
    plain_draw = generation.draw
    generation.draw = clock.wrap("draw", plain_draw)
    prompts = clock.wrap("prompts", type(conversation).prompts)
    type(conversation).prompts = lambda self, requests: prompts(self, requests)  # type: ignore[method-assign]
    recorder = Recorder(policy, clock)
    suite = make_suite("household", **SUITES["household"])
    with clock("collect"):
        collect(
            recorder,
            suite,
            suite.tasks("train")[: arguments.tasks],
            group_size=arguments.group,
            horizon=arguments.turns,
            seed=[SEED],
        )
    return recorder.rounds, dict(clock.seconds)


def generate(policy: TransformerPolicy, folder: Path, rounds: Sequence[Sequence[Request]], limit: int | None) -> float:
    """CPU seconds that ``model.generate`` takes for the same prompts."""
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    conversation = policy.conversation
    eos = conversation.codec.eos
    seconds = 0.0
    for requests in rounds:
        for start in range(0, len(requests), BATCH):
            own = requests[start : start + BATCH]
            prompts = [
                [token for chunk in chunks for token in chunk.tolist()]
                for chunks in (
                    [*conversation.context(one.goal, one.history, one.horizon), *conversation.prompts([one])]
                    for one in own
                )
            ]
            width = max(map(len, prompts))
            ids = torch.tensor([[eos] * (width - len(prompt)) + prompt for prompt in prompts])
            mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
            tries = [build_trie({text: conversation.codec.response(text) for text in one.admissible}) for one in own]
            longest = max(len(path) for trie in tries for path, _ in trie.paths())
            started = time.process_time()
            with torch.no_grad():
                module.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    do_sample=True,
                    top_k=0,
                    max_new_tokens=limit or longest,
                    pad_token_id=eos,
                    eos_token_id=eos,
                    prefix_allowed_tokens_fn=None if limit else _allowed(tries, width, eos),
                )
            seconds += time.process_time() - started
    return seconds


def _allowed(tries: Sequence[Node], width: int, eos: int) -> Callable[[int, torch.Tensor], list[int]]:
    def allowed(row: int, tokens: torch.Tensor) -> list[int]:
        node = tries[row]
        for token in tokens[width:].tolist():
            if token not in node.children:
                return [eos]
            node = node.children[token]
        return list(node.children) or [eos]

    return allowed


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--group", type=int, default=8, help="episodes a task")
    parser.add_argument("--turns", type=int, default=10, help="turns an episode may take")
    parser.add_argument("--free", type=int, metavar="N", help="decode freely, at most N tokens")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    policy = TransformerPolicy.from_folder(
        arguments.model,
        load_template("compact"),
        workers=1,
        constrained=arguments.free is None,
        max_response_tokens=arguments.free or 64,
    )
    rounds, seconds = play(policy, arguments)
    decisions = sum(map(len, rounds))
    plain = generate(policy, arguments.model, rounds, arguments.free)
    respond = seconds["respond"]
    table = Table(title=f"{decisions:,} decisions of {arguments.model}, one core")
    for column in ("what", "decisions/s", "share of the session's time"):
        table.add_column(column, justify="left" if column == "what" else "right")
    table.add_row("session", f"{decisions / respond:,.1f}", "")
    table.add_row("model.generate", f"{decisions / plain:,.1f}", "")
    table.add_row("session and environments", f"{decisions / seconds['collect']:,.1f}", "")
    shares = {name: seconds[name] / respond for name in ("model", "draw", "prompts")}
    shares["the rest: tries, bookkeeping"] = 1 - sum(shares.values())
    for name, share in shares.items():
        table.add_row(f"  {name}", "", f"{share:.0%}")
    Console().print(table)
    print(f"{plain / respond:.1f} times model.generate")
    if arguments.json is not None:
        record = {
            "model": arguments.model.name,
            "tasks": arguments.tasks,
            "group": arguments.group,
            "turns": arguments.turns,
            "free": arguments.free,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "decisions": decisions,
            "decisions per second": {
                "session": decisions / respond,
                "generate": decisions / plain,
                "session and environments": decisions / seconds["collect"],
            },
            "shares": shares,
        }
        arguments.json.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
