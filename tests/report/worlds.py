"""Small worlds with known answers, and a run folder as training would have left it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.files import write_episodes
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.training.config import make_config

PIECE = re.compile(r'<script type="text/plain" id="piece-(\d+)">([^<]*)</script>')


def episode(
    name: str,
    path: Sequence[str],
    *,
    task: str = "t",
    won: bool,
    parent: Parent | None = None,
    penalty: float = 0.0,
    **extra: Any,
) -> Episode:
    """An episode from ``state, action, state, action, …, final state``; a success is rewarded 10 on its last turn."""
    states, actions = path[:-1:2], path[1::2]
    turns = tuple(
        Turn(
            state,
            action,
            reward=10.0 * (won and at == len(actions) - 1),
            penalty=penalty if at == 0 else 0.0,
            nll=0.5 + 0.1 * at,
            entropy=0.2,
        )
        for at, (state, action) in enumerate(zip(states, actions, strict=True))
    )
    return Episode(task, name, turns, path[-1], won, parent=parent, stop="won" if won else "lost", extra=extra)


def woven(task: str = "t") -> list[Episode]:
    """Four episodes through s, x, y with outcomes W and L: at γ = .99, V(x) = .66, V(y) = .8217, V(s) = .733441."""
    name = f"{task}-" if task != "t" else ""
    about = {"task": task, "family": "weave", "goal": f"reach W in {task}"}
    return [
        episode(f"{name}A", ["s", "a", "x", "b", "W"], won=True, **about),
        episode(f"{name}B", ["s", "a", "x", "c", "L"], won=False, **about),
        episode(f"{name}C", ["s", "d", "y", "e", "W"], won=True, **about),
        episode(f"{name}D", ["s", "d", "y", "e", "x", "b", "W"], won=True, **about),
    ]


def forest() -> list[Episode]:
    """Root A fails; B and C leave it at its second turn, B wins; root D wins and is charged 1 on its first turn."""
    return [
        episode("A", ["s", "a", "x", "b", "y", "c", "L"], won=False),
        episode("B", ["x", "d", "W"], won=True, parent=Parent("A", 1)),
        episode("C", ["x", "b", "y", "e", "L"], won=False, parent=Parent("A", 1)),
        episode("D", ["s", "a", "x", "d", "W"], won=True, penalty=1.0),
    ]


def evaluation_line(moment: str, step: int, means: dict[str, float], split: str = "valid") -> dict[str, Any]:
    families = {
        family: {"success": {"mean": mean, "low": max(mean - 0.1, 0), "high": min(mean + 0.1, 1)}}
        for family, mean in means.items()
    }
    return {"step": step, "kind": "evaluation", "moment": moment, "split": split, "failures": 0, "families": families}


def update_line(update: int, episodes: Sequence[Episode], **more: Any) -> dict[str, Any]:
    turns = Turns.from_episodes(episodes)
    credit = assign(turns, "gigpo")
    return {
        "step": update,
        "kind": "update",
        "update": update,
        "episodes": len(episodes),
        "branches": 0,
        "failures": 0,
        "success": float(np.mean([one.success for one in episodes])),
        "turns": len(turns) / len(episodes),
        "valid": 1.0,
        "policy": {
            "loss": 0.1,
            "entropy": 2.0 - 0.1 * update,
            "approx_kl": 0.01,
            "clip_share": 0.02,
            "skipped_steps": 0,
        },
        "credit": dict(credit.diagnostics),
        "allocation": {},
        **more,
    }


def make_run(
    folder: Path,
    *,
    updates: int = 3,
    tasks: int = 1,
    episodes: Sequence[Episode] | None = None,
    after: float = 0.75,
    finished: bool = True,
    **recipe: Any,
) -> Path:
    """A run folder with rollouts, metrics, timing and evaluations."""
    config = make_config({"model": "linear", "updates": updates, "eval_splits": ["valid"], **recipe})
    folder.mkdir(parents=True)
    (folder / "rollouts").mkdir()
    (folder / "evaluations").mkdir()
    (folder / "config.json").write_text(json.dumps(config.model_dump(mode="json")))
    played = list(episodes) if episodes is not None else [one for at in range(tasks) for one in woven(f"t{at}")]
    lines = [evaluation_line("before", 0, {"all": 0.25, "weave": 0.25})]
    timing = []
    for update in range(1, updates + 1):
        write_episodes(folder / f"rollouts/{update:06d}.jsonl.gz", played)
        lines.append(update_line(update, played))
        timing.append({"step": update, "update": 0.5, "rollout": 2.0, "credit": 0.25})
    if finished:
        lines.append(evaluation_line("after", updates, {"all": after, "weave": after}))
    for moment, share in {"before": 0.25, "after": after}.items():
        played = [
            episode(f"e{at}", ["s", "a", "W"], task=f"e{at}", won=at < round(4 * share), family="weave")
            for at in range(4)
        ]
        write_episodes(folder / f"evaluations/{moment}-valid.jsonl.gz", played)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in timing))
    return folder


def pieces(page: Path) -> list[Any]:
    """The data of a page, piece by piece."""
    found = PIECE.findall(page.read_text(encoding="utf-8"))
    assert [int(number) for number, _ in found] == list(range(len(found)))
    return [json.loads(gzip.decompress(base64.b64decode(text))) for _, text in found]
