"""Worked examples for the documentation, computed by the code they explain.

``example(NAME)`` gives Markdown: what method NAME makes of a few short episodes. ``example("catalogue")`` gives the
table of all methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign

OPTIONS: dict[str, dict[str, Any]] = {
    "grpo": {"normalize": "mean"},
    "gigpo": {"normalize": "mean"},
    "bipace": {"normalize": "mean"},
    "hgpo": {"normalize": "mean"},
    "gaca": {"normalize": "mean"},
    "graphgpo": {"normalize": "mean"},
    "salt": {"normalize": "mean"},
    "rewardflow": {"normalize": "mean"},
}
"""Without the deviation the numbers can be checked by hand."""

GIVEN = {"values": (0.4, 0.5, 0.8), "hindsight": (-0.9, -0.6, -0.3)}
"""Columns a caller supplies: one number for each state of the example."""

ALL_FAILED = ("progpo",)
"""Methods that act only where every episode of a task failed."""

STATES = ("o1", "o2", "o3")


def example(name: str) -> str:
    """Markdown for one method, or for ``catalogue``."""
    return _catalogue() if name == "catalogue" else _worked(name)


def episodes(*, branches: bool, outcome: float) -> list[Episode]:
    """A ends with ``outcome``, B fails at once with a charge on its last turn, C repeats A's beginning and fails.

    With branches, C leaves A at its second turn instead of starting anew.
    """
    win = _episode("A", [("o1", "left", 0.2), ("o2", "take", 0.6), ("o3", "put", 0.4)], "won", reward=outcome)
    lose = _episode("B", [("o1", "right", 0.3), ("o3", "drop", 0.9)], "lost", penalty=0.1)
    again = [("o1", "left", 0.2), ("o2", "take", 0.5), ("o3", "drop", 0.8)]
    if branches:
        return [win, lose, _episode("C", again[1:], "lost", parent=Parent("A", 1))]
    return [win, lose, _episode("C", again, "lost")]


def _episode(
    name: str,
    steps: list[tuple[str, str, float]],
    final: str,
    reward: float = 0.0,
    penalty: float = 0.0,
    parent: Parent | None = None,
) -> Episode:
    last = len(steps) - 1
    turns = tuple(
        Turn(
            seen,
            action,
            reward=reward * (t == last),
            penalty=penalty * (t == last),
            valid=not (penalty and t == last),
            nll=nll,
            entropy=nll,
        )
        for t, (seen, action, nll) in enumerate(steps)
    )
    return Episode("t", name, turns, final, success=reward > 0, parent=parent)


def _worked(name: str) -> str:
    method = METHODS[name]
    branches = method.family == "tree" or "branch" in method.needs or name in ("treepo", "at2po")
    outcome = 0.0 if name in ALL_FAILED else 10.0
    turns = Turns.from_episodes(episodes(branches=branches, outcome=outcome))
    options = dict(OPTIONS.get(name, {}))
    given = {
        column: np.array([GIVEN[column][STATES.index(turns.state_names[state])] for state in turns.state])
        for column in GIVEN
        if column in method.options
    }
    credit = assign(turns, name, **options, **given)
    start = "leaves A at its turn 1" if branches else "begins like A"
    setting = ", ".join(f"`{key}={value}`" for key, value in options.items()) or "default options"
    lines = [
        f"A {'wins 10' if outcome else 'fails'}, B fails and is charged 0.1 on its last turn, C {start} and fails. "
        f"With {setting}:",
        "",
        _table_row(
            "turn", "state", "action", "reward", "penalty", *_recorded(name), *given, *credit.components, "**A**"
        ),
        "| --- | --- | --- |" + " ---: |" * (3 + len(_recorded(name)) + len(given) + len(credit.components)),
    ]
    for row in range(len(turns)):
        numbers = [getattr(turns, column)[row] for column in _recorded(name)]
        numbers += [column[row] for column in given.values()]
        numbers += [part[row] for part in credit.components.values()]
        lines.append(
            _table_row(
                f"{turns.episode_names[turns.episode[row]]}{turns.turn[row]}",
                turns.state_names[turns.state[row]],
                turns.action_names[turns.action[row]],
                f"{turns.reward[row]:g}",
                f"{turns.penalty[row]:g}",
                *map(_number, numbers),
                f"**{_number(credit.advantage[row])}**",
            )
        )
    return "\n".join(lines)


def _catalogue() -> str:
    rows = [_table_row("method", "family", "what it does", "needs", "forests"), "| --- | --- | --- | --- | --- |"]
    for method in METHODS.values():
        needs = ", ".join(f"`{need}`" for need in method.needs) or "–"
        link = f"[`{method.name}`]({method.name}.md)"
        rows.append(_table_row(link, method.family, method.summary, needs, method.forest or "chains only"))
    return "\n".join(rows)


def _recorded(name: str) -> list[str]:
    return [need for need in METHODS[name].needs if need in ("nll", "entropy")]


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4g}"


def _table_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
