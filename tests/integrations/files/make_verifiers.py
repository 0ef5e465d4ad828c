"""Writes ``traces.jsonl`` with verifiers itself: ``pip install verifiers==0.4.0``, then ``python make_verifiers.py``.

Its own models hold the traces and its own writer appends them; ids and times are fixed so that a second run gives the
same bytes. Three episodes of one group: a success with a second try from its second state, a failure whose context was
compacted on the way, and a failure watched by a judge that is not trained.
"""

from __future__ import annotations

from pathlib import Path

from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.episode import EnvInfo, Episode, GroupInfo, TrainRunInfo, TrainWorkInfo
from verifiers.v1.graph import MessageNode
from verifiers.v1.semantic import ParentLink
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Timing, Trace, TraceTask, VersionInfo
from verifiers.v1.types import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from verifiers.v1.utils.trace_store import TRACES_FILE, write_episode

HERE = Path(__file__).parent
TASK = TraceTask(type="Household", data=TaskData(idx=3, prompt="put an egg in the fridge"), key="egg", hash="ab12")
RUN = TrainRunInfo(id="run", work=TrainWorkInfo(step=40))


def said(parent: int | None, message: object, ids: list[int]) -> MessageNode:
    """A message that the policy was given."""
    return MessageNode(parent=parent, message=message, token_ids=ids, mask=[False] * len(ids), timestamp=0.0)


def sampled(parent: int, text: str | None, logprobs: list[float], call: str | None = None) -> MessageNode:
    """A message that the policy sampled: one token of scaffold, then its own."""
    calls = None if call is None else [ToolCall(id="c1", name="act", arguments=call)]
    count = len(logprobs)
    return MessageNode(
        parent=parent,
        message=AssistantMessage(content=text, tool_calls=calls),
        sampled=True,
        token_ids=[1, *range(10, 10 + count)],
        mask=[False] + [True] * count,
        logprobs=logprobs,
        timestamp=0.0,
    )


def trace(name: str, nodes: list[MessageNode], rewards: dict[str, tuple[float, float]], agent: str = "agent") -> Trace:
    """A finished trace."""
    one = Trace(
        id=name,
        verifiers=VersionInfo(version="0.4.0"),
        task=TASK,
        agent=AgentInfo(config=AgentConfig(), name=agent, trainable=agent != "judge"),
        nodes=nodes,
        is_completed=True,
        ok=True,
        stop_condition="agent_completed",
        timing=Timing(start=0.0),
    )
    for reward, (score, weight) in rewards.items():
        one.record_reward(reward, score, weight)
    return one


START = [said(None, SystemMessage(content="Act."), [2, 3]), said(0, UserMessage(content="You are in a kitchen."), [4])]

won = trace(
    "t1",
    [
        *START,
        sampled(1, "open fridge 1", [-0.125, -0.375]),
        said(2, UserMessage(content="The fridge 1 is open."), [5, 6]),
        sampled(3, None, [-0.5], call='{"command": "put egg 1 in fridge 1"}'),
        said(4, ToolMessage(tool_call_id="c1", content="You put the egg 1 in the fridge 1."), [7]),
        sampled(3, "close fridge 1", [-1.5, -0.25, -0.25]),  # a second try at the state before node 4
        said(6, UserMessage(content="The fridge 1 is closed."), [8]),
        sampled(7, "look", [-2.0]),
    ],
    {"success": (1.0, 1.0), "length": (-0.5, 0.5)},
)
compacted = trace(
    "t2",
    [
        *START,
        sampled(1, "look", [-1.0]),
        said(2, UserMessage(content="You see a fridge 1."), [5]),
        sampled(3, "summary: a fridge", [-0.75]),
        said(None, UserMessage(content="So far: a fridge."), [9]),
        sampled(5, "go away", [-0.25, -0.75]),
    ],
    {"success": (0.0, 1.0)},
)
compacted.nodes[4].semantic_parents = [ParentLink(node=2, type="compaction_attempt")]
compacted.nodes[6].semantic_parents = [ParentLink(node=4, type="compaction")]
lost = trace("t3", [*START, sampled(1, "open fridge 1", [-0.5, -0.5])], {"success": (0.0, 1.0)})
judge = trace("t4", [said(None, UserMessage(content="Well?"), [4]), sampled(0, "no", [-0.5])], {}, agent="judge")

(HERE / TRACES_FILE).unlink(missing_ok=True)
for number, traces in enumerate(([won], [compacted], [lost, judge]), 1):
    write_episode(
        HERE,
        Episode(
            id=f"e{number}",
            env=EnvInfo(id="household"),
            task=TASK,
            group=GroupInfo(id="g7"),
            run=RUN,
            ok=True,
            traces=traces,
        ),
    )
