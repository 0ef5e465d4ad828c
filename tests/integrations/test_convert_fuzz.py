"""Hostile logs: whatever a file holds, it is converted or refused with one of our errors."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepcredit.core.errors import StepcreditError
from stepcredit.core.files import read_turns
from stepcredit.integrations.convert.conversion import READERS, Choices, convert
from stepcredit.integrations.convert.write_back import write_advantages

FILES = Path(__file__).parent / "files"
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["assistant", "user", "<|im_start|>assistant\n", "user\na\nassistant\n", "p_0_1", "pad_0", "ATIF"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "tool_calls", "function", "name", "arguments", "id", "parent", "type", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
"""Any JSON, and some that Python writes and JSON does not have (NaN, infinities)."""


def records() -> list[tuple[str, dict[str, Any]]]:
    """One good record of every JSON log."""
    names = ("verl_v1.jsonl", "verl_v0.jsonl", "traces.jsonl", "skyrl.jsonl", "openai_chat.jsonl")
    found = [(name, json.loads((FILES / name).read_text().splitlines()[0])) for name in names]
    return [*found, ("atif", json.loads((FILES / "trial" / "agent" / "trajectory.json").read_text()))]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        one = pending.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, inner in items:
            found.append((one, key))
            pending.append(inner)
    return found


def converts_or_is_refused(path: Path, choices: Choices) -> None:
    """What is written can be read again; what is not raises our error and leaves nothing."""
    out = path.with_name("out.jsonl")
    out.unlink(missing_ok=True)
    try:
        summary = convert([path], out, choices)
    except StepcreditError:
        assert not out.exists()
    else:
        assert len(read_turns(out)) == summary.turns


@SHARED
@given(data=st.data())
def test_good_records_with_something_replaced(data: st.DataObject, tmp_path: Path) -> None:
    name, record = data.draw(st.sampled_from(records()), label="record")
    broken = copy.deepcopy(record)
    for _ in range(data.draw(st.integers(1, 3))):
        found = places(broken)
        container, key = found[data.draw(st.integers(0, len(found) - 1), label="place")]
        if isinstance(container, dict) and data.draw(st.booleans(), label="remove"):
            del container[key]
        else:
            container[key] = data.draw(VALUES, label="value")
        if not places(broken):
            break
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(broken) + "\n" + json.dumps(record) + "\n", encoding="utf-8")
    groups = data.draw(st.sampled_from([(), ("step",), ("task.data.idx",), ("messages",)]))
    for choices in (Choices(group_by=groups), Choices(format=name.partition("_")[0] if "_" in name else None)):
        converts_or_is_refused(path, choices)


@SHARED
@given(value=VALUES, reader=st.sampled_from(sorted(READERS)))
def test_any_json_under_any_format(value: Any, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(value) + "\n", encoding="utf-8")
    converts_or_is_refused(path, Choices(format=reader, group_by=("x",), reward="x"))


@SHARED
@given(data=st.binary(max_size=200), suffix=st.sampled_from([".jsonl", ".jsonl.gz", ".json"]))
def test_any_bytes(data: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log{suffix}"
    path.write_bytes(data)
    converts_or_is_refused(path, Choices())


@SHARED
@given(cut=st.integers(0, 7000), noise=st.binary(min_size=1, max_size=40))
def test_damaged_parquet(cut: int, noise: bytes, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    whole = (FILES / "trl_completions.parquet").read_bytes()
    path = tmp_path / "log.parquet"
    path.write_bytes(whole[:cut] + noise + whole[cut + len(noise) :])
    converts_or_is_refused(path, Choices(group_by=("step", "prompt")))


@SHARED
@given(data=st.data())
def test_credit_and_traces_with_something_replaced(data: st.DataObject, tmp_path: Path) -> None:
    traces = [json.loads(line) for line in (FILES / "traces.jsonl").read_text().splitlines()]
    names = [("t1", 0), ("t1", 1), ("t1/8", 0), ("t1/8", 1), ("t2", 0), ("t2", 1), ("t2/6", 0), ("t3", 0)]
    credit = [{"episode": episode, "turn": turn, "advantage": 0.5} for episode, turn in names]
    found = places([traces, credit])[2:]
    container, key = found[data.draw(st.integers(0, len(found) - 1), label="place")]
    container[key] = data.draw(VALUES, label="value")
    for name, lines in (("traces.jsonl", traces), ("credit.jsonl", credit)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = tmp_path / "out.jsonl"
    out.unlink(missing_ok=True)
    try:
        written = write_advantages([tmp_path / "traces.jsonl"], tmp_path / "credit.jsonl", out)
    except StepcreditError:
        assert not out.exists()
    else:
        assert written.turns == 8
