"""Text to token ids and back, and the record a turn keeps of its tokens.

A conversation is a chain of chunks: each turn adds a prompt chunk and the generated response. Chunks are tokenised
once, apart from each other, and never again; what was sampled is what is learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepcredit.core.credit import IntArray
from stepcredit.core.errors import OptionError

_REMEMBERED_TOKENS = 1 << 22
"""Tokens of prompts whose ids are remembered; the same observations come back over and over."""
_REMEMBERED_RESPONSES = 1 << 16


@dataclass(frozen=True, slots=True)
class Choices:
    """The tokens that were allowed at each place of a constrained response: ``ids[start[i]:start[i + 1]]``."""

    ids: IntArray
    start: IntArray


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What an update needs to compute a turn's log-probability again.

    Attributes:
        prompt: ``[P]`` token ids this turn adds before its response.
        response: ``[L]`` generated ids, the end-of-sequence token included unless the limit cut it off.
        choices: allowed tokens at each of the ``L`` places; None where decoding was free.
        temperature: the temperature that the recorded log-probabilities were computed at.
        continues: whether the prompt continues the previous turn's tokens (append-only) or stands alone.
    """

    prompt: IntArray
    response: IntArray
    choices: Choices | None
    temperature: float
    continues: bool


class Codec:
    """Prompts and responses as token ids for one tokenizer, its chat template included.

    The text around a message is read off the chat template once, from a conversation of two turns; a tokenizer without
    a template gets the bare message, ended by a line break.
    """

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.eos_token_id is None:
            raise OptionError("The tokenizer has no end-of-sequence token; set eos_token in its folder.")
        self.tokenizer = tokenizer
        self.eos = int(tokenizer.eos_token_id)
        self._frame = _read_frame(tokenizer)
        self._prompts: dict[tuple[str, bool], IntArray] = {}
        self._prompt_tokens = 0
        self._responses: dict[str, tuple[int, ...]] = {}

    def prompts(self, messages: Sequence[str], first: Sequence[bool]) -> list[IntArray]:
        """Ids of each prompt chunk.

        Args:
            messages: user messages.
            first: whether the message opens its conversation; otherwise it follows a response's end.
        """
        wanted = list(zip(messages, first, strict=True))
        missing = [key for key in dict.fromkeys(wanted) if key not in self._prompts]
        if missing:
            head, between, tail = self._frame
            texts = [(head if opens else between) + message + tail for message, opens in missing]
            ids = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
            for key, row in zip(missing, ids, strict=True):
                self._prompts[key] = np.array(row, dtype=np.int32)
                self._prompt_tokens += len(row)
        chunks = [self._prompts[key] for key in wanted]
        if self._prompt_tokens > _REMEMBERED_TOKENS:
            self._prompts.clear()
            self._prompt_tokens = 0
        return chunks

    def response(self, text: str) -> tuple[int, ...]:
        """Ids of a response as it would be generated: the text and the end-of-sequence token."""
        ids = self._responses.get(text)
        if ids is None:
            ids = (*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.eos)
            if len(self._responses) >= _REMEMBERED_RESPONSES:
                self._responses.clear()
            self._responses[text] = ids
        return ids

    def text(self, response: Sequence[int]) -> str:
        """The text of generated ids, without the end-of-sequence token."""
        ids = list(response)
        if ids and ids[-1] == self.eos:
            ids.pop()
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text


_MESSAGE, _ANSWER, _NEXT = "\x11first\x11", "\x11answer\x11", "\x11next\x11"


def _read_frame(tokenizer: Any) -> tuple[str, str, str]:
    """Text before the first message, between a response's end-of-sequence token and the next message, and after one."""
    if not tokenizer.chat_template:
        return tokenizer.bos_token or "", "\n", "\n"
    conversation = [
        {"role": "user", "content": _MESSAGE},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _NEXT},
    ]
    text: str = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    opening: str = tokenizer.apply_chat_template(conversation[:1], tokenize=False, add_generation_prompt=True)
    if text.count(_ANSWER) != 1 or text.count(_NEXT) != 1 or opening.count(_MESSAGE) != 1:
        raise OptionError("The tokenizer's chat template does not keep messages as they are; use another template.")
    head, tail = opening.split(_MESSAGE)
    between = text.split(_ANSWER)[1].split(_NEXT)[0].removeprefix(tokenizer.eos_token)
    return head, between, tail
