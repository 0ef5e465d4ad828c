"""Inside verl: its own ``main_ppo``, two updates on household episodes, one row a turn, credit equal to ``assign``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="needs verl: scripts/test-engines verl")

from tiny_agent import ENVIRONMENT_OPTIONS, HORIZON, MAX_RESPONSE_TOKENS
from verl_cpu.run import main_ppo

from stepcredit.core.files import read_episodes
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign
from stepcredit.integrations.verl.launch import command
from stepcredit.training.config import make_config

SECONDS = 1500
"""A run takes about a minute on two quiet cores, and many where others want them too."""
pytestmark = pytest.mark.timeout(SECONDS + 300)

GROUP, TASKS = 4, 2

RECIPE: dict[str, Any] = {
    "environment_options": ENVIRONMENT_OPTIONS,
    "constrained": False,
    "prompt": "compact",
    "horizon": HORIZON,
    "max_response_tokens": MAX_RESPONSE_TOKENS,
    "tasks_per_update": TASKS,
    "group_size": GROUP,
    "updates": 2,
    "update_options": {"epochs": 1},
    "eval_every": 0,
    "learning_rate": 2e-4,
    "final_learning_rate": 2e-4,
}

RUNS: dict[str, dict[str, Any]] = {
    "graft": {"method": "graft", "method_options": {"lam": 0.8}, "objective": "graft"},
    # Everything at once: tasks and quotas from the allocator, branches, complete turns, the tangent penalty.
    "gaca": {
        "method": "gaca",
        "objective": "tsbpo",
        "root": "uniform",
        "branch": "random",
        "branch_budget": TASKS * GROUP,
        "allocation_options": {"pool": TASKS},
    },
    # verl's own critic, whose values the method takes.
    "gae": {"method": "gae", "objective": "ppo"},
}


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, agent_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run: its name and folder."""
    folder = tmp_path_factory.mktemp(request.param)
    config = make_config({**RECIPE, **RUNS[request.param], "model": str(agent_folder)})
    _, _, _, *recipe = command(config, ["data.max_prompt_length=900", "trainer.save_freq=-1"], folder / "out")
    main_ppo([*recipe, "+data.stepcredit.processes=1"], folder, SECONDS)
    return request.param, folder


def steps(folder: Path) -> list[tuple[list[dict[str, Any]], list[Any]]]:
    """Rows that verl learnt from, and the episodes that were written, of both updates."""
    files = [folder / "out" / "rollouts" / "stepcredit" / f"{step:06d}.jsonl" for step in (1, 2)]
    records = [folder / "record" / f"{step}.json" for step in (1, 2)]
    return [
        (json.loads(record.read_text(encoding="utf-8")), list(read_episodes(file)))
        for record, file in zip(records, files, strict=True)
    ]


def logged(folder: Path) -> list[dict[str, str]]:
    """The metrics that verl printed of both updates, as it spells them."""
    printed = (folder / "printed.txt").read_text(encoding="utf-8")
    lines = [line for step in (1, 2) for line in printed.splitlines() if f"step:{step} - " in line]
    assert len(lines) == 2
    return [dict(part.rsplit(":", 1) for part in line.split(" - ")[1:] if ":" in part) for line in lines]


def test_advantages_equal_assign_on_the_written_rollouts(run: Any) -> None:
    name, folder = run
    spread = 0.0
    for rows, episodes in steps(folder):
        turns = Turns.from_episodes(episodes)
        options = dict(RUNS[name].get("method_options", {}))
        if name == "gae":
            options["values"] = np.array([turn.extra["value"] for episode in episodes for turn in episode.turns])
        credit = assign(turns, RUNS[name]["method"], **options)
        wanted = {
            (turns.episode_names[turns.episode[row]], int(turns.turn[row])): value
            for row, value in enumerate(credit.advantage)
        }
        seen = set()
        for row in rows:
            if row["padding"]:
                assert not any(row["response_mask"])
                assert not any(row["advantages"])
                continue
            key = row["turn"]["episode"], row["turn"]["turn"]
            seen.add(key)
            np.testing.assert_allclose(row["advantages"], wanted[key], atol=1e-5)
            assert all(row["response_mask"])
            assert row["loss_mask"] == row["response_mask"]
        assert seen == set(wanted)
        spread = max(spread, float(np.std(credit.advantage)))
    assert spread > 0.1  # the comparison is not one of zeros


def test_episodes_have_a_row_for_every_turn_and_groups_are_whole(run: Any) -> None:
    name, folder = run
    for rows, episodes in steps(folder):
        assert sum(not row["padding"] for row in rows) == sum(len(episode.turns) for episode in episodes)
        assert max(len(episode.turns) for episode in episodes) > 1
        roots = [episode for episode in episodes if episode.parent is None]
        tasks = sorted({episode.task for episode in roots})
        assert [sum(one.task == task for one in roots) for task in tasks] == [GROUP] * TASKS
        for task in tasks:  # a group starts from one state
            assert len({one.turns[0].observation for one in roots if one.task == task}) == 1
        branches = [episode for episode in episodes if episode.parent is not None]
        assert bool(branches) == (name == "gaca")
        for branch in branches:
            parent = next(one for one in roots if one.episode == branch.parent.episode)
            assert branch.turns[0].observation == parent.turns[branch.parent.turn].observation


def test_verls_critic_gives_the_values_and_learns_the_returns(run: Any) -> None:
    name, folder = run
    if name != "gae":
        assert not any("values" in row for rows, _ in steps(folder) for row in rows)
        return
    values = []
    for rows, episodes in steps(folder):
        turns = {episode.episode: episode.turns for episode in episodes}
        for row in rows:
            if row["padding"]:
                continue
            turn = turns[row["turn"]["episode"]][row["turn"]["turn"]]
            # What verl holds for the first response token, whose value knows the prompt alone.
            assert row["values"][0] == pytest.approx(turn.extra["value"], abs=1e-6)
            target = row["advantages"][0] + turn.penalty + row["values"][0]
            np.testing.assert_allclose(row["returns"], target, atol=1e-5)
            values.append(row["values"][0])
    assert np.std(values) > 1e-3
    for metrics in logged(folder):
        assert float(metrics["critic/vf_loss"]) > 0
        assert float(metrics["critic/grad_norm"]) > 0


def test_verl_trained(run: Any) -> None:
    name, folder = run
    for metrics in logged(folder):
        assert float(metrics["actor/grad_norm"]) > 0
        assert float(metrics["stepcredit/mean_abs_advantage"]) > 0
        # The server and the trainer give the same log-probabilities: prompts, tokens and weights are the same.
        assert float(metrics["training/rollout_probs_diff_max"]) < 1e-4
        assert ("actor/kl_loss" in metrics) == (name == "gaca")
