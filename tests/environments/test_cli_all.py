"""``replay`` and ``play`` work alike in every environment."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from stepcredit.cli import main
from stepcredit.environments.catalogue import make_suite

COMMANDS = {
    "shopping": ("search[red shirts]", "click[next >]", "nonsense", "click[< prev]"),
    "search_qa": ("<search>france</search>", "nonsense", "<answer>Paris</answer>", "<answer>Paris</answer>"),
}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    captured = capsys.readouterr()
    status = caught.value.code
    return (status if isinstance(status, int) else 0 if status is None else 1), captured.out, captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_replay(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = make_suite(name).tasks("test")[3]
    actions, record = tmp_path / "actions.txt", tmp_path / "record.jsonl"
    actions.write_text("".join(f"{command}\n" for command in COMMANDS[name]), encoding="utf-8")
    command = ("replay", name, "--game", task.id, "--actions", str(actions), "--json")
    status, out, err = run(capsys, *command)
    assert (status, err) == (0, "")
    assert [json.loads(line)["command"] for line in out.splitlines()] == [None, *COMMANDS[name]]
    record.write_text(out, encoding="utf-8")
    assert run(capsys, *command, "--expect", str(record))[0] == 0
    status, _, err = run(capsys, *command, "--seed", "1", "--expect", str(record))
    assert status == 2
    assert "diverges in" in err
    assert run(capsys, "replay", name, "--game", "x", "--actions", str(actions))[0] == 2
    assert "Did you mean 'seed'" in run(capsys, *command, "--sed", "1")[2]


def test_the_shop_opens_from_the_command_line() -> None:
    command = [sys.executable, "-m", "stepcredit.cli", "play", "shopping", "--web", "--nouns", "light"]
    shop = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores Ctrl-C
    )
    try:
        assert shop.stderr is not None
        opened = re.fullmatch(
            r"The shop is open at (http://127\.0\.0\.1:\d+/); Ctrl-C closes it\.\n", shop.stderr.readline()
        )
        assert opened is not None
        with urllib.request.urlopen(opened[1], timeout=20) as page:
            assert "Find me" in page.read().decode()
        shop.send_signal(signal.SIGINT)
        assert shop.wait(timeout=20) == 130
    finally:
        shop.kill()
        shop.communicate()
