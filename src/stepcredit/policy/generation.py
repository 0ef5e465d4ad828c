"""Batched generation: a session answers many growing episodes together, each from its own cache row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from stepcredit.core.credit import FloatArray, IntArray
from stepcredit.policy.cache import RaggedCache
from stepcredit.policy.conversation import Conversation
from stepcredit.policy.model import PackedModel
from stepcredit.policy.tokens import Choices, TokenRecord
from stepcredit.policy.trie import Node, build_trie
from stepcredit.rollouts.responses import concrete
from stepcredit.rollouts.types import Request, Response

_REMEMBERED_TRIES = 512
_SHARD = 32
"""Episodes answered in one batch. More of them share the overhead of a forward pass, fewer let more workers help."""


@dataclass(slots=True)
class _Episode:
    """What a session keeps of a growing episode. ``unseen`` are tokens its cache row has not seen yet."""

    shard: int
    unseen: list[int]
    stream: np.random.Generator


@dataclass(slots=True)
class _Row:
    """One response being written."""

    request: Request
    episode: _Episode
    prompt: IntArray
    node: Node | None
    response: list[int] = field(default_factory=list)
    allowed: list[tuple[int, ...]] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)

    def take(self, token: int, allowed: tuple[int, ...], logprob: float, entropy: float) -> None:
        self.episode.unseen.append(token)
        self.response.append(token)
        self.allowed.append(allowed)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)
        if self.node is not None:
            self.node = self.node.children[token]

    def take_forced(self) -> None:
        """Walk down the trie while only one token is allowed: probability 1, nothing to compute."""
        while self.node is not None and len(self.node.children) == 1:
            (token,) = self.node.children
            self.take(token, (token,), 0.0, 0.0)

    def choices(self) -> Choices:
        start = np.cumsum([0, *map(len, self.allowed)], dtype=np.int32)
        return Choices(np.array([token for allowed in self.allowed for token in allowed], dtype=np.int32), start)


class TransformerSession:
    """A batch of episodes answered together; see ``rollouts.types.Session``.

    Each episode draws from a stream of its own, so what it draws does not depend on who else is in the batch. Episodes
    are dealt into shards, each with its own cache; the model's workers answer shards in parallel.

    Args:
        model: who answers.
        conversation: how requests become tokens.
        constrained: only admissible commands.
        max_response_tokens: limit of a free response, end of sequence included.
        seed: fixes every draw, together with the request's key.
        temperature: 0 is greedy; log-probabilities are then those at temperature 1.
    """

    def __init__(
        self,
        model: PackedModel,
        conversation: Conversation,
        *,
        constrained: bool,
        max_response_tokens: int,
        seed: Sequence[int],
        temperature: float,
    ) -> None:
        self._model = model
        self._conversation = conversation
        self._constrained = constrained
        self._limit = max_response_tokens
        self._seed = tuple(seed)
        self._temperature = temperature
        self._shards: list[RaggedCache] = []
        self._episodes: dict[int, _Episode] = {}
        self._tries: dict[tuple[str, ...], Node] = {}

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response per request, in order."""
        prompts = self._conversation.prompts(requests)
        rows = [self._open(request, prompt) for request, prompt in zip(requests, prompts, strict=True)]
        by_shard: dict[int, list[_Row]] = {}
        for row in rows:
            by_shard.setdefault(row.episode.shard, []).append(row)
        for _ in self._model.workers.map(self._write, by_shard.values()):
            pass
        return [self._close(row) for row in rows]

    def finish(self, key: int) -> None:
        """The episode ended; its cache row is free."""
        episode = self._episodes.pop(key, None)
        if episode is not None:
            self._shards[episode.shard].drop(key)

    def _open(self, request: Request, prompt: IntArray) -> _Row:
        episode = self._episodes.get(request.key)
        if episode is None:
            context = self._conversation.context(request.goal, request.history, request.horizon)
            episode = self._episodes[request.key] = _Episode(
                shard=self._roomy_shard(),
                unseen=[token for chunk in context for token in chunk.tolist()],
                stream=np.random.default_rng((*self._seed, request.key)),
            )
        node = self._trie(concrete(request.admissible)) if self._constrained else None
        row = _Row(request, episode, prompt, node)
        row.episode.unseen += prompt.tolist()
        row.take_forced()
        return row

    def _roomy_shard(self) -> int:
        """The first shard with room for one more episode."""
        members = Counter(episode.shard for episode in self._episodes.values())
        for shard in range(len(self._shards)):
            if members[shard] < _SHARD:
                return shard
        self._shards.append(RaggedCache())
        return len(self._shards) - 1

    def _trie(self, admissible: tuple[str, ...]) -> Node:
        """The trie of a list of commands; the lists of neighbouring turns and episodes are often equal."""
        trie = self._tries.get(admissible)
        if trie is None:
            if len(self._tries) >= _REMEMBERED_TRIES:
                self._tries.clear()
            trie = build_trie({command: self._conversation.codec.response(command) for command in admissible})
            self._tries[admissible] = trie
        return trie

    def _write(self, rows: Sequence[_Row]) -> None:
        """Write the responses of one shard's rows, token by token; who is done leaves the batch."""
        with torch.no_grad():
            writing = [row for row in rows if not self._done(row)]
            while writing:
                uniform = np.array([row.episode.stream.random() for row in writing])
                choices = [tuple(row.node.children) for row in writing if row.node is not None]
                drawn = draw(self._forward(writing), choices or None, self._temperature, uniform)
                for place, (row, token, logprob, entropy) in enumerate(zip(writing, *drawn, strict=True)):
                    row.take(token, choices[place] if choices else (), logprob, entropy)
                    row.take_forced()
                writing = [row for row in writing if not self._done(row)]

    def _done(self, row: _Row) -> bool:
        if row.node is not None:
            return not row.node.children
        return bool(row.response) and (
            row.response[-1] == self._conversation.codec.eos or len(row.response) >= self._limit
        )

    def _forward(self, rows: Sequence[_Row]) -> Tensor:
        """Feed what the cache has not seen; logits ``[rows, V]`` of the next token."""
        cache = self._shards[rows[0].episode.shard]
        layout = cache.extend([row.request.key for row in rows], [row.episode.unseen for row in rows])
        for row in rows:
            row.episode.unseen = []
        last, own = np.unique(layout.last, return_inverse=True)
        logits = self._model.logits(layout.tokens, layout.positions(), layout, torch.from_numpy(last))
        return logits[torch.from_numpy(own).to(logits.device)]

    def _close(self, row: _Row) -> Response:
        codec = self._conversation.codec
        if not self._conversation.template.append_only:
            self._shards[row.episode.shard].drop(row.request.key)
            row.episode.unseen = []
        record = TokenRecord(
            prompt=row.prompt,
            response=np.array(row.response, dtype=np.int32),
            choices=row.choices() if self._constrained else None,
            temperature=self._temperature or 1.0,
            continues=self._conversation.continues(row.request),
        )
        text = row.node.command if row.node is not None else codec.text(row.response)
        assert text is not None
        return Response(
            text=text,
            logprobs=tuple(row.logprobs),
            entropy=sum(row.entropies) / len(row.entropies),
            record=record,
            truncated=row.response[-1] != codec.eos,
        )


def draw(
    logits: Tensor, allowed: Sequence[Sequence[int]] | None, temperature: float, uniform: FloatArray
) -> tuple[list[int], list[float], list[float]]:
    """Draw one token a row by inverting its cumulative distribution at ``uniform[row]``.

    Args:
        logits: ``[R, V]``.
        allowed: token ids each row may choose from; None for all.
        temperature: of the softmax over the allowed tokens; 0 takes the most likely one.
        uniform: ``[R]`` numbers in [0, 1).

    Returns:
        Tokens, their log-probabilities, and the entropies (nats) of the distributions, per row; at temperature 0 the
        latter two are those of temperature 1.
    """
    columns = None
    scores = logits.float() / (temperature or 1.0)
    if allowed is not None:
        columns, inside = pad_choices(allowed)
        scores = scores.gather(1, columns.to(scores.device)).masked_fill(~inside.to(scores.device), -torch.inf)
    logprobs = torch.log_softmax(scores, dim=-1)
    probabilities = logprobs.exp()
    entropy = -(probabilities * logprobs).nan_to_num(0.0).sum(-1)
    if temperature == 0:
        place = scores.argmax(-1)
    else:
        cumulative = probabilities.double().cumsum(-1)
        wanted = torch.from_numpy(uniform).to(scores.device) * cumulative[:, -1]
        place = torch.searchsorted(cumulative, wanted[:, None], right=True)[:, 0]
        place = torch.minimum(place, torch.isfinite(scores).sum(-1) - 1)
    chosen = logprobs.gather(1, place[:, None])[:, 0]
    tokens = place if columns is None else columns.to(place.device).gather(1, place[:, None])[:, 0]
    return tokens.tolist(), chosen.tolist(), entropy.tolist()


def pad_choices(allowed: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ragged lists as columns ``[R, A]`` (padding repeats the first) and a mask of the real ones."""
    width = max(map(len, allowed))
    columns = torch.tensor([[*row, *[row[0]] * (width - len(row))] for row in allowed])
    inside = torch.arange(width) < torch.tensor([len(row) for row in allowed])[:, None]
    return columns, inside
