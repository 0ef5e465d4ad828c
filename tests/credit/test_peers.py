"""Numbers recorded from the released GiGPO and HGPO code (fp32, six decimals)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.turns import Turns
from stepcredit.credit.groups import step_returns
from stepcredit.credit.history_groups import hgpo
from stepcredit.credit.state_groups import gigpo

CASES = ["hand5", "allfail", "rand3x4"]


def load(shared_data: Path, name: str) -> tuple[dict[str, Any], Turns, list[int]]:
    """The recorded case, its table, and the recorded row of each row of the table."""
    cases = json.loads((shared_data / "peers" / "golden.json").read_text(encoding="utf-8"))
    case = next(case for case in cases if case["name"] == name)
    rows: dict[tuple[str, str], list[int]] = {}
    for row, key in enumerate(zip(case["uid"], case["traj"], strict=True)):
        rows.setdefault(key, []).append(row)
    episodes = [
        Episode(
            task,
            f"{task}/{trajectory}",
            tuple(
                Turn(
                    case["obs"][row],
                    "action",
                    reward=case["rewards"][row],
                    penalty=case["invalid_coef"] * (1 - case["valid"][row]),
                )
                for row in own
            ),
            case["next_obs"][own[-1]],
            success=case["episode_rewards"][own[0]] > 0,
        )
        for (task, trajectory), own in rows.items()
    ]
    return case, Turns.from_episodes(episodes), [row for own in rows.values() for row in own]


@pytest.mark.parametrize("name", CASES)
def test_step_returns(shared_data: Path, name: str) -> None:
    case, turns, order = load(shared_data, name)
    np.testing.assert_allclose(step_returns(turns, case["gamma"]), np.array(case["returns"])[order], atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("normalize", ["mean", "mean_std"])
def test_gigpo(shared_data: Path, name: str, normalize: Any) -> None:
    case, turns, order = load(shared_data, name)
    credit = gigpo(turns, gamma=case["gamma"], normalize=normalize)
    np.testing.assert_allclose(credit.advantage, np.array(case[f"gigpo_{normalize}_norm"])[order], atol=1e-5)
    episode = np.array(case[f"episode_{normalize}_norm"])[order]
    np.testing.assert_allclose(credit.components["episode"], episode, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("normalize", ["mean", "mean_std"])
@pytest.mark.parametrize("history", [0, 2, 4])
@pytest.mark.parametrize("episode_weight", [0, 1])
def test_hgpo(shared_data: Path, name: str, normalize: Any, history: int, episode_weight: int) -> None:
    case, turns, order = load(shared_data, name)
    options = {"gamma": case["gamma"], "normalize": normalize, "history": history, "episode_weight": episode_weight}
    recorded = case[f"hgpo_K{history}_base{episode_weight}_{normalize}_norm"]
    np.testing.assert_allclose(hgpo(turns, **options).advantage, np.array(recorded)[order], atol=1e-5)
