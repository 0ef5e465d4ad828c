"""ATIF, the trajectory form of Harbor and other agent harnesses (schema 1.8): one document an episode.

The schema has no reward and no group. Steps may carry ``extra.reward``; beside ``TRIAL/agent/trajectory.json`` Harbor
writes the verifier's rewards and the task's name, which are read from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stepcredit.core.errors import InputError
from stepcredit.integrations.convert.drafts import Draft, Notes
from stepcredit.integrations.convert.messages import POLICY, Message, call_text, to_turns
from stepcredit.integrations.convert.records import Record, read_records

_AGENT = "agent"
_NAMED = frozenset({"steps", "agent", "final_metrics", "extra", "subagent_trajectories"})


class AtifReader:
    """Reads ATIF trajectories."""

    name = "atif"
    group_by = "extra.task"

    def recognises(self, record: Mapping[str, Any]) -> bool:
        """A ``schema_version`` of ATIF."""
        return str(record.get("schema_version", "")).startswith("ATIF")

    def drafts(self, records: Iterable[Record], notes: Notes) -> Iterator[Draft]:
        """A draft a trajectory; steps copied from another one are context, sub-agents are left out."""
        for record in records:
            steps = record.children("steps")
            copied = sum(step.values.get("is_copied_context") is True for step in steps)
            notes.skipped["copied steps"] += copied
            notes.skipped["sub-agent trajectories"] += len(record.values.get("subagent_trajectories") or ())
            turns, final = to_turns(message for step in steps for message in _messages(step))
            given = any(step.find("extra.reward") is not None for step in steps)
            trial = _trial(record)
            yield Draft(
                record,
                turns,
                name=record.optional("trajectory_id", str, "a string") or trial.get("trial_name"),
                group=trial.get("task_name"),
                reward=0.0 if given else trial.get("reward"),
                final_observation=final,
                source=record.plain(_NAMED),
            )


def _messages(step: Record) -> Iterator[Message]:
    """What a step says, and what its tools answered."""
    source = step.required("source", str, "system, user or agent")
    extra, metrics = step.child("extra"), step.child("metrics")
    calls = step.children("tool_calls") if step.values.get("tool_calls") is not None else []
    yield Message(
        POLICY if source == _AGENT else source,
        step.text("message"),
        calls=tuple(
            call_text(call.required("function_name", str, "a string"), call.values.get("arguments"), call)
            for call in calls
        ),
        sampled=not (step.values.get("is_copied_context") is True or step.values.get("llm_call_count") == 0),
        logprobs=metrics.numbers("logprobs") if metrics else (),
        reward=(extra.number("reward", "a finite number") if extra else None) or 0.0,
    )
    observation = step.child("observation")
    for result in observation.children("results") if observation else ():
        yield Message("tool", result.text("content"))


def _trial(record: Record) -> dict[str, Any]:
    """What Harbor wrote about the trial beside the trajectory: ``task_name``, ``trial_name``, ``reward``."""
    path = Path(record.place.rpartition(":")[0])
    folder = path.parent.parent
    if path.parent.name != _AGENT:
        return {}
    found: dict[str, Any] = {}
    if (folder / "result.json").is_file():
        result = next(read_records(folder / "result.json"))
        for name in ("task_name", "trial_name"):
            found[name] = result.optional(name, str, "a string")
        verdict = result.child("verifier_result")
        found["reward"] = _total(verdict.child("rewards") if verdict else None)
    verifier = folder / "verifier"
    if found.get("reward") is None and (verifier / "reward.json").is_file():
        found["reward"] = _total(next(read_records(verifier / "reward.json")))
    if found.get("reward") is None and (verifier / "reward.txt").is_file():
        found["reward"] = _number(verifier / "reward.txt")
    return found


def _total(rewards: Record | None) -> float | None:
    """The sum of named rewards, None where there are none."""
    if rewards is None or not rewards.values:
        return None
    return math.fsum(rewards.number(name, "a finite number") or 0.0 for name in rewards.values)


def _number(path: Path) -> float:
    text = path.read_bytes()[:100].decode(errors="replace").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}: got {text[:40]!r}, expected a finite number.")
    return value
