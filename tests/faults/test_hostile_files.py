"""Files of strangers: read or refused with our error, in time that grows with their size, in bounded memory.

``benchmarks/fuzz.py`` goes on for as long as it is let, guided by coverage.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepcredit
from faults.readers import EPISODE, READERS, bomb, feed, giants, packed
from stepcredit.core.errors import CheckpointError, InputError, StepcreditError
from stepcredit.core.files import read_turns
from stepcredit.core.packed import ALWAYS_READ
from stepcredit.core.parsing import parse_episode
from stepcredit.policy.linear import LinearPolicy
from stepcredit.training.run_folder import Progress, RunFolder

SOURCE = Path(stepcredit.__file__).parent
PACKED = ("rollouts", "credit", "games", "products", "notes", "corpus", "questions", "logs")


@pytest.mark.parametrize("name", READERS)
def test_an_honest_file_is_read(name: str, tmp_path: Path) -> None:
    if name == "credit":
        refused = feed(name, READERS[name].seeds[0], tmp_path)
        assert "expected the rollouts that the credit was computed from" in str(refused)
        return
    assert [feed(name, seed, tmp_path) for seed in READERS[name].seeds if name not in ("notes", "logs")] in (
        [None] * len(READERS[name].seeds),
        [],
    )


PIECES = (
    *(b"", b"\x00", b"\xff", b'"', b"[", b"]", b"{", b"}", b"\n", b"null", b"true", b"-1", b"1e999", b"NaN"),
    *(b"\\ud800", b"9" * 40, b"{}", b"[]", b'""', b":", b",", b"(", b")", b";", b"../../x", b"\x1b[2J", b"-"),
)


def mutated(seed: bytes) -> st.SearchStrategy[bytes]:
    """An honest input with pieces cut out, put in, doubled and overwritten."""
    edit = st.tuples(st.integers(0, len(seed)), st.integers(0, 12), st.sampled_from(PIECES))

    def apply(edits: list[tuple[int, int, bytes]]) -> bytes:
        content = seed
        for start, length, piece in edits:
            content = content[:start] + piece + content[start + length :]
        return content

    return st.lists(edit, min_size=1, max_size=4).map(apply)


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    @settings(max_examples=25 if name in ("logs", "games", "game-tree") else 60, database=None)
    @given(st.sampled_from(READERS[name].seeds).flatmap(mutated))
    def check(content: bytes) -> None:
        refused = feed(name, content, tmp_path)
        assert refused is None or len(str(refused)) < 2_000

    check()


def hurt(act: Callable[[], None], *, seconds: int, memory: int) -> int:
    """Act in a fork that may take so many seconds of processor time and bytes of memory; its wait status.

    The bytes come on top of what is mapped already, which depends on the tests that this process has run.
    """
    mapped = Path("/proc/self/statm")
    limit = memory + (int(mapped.read_text().split()[0]) * resource.getpagesize() if mapped.exists() else 0)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            act()
        except StepcreditError:
            os._exit(0)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("name", READERS)
def test_no_giant_file_takes_long(name: str, tmp_path: Path) -> None:
    """A quarter of a megabyte each, ten seconds for it; a quadratic reader would take minutes at ten megabytes."""
    failed = [
        label
        for label, content in giants(name, 250_000)
        if hurt(lambda content=content: feed(name, content, tmp_path), seconds=10, memory=2 << 30)  # type: ignore[misc]
    ]
    assert failed == []


@pytest.mark.parametrize("name", PACKED)
def test_a_gzip_bomb_is_refused_before_it_fills_the_memory(name: str, tmp_path: Path) -> None:
    """400 MB in 400 kB; the reader gets 400 MB, which do not hold it and anything else."""
    size = 6 * ALWAYS_READ
    path = tmp_path / f"bomb{READERS[name].suffix}.gz"
    path.write_bytes(bomb(size))

    def read() -> None:
        with pytest.raises(InputError):
            READERS[name].read(path)

    assert hurt(read, seconds=60, memory=size) == 0


def test_an_honest_packed_file_is_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.gz"
    path.write_bytes(packed(READERS["rollouts"].seeds[0]))
    assert len(read_turns(path)) == 4


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"turns":[', b'[{"x":'])
def test_deep_nesting_is_refused_with_its_place(opening: bytes) -> None:
    with pytest.raises(InputError, match=r"^FILE:1: "):
        parse_episode(opening * 2_000_000, "FILE:1")


# Nothing outside the folder, nothing executed.


def test_names_that_climb_name_no_file(tmp_path: Path) -> None:
    """Task and episode names are text: a run's files are numbered."""
    from stepcredit.core.episodes import Episode, Turn
    from stepcredit.rollouts.types import Rollout

    evil = "../../../x"
    episode = Episode(evil, evil, (Turn(evil, evil),), evil, True, extra={"family": evil, "goal": evil})
    folder = tmp_path / "a" / "b" / "run"
    with RunFolder(folder) as run:
        run.write_rollouts("rollouts/000001", [Rollout(episode, evil, ())])
        run.log({"step": 1, "kind": "update", "task": evil})
    below = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent.relative_to(folder).as_posix() for path in below} == {".", "rollouts"}
    # What a recipe calls an evaluation does name a file, but none outside.
    for name in ("evaluations/before-a/../../../x", "../x", "/x"):
        with pytest.raises(CheckpointError, match="leads out of the run folder"):
            RunFolder(folder).write_rollouts(name, [])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == below


class Danger:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return (os.mkdir, ("executed",))


def test_a_pickle_in_a_checkpoint_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LinearPolicy().save(tmp_path)
    with zipfile.ZipFile(tmp_path / "linear.npz", "w") as archive:
        array = np.array([Danger()], dtype=object)
        np.save(tmp_path / "weights.npy", array, allow_pickle=True)
        archive.write(tmp_path / "weights.npy", "weights.npy")
    with pytest.raises(CheckpointError, match="does not hold a linear policy"):
        LinearPolicy().load(tmp_path)
    (tmp_path / "linear.npz").write_bytes(pickle.dumps(Danger()))
    with pytest.raises(CheckpointError, match="does not hold a linear policy"):
        LinearPolicy().load(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_a_run_folder_made_by_a_stranger_is_only_data(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    (tmp_path / "config.json").write_text('{"model": ' + "[" * 100_000)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        run.read_config()
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n\x00\x00\n{"step": 2}\n')
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl:2"):
        run.metrics()
    (tmp_path / "checkpoints" / "000009").mkdir(parents=True)
    (tmp_path / "checkpoints" / "000009" / "progress.json").write_text('{"updates": "rm"}')
    assert run.latest() is None
    run.save(Progress(updates=10), lambda folder: None)
    assert run.latest() is not None


FORBIDDEN = re.compile(
    r"\bpickle\.loads?\((?!pickle\.dumps)|\b(?<![.\w])eval\(|\b(?<![.\w])exec\(|\bmarshal\b|\bshelve\b|yaml\.load|torch\.load"
    r"|allow_pickle=True|trust_remote_code=True|shell=True|os\.system|joblib"
)


def test_no_source_file_can_execute_data() -> None:
    """What is not in the code cannot be reached by any input."""
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if FORBIDDEN.search(line.partition("#")[0]) and '"""' not in line
    ]
    assert found == []


def test_html_of_strangers_is_inert_in_the_report(tmp_path: Path) -> None:
    """The page's data stand base64-coded in it; what stands beside is escaped, and only our own script may run."""
    from stepcredit.report.page import write_page
    from stepcredit.report.sources import report_about

    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'\x1b[2J"
    record = {**EPISODE, "task": evil, "episode": evil, "final_observation": evil, "stop": evil}
    path = tmp_path / "<b>evil.jsonl"
    path.write_bytes(orjson.dumps(record) + b"\n")
    page = write_page(report_about([path]), tmp_path).read_text()
    for inert in ("alert(1)", "<b>evil", "onerror", "\x1b"):
        assert inert not in page
    scripts = re.findall(r"<script[^>]*>", page)
    policy = re.search(r'Content-Security-Policy"\s+content="([^"]*)"', page)
    assert policy is not None
    assert "script-src 'sha256-" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert all("src=" not in tag for tag in scripts)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("credit", b"", "no episode to report on"),
        ("notes", b'{"B1": {"attributes": null}}', "expected a list of instructions"),
        (
            "questions",
            b'{"question": "q", "golden_answers": ["a"], "supporting_facts": {"title": 7}}',
            "supporting_facts",
        ),
        ("recipe", b"a" * 70_000, "70,000 characters"),
        ("problem", b"(:objects)(:init (atlocation a b))(:goal)", "expected declared objects"),
    ],
)
def test_what_fuzzing_found_stays_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    assert message in str(feed(name, content, tmp_path))
