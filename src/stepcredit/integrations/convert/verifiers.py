"""verifiers' ``traces.jsonl`` (also prime-rl's): an episode a line, a trace an agent, a tree of messages a trace.

A path from a root of the tree to a leaf is what the policy saw. The first leaf's path is listed whole, each later one
from where it leaves those before it, so every sampled node is one turn of one episode, here and when credit is written
back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepcredit.core.episodes import Parent
from stepcredit.integrations.convert.drafts import Draft, Notes
from stepcredit.integrations.convert.messages import POLICY, Message, read_message, to_turns
from stepcredit.integrations.convert.records import Record

_NAMED = frozenset({"id", "env", "task", "group", "run", "errors", "traces"})


@dataclass(frozen=True, slots=True)
class Listing:
    """A path's own part: the nodes that no earlier path has.

    Attributes:
        name: name of its episode.
        nodes: own nodes, from the top.
        sampled: those of them that the policy sampled: its turns.
        parent: where it left another listing, if another action was sampled there from the same state.
    """

    name: str
    nodes: tuple[int, ...]
    sampled: tuple[int, ...]
    parent: Parent | None


class VerifiersReader:
    """Reads traces of verifiers and prime-rl."""

    name = "verifiers"
    group_by = "task.hash"

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """``traces`` and ``task``."""
        return {"traces", "task"} <= record.keys()

    def drafts(self, records: Iterable[Record], notes: Notes) -> Iterator[Draft]:
        """A draft a path of a trainable trace; forks from one state are branches."""
        for record in records:
            group = record.child("group")
            name = None if group is None else group.required("id", str, "a string")
            for trace, nodes, agent in trainable_traces(record, notes):
                yield from _from_trace(record, trace, nodes, name and f"{name}{agent}", notes)


def trainable_traces(record: Record, notes: Notes) -> Iterator[tuple[Record, list[Record], str]]:
    """The traces of the trained policy, their nodes, and `` / AGENT`` where several agents must not be compared.

    A trace that failed before it was scored says nothing about its turns; it is skipped.
    """
    trained: list[tuple[Record, str]] = []
    for trace in record.children("traces"):
        agent = trace.child("agent") or Record({}, trace.place, trace.prefix)
        if agent.values.get("trainable") is False:
            notes.skipped["traces of agents that are not trained"] += 1
        elif trace.values.get("ok") is False and _reward(trace) is None:
            notes.skipped["traces that failed and were not scored"] += 1
        else:
            trained.append((trace, agent.optional("name", str, "a string") or ""))
    several = len({name for _, name in trained}) > 1
    for trace, name in trained:
        yield trace, trace.children("nodes"), f" / {name}" if several else ""


def listings(trace: Record, nodes: Sequence[Record], notes: Notes) -> Iterator[Listing]:
    """The paths of a trace, first leaf first, that have turns of their own.

    A path is a branch where its first turn was sampled below the node below which an earlier path has a turn. Any other
    fork (another answer of the environment, a compacted context) starts an episode of its own.
    """
    name = trace.required("id", str, "a string")
    above = [_above(node, index) for index, node in enumerate(nodes)]
    has_child = {parent for parent in above if parent is not None}
    sampled = [_is_turn(node) for node in nodes]
    listed: set[int] = set()
    first_turn: dict[int | None, Parent] = {}
    rejected = _rejected_attempts(nodes)
    for leaf in (index for index in range(len(nodes)) if index not in has_child):
        own: list[int] = []
        at: int | None = leaf
        while at is not None and at not in listed:
            own.append(at)
            at = above[at]
        own.reverse()
        turns = tuple(index for index in own if sampled[index])
        if leaf in rejected:
            notes.skipped["attempts at compaction that were not taken up"] += 1
        elif turns:
            title = name if not first_turn else f"{name}/{leaf}"
            yield Listing(title, tuple(own), turns, first_turn.get(above[turns[0]]))
            for number, index in enumerate(turns):
                first_turn.setdefault(above[index], Parent(title, number))
            listed.update(own)


def _above(node: Record, index: int) -> int | None:
    parent = node.optional("parent", int, "the index of an earlier node")
    if parent is not None and not 0 <= parent < index:
        raise node.fault("parent", str(parent), f"the index of an earlier node, below {index}")
    return None if parent is None else int(parent)


def _rejected_attempts(nodes: Sequence[Record]) -> set[int]:
    """Leaves that tried to compact the context and that no later turn resumed from."""
    attempts: set[int] = set()
    accepted: set[object] = set()
    for index, node in enumerate(nodes):
        if node.values.get("semantic_parents"):
            for link in node.children("semantic_parents"):
                if link.values.get("type") == "compaction_attempt":
                    attempts.add(index)
                elif link.values.get("type") == "compaction":
                    accepted.add(link.required("node", int, "the index of a node"))
    return attempts - accepted


def _from_trace(
    record: Record, trace: Record, nodes: Sequence[Record], group: str | None, notes: Notes
) -> Iterator[Draft]:
    reward = _reward(trace)
    stop = trace.optional("stop_condition", str, "a string")
    messages = [_message(node, index) for index, node in enumerate(nodes)]
    for listing in listings(trace, nodes, notes):
        above = _context(messages, nodes, listing.nodes[0])
        turns, final = to_turns([*above, *(messages[index] for index in listing.nodes)])
        yield Draft(
            record,
            turns,
            name=listing.name,
            group=group,
            reward=reward,
            final_observation=final,
            parent=listing.parent,
            stop=stop,
            source=record.plain(_NAMED),
        )


def _context(messages: Sequence[Message], nodes: Sequence[Record], top: int) -> list[Message]:
    """What was said between the last sampled node above and the node, oldest first: the observation it starts from."""
    context: list[Message] = []
    at = nodes[top].values.get("parent")
    while at is not None:
        if _is_turn(nodes[at]):
            break
        context.append(messages[at])
        at = nodes[at].values.get("parent")
    return context[::-1]


def _said(node: Record) -> Record:
    message = node.child("message")
    if message is None:
        raise node.fault("message", "nothing", "a message")
    return message


def _is_turn(node: Record) -> bool:
    return node.values.get("sampled") is True and _said(node).values.get("role") == POLICY


def _message(node: Record, index: int) -> Message:
    return replace(
        read_message(_said(node)),
        sampled=_is_turn(node),
        logprobs=node.numbers("logprobs"),
        source=(("node", index),),
    )


def _reward(trace: Record) -> float | None:
    """Σ score · weight over the trace's rewards, as verifiers sums them; None where it has none."""
    rewards = trace.child("rewards")
    if rewards is None or not rewards.values:
        return None
    values = []
    for name in rewards.values:
        reward = rewards.child(name)
        if reward is not None:
            weight = reward.number("weight", "a finite number")
            score = reward.number("score", "a finite number") or 0.0
            values.append(score * (1.0 if weight is None else weight))
    return math.fsum(values) if values else None
