"""Record the credit of every method on one stored file of rollouts, chains and branches, as golden numbers.

    python tests/golden/record.py

The recorded numbers pin what a version computes. They change only when a definition does, and then with the reason in
the changelog. ``tests/credit/test_golden.py`` compares.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).resolve().parent
sys.path.insert(0, str(GOLDEN.parent))

from reference.batches import random_chains, random_forest  # noqa: E402
from stepcredit.core.episodes import Episode  # noqa: E402
from stepcredit.core.files import read_turns, write_episodes  # noqa: E402
from stepcredit.core.turns import Turns  # noqa: E402
from stepcredit.credit.catalogue import METHODS, assign  # noqa: E402

ROLLOUTS = GOLDEN / "rollouts.jsonl"
CHAINS, FOREST = 24, 71
"""Seeds of the two halves of the file."""


def episodes() -> list[Episode]:
    """The batch: a few tasks of chains, and of forests under other names."""
    forest = [
        dataclasses.replace(
            episode,
            task=f"forest {episode.task}",
            episode=f"forest {episode.episode}",
            parent=episode.parent and dataclasses.replace(episode.parent, episode=f"forest {episode.parent.episode}"),
        )
        for episode in random_forest(FOREST)
    ]
    return random_chains(CHAINS) + forest


def given(turns: Turns, name: str) -> dict[str, Any]:
    """Columns that a caller supplies to the method."""
    made = -1.5 + np.sin(np.arange(len(turns)))
    return {column: made for column in ("values", "hindsight") if column in METHODS[name].options}


def cases(name: str) -> list[dict[str, Any]]:
    """The sets of options that are recorded: the defaults and every preset that needs no model."""
    presets = [METHODS[name].preset(preset) for preset in METHODS[name].presets]
    return [{}, *(options for options in presets if options.get("matcher") != "embedding")]


def main() -> None:
    """Write the rollouts and one file a method."""
    write_episodes(ROLLOUTS, episodes())
    turns = read_turns(ROLLOUTS)
    for name in METHODS:
        recorded = [
            {"options": options, "advantage": assign(turns, name, **options, **given(turns, name)).advantage.tolist()}
            for options in cases(name)
        ]
        (GOLDEN / f"{name}.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(f"{len(turns)} turns, {len(METHODS)} methods")


if __name__ == "__main__":
    main()
