"""Numbers that break: the update is skipped, counted and explained; three in a row stop the run at its last checkpoint.

And what 32-bit floats would do to credit, against the 64-bit floats it is computed in.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepcredit.policy.linear
from reference.batches import batch, chain
from stepcredit.core.errors import CheckpointError, EnvironmentFaultError, NumericsError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign
from stepcredit.policy.linear import LinearPolicy
from stepcredit.policy.linear_gradient import PolicyStep, policy_step
from stepcredit.report.runs import run_report
from stepcredit.training.config import make_config
from stepcredit.training.loop import BROKEN_UPDATES, train
from stepcredit.training.monitor import Silent
from stepcredit.training.run_folder import RunFolder, read_progress

SMALL: dict[str, Any] = {
    "model": "linear",
    "environment": "stepcredit.environments.chain:ChainSuite",
    "updates": 6,
    "tasks_per_update": 2,
    "group_size": 4,
    "horizon": 4,
    "eval_every": 0,
    "update_options": {"epochs": 1},
}


class Listener(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def train_small(folder: Path, **values: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Lines of the updates, and what was said."""
    monitor = Listener()
    with RunFolder(folder) as run:
        config = make_config({**SMALL, **values})
        if not run.config_file.exists():
            run.write_config(config.model_dump(mode="json"))
        train(config, run, monitor)
        return [line for line in run.metrics() if line["kind"] == "update"], monitor.said


def break_updates(monkeypatch: pytest.MonkeyPatch, broken: Sequence[int], spoil: Callable[[PolicyStep], Any]) -> None:
    """Spoil the policy step of some updates, counted from 1; one minibatch an update."""
    done = 0

    def step(*arguments: Any, **options: Any) -> Any:
        nonlocal done
        done += 1
        found = policy_step(*arguments, **options)
        return spoil(found) if done in broken else found

    monkeypatch.setattr(stepcredit.policy.linear, "policy_step", step)


def broken_loss(step: PolicyStep) -> PolicyStep:
    return dataclasses.replace(step, loss=np.nan, gradient=np.full_like(step.gradient, np.nan))


def infinite_gradient(step: PolicyStep) -> PolicyStep:
    return dataclasses.replace(step, gradient=np.where(step.gradient != 0, np.inf, 0.0))


def weights_after(run: RunFolder, updates: int) -> np.ndarray[Any, Any]:
    policy = LinearPolicy()
    policy.load(next(folder for folder in run.checkpoints() if read_progress(folder).updates == updates))
    return policy.weights


@pytest.mark.parametrize("spoil", [broken_loss, infinite_gradient])
def test_a_broken_update_is_skipped_counted_and_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoil: Callable[[PolicyStep], Any]
) -> None:
    break_updates(monkeypatch, [2, 3, 5, 6], spoil)
    lines, said = train_small(tmp_path)
    explained = "no optimiser step had a finite loss and gradient."
    assert [line.get("skipped", "") for line in lines] == ["", explained, explained, "", explained, explained]
    assert [line["policy"]["skipped_steps"] for line in lines] == [0, 1, 1, 0, 1, 1]
    assert [text for text in said if "skipped" in text] == [
        f"Update {update} is skipped: {explained}" for update in (2, 3, 5, 6)
    ]
    run = RunFolder(tmp_path)
    np.testing.assert_array_equal(weights_after(run, 6), weights_after(run, 5))
    assert np.isfinite(weights_after(run, 6)).all()
    assert weights_after(run, 6).any()
    assert any("4 updates moved nothing" in warning for warning in run_report(tmp_path).warnings)


def test_metrics_stay_json_whatever_the_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    break_updates(monkeypatch, [2], broken_loss)
    train_small(tmp_path, updates=2)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = [json.loads(line, parse_constant=refuse) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["policy"]["loss"] is None


def test_three_broken_updates_in_a_row_stop_the_run_at_its_last_good_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_updates(monkeypatch, [3, 4, 5], broken_loss)
    with pytest.raises(NumericsError, match="3 updates in a row moved nothing; the last: no optimiser step") as stopped:
        train_small(tmp_path)
    assert str(tmp_path) in str(stopped.value)
    run = RunFolder(tmp_path)
    found = run.latest()
    assert found is not None
    assert found[0].updates == 4
    assert np.isfinite(weights_after(run, 4)).all()
    # Going on is exact, as after any stop: the same update breaks again, or not, where the cause is gone.
    break_updates(monkeypatch, [], broken_loss)
    lines, _ = train_small(tmp_path)
    assert [line["update"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert ["skipped" in line for line in lines] == [False, False, True, True, False, False]


def test_an_imitation_epoch_of_broken_numbers_stops_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    likelihood = LinearPolicy._likelihood_step

    def broken(self: LinearPolicy, shown: Any) -> Any:
        loss, gradient = likelihood(self, shown)
        return loss, np.full_like(gradient, np.nan)

    monkeypatch.setattr(LinearPolicy, "_likelihood_step", broken)
    with pytest.raises(NumericsError, match="No optimiser step of imitation epoch 1 had a finite loss and gradient"):
        train_small(tmp_path, demonstrations={"chain": 2}, imitation_epochs=2)


def test_credit_that_overflows_skips_the_update_and_names_the_episode(tmp_path: Path) -> None:
    with pytest.raises(NumericsError, match=f"{BROKEN_UPDATES} updates in a row moved nothing"):
        train_small(tmp_path, success_reward=1e308, invalid_penalty=1e308, group_size=8)
    lines = [line for line in RunFolder(tmp_path).metrics() if line["kind"] == "update"]
    assert [line["update"] for line in lines] == [1, 2, 3]
    assert all("too large for 64-bit floats" in line["skipped"] for line in lines)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_broken_logits_end_their_episodes_and_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: float
) -> None:
    train_small(tmp_path, updates=2)
    respond = stepcredit.policy.linear.LinearSession.respond

    def spoilt(self: Any, requests: Any) -> Any:
        self._policy.weights[:] = number
        with np.errstate(invalid="ignore"):
            return respond(self, requests)

    monkeypatch.setattr(stepcredit.policy.linear.LinearSession, "respond", spoilt)
    with pytest.raises(EnvironmentFaultError, match="the first: response: a log-probability is not finite"):
        train_small(tmp_path)
    assert np.isfinite(weights_after(RunFolder(tmp_path), 2)).all()


def test_a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before(tmp_path: Path) -> None:
    train_small(tmp_path / "whole", updates=4)
    shutil.copytree(tmp_path / "whole", tmp_path / "hurt")
    run = RunFolder(tmp_path / "hurt")
    newest = run.checkpoints()[-1] / "linear.npz"
    newest.write_bytes(newest.read_bytes()[:1000])
    lines, said = train_small(tmp_path / "hurt", updates=4)
    assert any("Trying the checkpoint before it." in text for text in said)
    assert [line["update"] for line in lines] == [1, 2, 3, 4]
    np.testing.assert_array_equal(weights_after(run, 4), weights_after(RunFolder(tmp_path / "whole"), 4))


def test_a_run_none_of_whose_checkpoints_can_be_read_says_so(tmp_path: Path) -> None:
    train_small(tmp_path, updates=2)
    for folder in RunFolder(tmp_path).checkpoints():
        (folder / "linear.npz").unlink()
    with pytest.raises(CheckpointError, match="does not hold a linear policy"):
        train_small(tmp_path, updates=3)


# 32 against 64 bits.

COMPUTABLE = [name for name, method in METHODS.items() if not {"values", "hindsight"} & set(method.needs)]


@pytest.mark.parametrize("name", COMPUTABLE)
def test_rewards_that_32_bits_hold_exactly_give_the_same_credit_bit_by_bit(name: str) -> None:
    """Eighths survive the way through 32 bits; whatever a method does with them, it does in 64."""
    for seed in range(8):
        episodes = [
            dataclasses.replace(
                episode,
                turns=tuple(
                    dataclasses.replace(turn, reward=round(turn.reward * 8) / 8, penalty=round(turn.penalty * 8) / 8)
                    for turn in episode.turns
                ),
            )
            for episode in batch(seed)
            if episode.parent is None
        ]
        turns = Turns.from_episodes(episodes)
        narrow = dataclasses.replace(
            turns,
            reward=turns.reward.astype(np.float32).astype(np.float64),
            penalty=turns.penalty.astype(np.float32).astype(np.float64),
        )
        np.testing.assert_array_equal(assign(narrow, name).advantage, assign(turns, name).advantage)


@pytest.mark.parametrize("method", ["grpo", "gigpo", "rloo"])
def test_32_bit_arithmetic_differs_by_its_own_precision_and_no_more(method: str) -> None:
    """Outcome credit of one group of eight, once as other stacks compute it, in 32 bits."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        rewards = rng.normal(size=8).round(3)
        turns = Turns.from_episodes(
            [chain("t", f"e{number}", ["s"], rewards=[float(value)]) for number, value in enumerate(rewards)]
        )
        narrow = rewards.astype(np.float32)
        if method == "rloo":
            expected = narrow - (narrow.sum() - narrow) / np.float32(7)
        else:
            expected = (narrow - narrow.mean()) / (narrow.std(ddof=1) + np.float32(1e-6))
        credit = assign(turns, method)
        found = credit.components.get("episode", credit.advantage)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", COMPUTABLE)
def test_equal_rewards_whose_32_bit_mean_is_off_give_exactly_nothing(name: str) -> None:
    """Known fault A.11: eight times 0.35 in 32 bits leave a residue that dividing by its own deviation amplifies."""
    value = float(np.float32(0.35))
    turns = Turns.from_episodes([chain("t", f"e{number}", ["s"], rewards=[value]) for number in range(8)])
    credit = assign(turns, name)
    assert not np.nan_to_num(credit.advantage).any()
