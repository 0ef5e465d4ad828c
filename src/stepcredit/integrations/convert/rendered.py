"""Chats that a log holds as rendered text: the messages found again by the marks of the chat template.

Where special tokens are kept, their marks cannot be mistaken. Where they were dropped in decoding, only lines with a
role's name are left; a message that itself contains such a line is cut there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepcredit.integrations.convert.messages import POLICY, Message


@dataclass(frozen=True, slots=True)
class Template:
    """How one family of chat templates renders a message.

    Attributes:
        mark: what stands before a message; its group is the role.
        end: what may stand after one.
        opening: the mark of the policy's message, which ends a prompt.
    """

    mark: re.Pattern[str]
    end: str
    opening: str

    def split(self, text: str) -> list[Message]:
        """The messages of a text that starts with a mark; nothing is left out but the marks."""
        parts = self.mark.split(text)
        pairs = zip(parts[1::2], parts[2::2], strict=True)
        return [Message(role, body.strip().removesuffix(self.end).strip()) for role, body in pairs]


_ROLES = "system|developer|user|assistant|tool"
TEMPLATES = (
    Template(re.compile(r"<\|im_start\|>(\w+)\n?"), "<|im_end|>", f"<|im_start|>{POLICY}\n"),
    Template(
        re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>"),
        "<|eot_id|>",
        f"<|start_header_id|>{POLICY}<|end_header_id|>",
    ),
    Template(re.compile(rf"(?:^|(?<=\n))({_ROLES})\n"), "", f"{POLICY}\n"),
)
"""ChatML, Llama 3, and either of them after special tokens were dropped."""


def split_rendered(prompt: str, response: str) -> tuple[list[Message], bool]:
    """The messages of a prompt and of what the policy and its environment added to it, and whether marks were found.

    A policy's message in the prompt is context, not a turn of its own. Without marks the prompt is one observation and
    the response one message.
    """
    for template in TEMPLATES:
        first = template.mark.search(prompt)
        if first is None or (template is TEMPLATES[-1] and first.start() != 0):
            continue
        context = template.split(prompt[first.start() :])
        if context[-1].role == POLICY and not context[-1].text:
            context.pop()
        before = [Message(one.role, one.text, sampled=False) for one in context]
        return [*before, *template.split(template.opening + response)], True
    return [Message("user", prompt.strip()), Message(POLICY, response.strip())], False
