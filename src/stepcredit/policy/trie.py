"""The token trie of admissible commands: which tokens may come next, end of sequence included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stepcredit.core.errors import InputError


@dataclass(slots=True)
class Node:
    """A prefix of at least one command. ``command`` is set where the end-of-sequence token was reached.

    Children stand in the order their commands were inserted, so equal lists of commands give equal tries.
    """

    children: dict[int, Node] = field(default_factory=dict)
    command: str | None = None

    def paths(self) -> Iterator[tuple[tuple[int, ...], str]]:
        """Every token path from here to a command's end, with the command."""
        if self.command is not None:
            yield (), self.command
        for token, child in self.children.items():
            for path, command in child.paths():
                yield (token, *path), command


def build_trie(commands: Mapping[str, tuple[int, ...]]) -> Node:
    """The trie of commands given with their token ids; each id sequence ends with the end-of-sequence token.

    Raises:
        InputError: no commands, or two commands that the tokenizer cannot tell apart.
    """
    if not commands:
        raise InputError("Constrained decoding needs admissible commands, but the list is empty; use free decoding.")
    root = Node()
    for command, tokens in commands.items():
        node = root
        for token in tokens:
            node = node.children.setdefault(token, Node())
        if node.command is not None:
            raise InputError(
                f"The tokenizer gives {command!r} and {node.command!r} the same tokens; "
                f"use a tokenizer that knows their characters, or free decoding."
            )
        node.command = command
    return root
