"""Log-probabilities of whole commands: every admissible one in one forward pass, the prompt and shared words once.

Playing needs none of this. A session draws a command by walking the trie of the admissible ones and computes only the
tokens on the walked path where there is a choice; all commands together have many times as many. It pays where the
whole distribution is wanted: exact entropies and divergences, or what else a policy might have said.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from stepcredit.core.credit import IntArray
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.gradient import read_in_parts
from stepcredit.policy.model import PackedModel
from stepcredit.policy.sequences import PolicySequence
from stepcredit.policy.trie import Node, build_trie
from stepcredit.rollouts.responses import concrete
from stepcredit.rollouts.types import Request


def command_logprobs(
    model: PackedModel,
    conversation: Conversation,
    requests: Sequence[Request],
    *,
    constrained: bool,
    temperature: float,
    micro_batch_tokens: int,
) -> list[dict[str, float]]:
    """log π(command | context) of every admissible command, nats, by request.

    Args:
        model: the policy's model.
        conversation: how requests become tokens.
        requests: where each stands; every one with admissible commands.
        constrained: π is renormalised over the tokens that continue some admissible command, so that the commands'
            probabilities add up to 1; else π is over the whole vocabulary, end of sequence included.
        temperature: of the softmax, > 0.
        micro_batch_tokens: input tokens in one forward pass.

    Raises:
        InputError: no admissible commands, or two that the tokenizer cannot tell apart.
    """
    sequences: list[PolicySequence] = []
    commands: list[tuple[int, str]] = []
    for place, (request, prompt) in enumerate(zip(requests, conversation.prompts(requests), strict=True)):
        context = [*conversation.context(request.goal, request.history, request.horizon), prompt]
        before = np.concatenate(context)
        trie = build_trie({text: conversation.codec.response(text) for text in concrete(request.admissible)})
        for path, command in trie.paths():
            allowed = _allowed(trie, path) if constrained else [()] * len(path)
            sequences.append(_sequence(before, path, allowed, len(commands), temperature))
            commands.append((place, command))
    lengths = [len(sequence.target) for sequence in sequences]
    read = read_in_parts(model, sequences, micro_batch_tokens, lambda reading: reading.logprob, lengths)
    found: list[dict[str, float]] = [{} for _ in requests]
    for (place, command), logprob in zip(commands, read, strict=True):
        found[place][command] = float(logprob.sum(dtype=torch.float64))
    return found


def _allowed(trie: Node, path: Sequence[int]) -> list[tuple[int, ...]]:
    """The tokens that may come at each place of a path."""
    allowed = []
    node = trie
    for token in path:
        allowed.append(tuple(node.children))
        node = node.children[token]
    return allowed


def _sequence(
    before: IntArray, path: Sequence[int], allowed: Sequence[Sequence[int]], turn: int, temperature: float
) -> PolicySequence:
    target = np.array(path, dtype=np.int32)
    return PolicySequence(
        tokens=np.concatenate([before, target[:-1]]),
        place=np.arange(len(before) - 1, len(before) - 1 + len(path), dtype=np.int32),
        target=target,
        turn=np.full(len(path), turn, dtype=np.int32),
        logprob=np.zeros(len(path)),
        temperature=np.full(len(path), temperature),
        allowed=np.array([token for tokens in allowed for token in tokens], dtype=np.int32),
        allowed_count=np.array([len(tokens) for tokens in allowed], dtype=np.int32),
    )
