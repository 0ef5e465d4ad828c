"""Recipes for other engines, and the doctor: plain logic that needs no engine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepcredit.cli import main
from stepcredit.core.errors import MissingExtraError, OptionError
from stepcredit.integrations.engines import examine, installed
from stepcredit.integrations.engines.installed import TRL, VERL, Engine, check_version
from stepcredit.integrations.verl import launch
from stepcredit.integrations.verl.recipe import overrides
from stepcredit.integrations.verl.settings import EnvironmentSettings, environment_settings
from stepcredit.training.config import make_config

DOCS = Path(__file__).resolve().parents[2] / "docs" / "integrations"

RECIPE: dict[str, Any] = {"model": "models/base", "constrained": False, "final_learning_rate": 5e-4}


def values(**changes: Any) -> dict[str, str]:
    return dict(line.split("=", 1) for line in overrides(make_config({**RECIPE, **changes})))


def test_method_and_options_become_the_estimator() -> None:
    found = values(method="graft", method_options={"lam": 0.8, "gae": False})
    assert found["algorithm.adv_estimator"] == "stepcredit_graft"
    assert found["+algorithm.stepcredit.lam"] == "0.8"
    assert found["+algorithm.stepcredit.gae"] == "false"


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("gigpo", {"loss_mode": "vanilla", "loss_agg_mode": "token-mean", "kl_loss_type": "low_var_kl"}),
        ("graft", {"loss_mode": "stepcredit_turn_clip", "loss_agg_mode": "seq-mean-token-mean",
                   "use_kl_loss": "false"}),
        ("tsbpo", {"loss_mode": "stepcredit_complete_turn", "loss_agg_mode": "seq-mean-token-sum",
                   "kl_loss_type": "stepcredit_tangent", "kl_loss_coef": "0.05", "clip_ratio_c": "3.0"}),
        ("dr-grpo", {"loss_mode": "vanilla", "loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": "512"}),
        ("dapo", {"clip_ratio_high": "0.28", "clip_ratio_c": "1000000.0"}),
    ],
)  # fmt: skip
def test_objectives_become_losses(objective: str, expected: dict[str, str]) -> None:
    found = {key.rsplit(".", 1)[-1]: value for key, value in values(objective=objective).items()}
    assert {key: found[key] for key in expected} == expected


def test_settings_that_differ_from_their_defaults_are_given() -> None:
    found = values(environment_options={"families": ["pick", "look"], "train": 7}, horizon=12, prompt="chat")
    assert found["+data.stepcredit.environment_options"] == "{families:[pick,look],train:7}"
    assert found["+data.stepcredit.horizon"] == "12"
    assert "+data.stepcredit.prompt" not in found  # the default of the engine
    assert found["data.train_files"] == "train"


def test_an_allocator_needs_a_loader_that_does_not_read_ahead() -> None:
    found = values(root="fitted", branch="random", branch_budget=256, tasks_per_update=16, group_size=8)
    assert found["data.dataloader_num_workers"] == "0"
    assert found["+data.stepcredit.root"] == "fitted"
    assert found["+data.stepcredit.suffixes"] == "2"
    assert "data.dataloader_num_workers" not in values()


def test_decay_of_the_learning_rate_keeps_its_end() -> None:
    found = values(learning_rate=1e-3, final_learning_rate=1e-4)
    assert found["actor_rollout_ref.actor.optim.lr_scheduler_type"] == "cosine"
    assert float(found["actor_rollout_ref.actor.optim.min_lr_ratio"]) == pytest.approx(0.1)
    assert "actor_rollout_ref.actor.optim.lr_scheduler_type" not in values()


def test_clipping_reaches_the_optimiser_that_verls_engines_read() -> None:
    assert values(update_options={"max_grad_norm": 0.5})["actor_rollout_ref.actor.optim.clip_grad"] == "0.5"


def test_turn_level_ppo_brings_verls_critic() -> None:
    found = values(method="gae", objective="ppo", learning_rate=2e-4, final_learning_rate=1e-4)
    assert {key: value for key, value in found.items() if key.startswith("critic.")} == {
        "critic.enable": "true",
        "critic.model.path": "models/base",
        "critic.optim.lr": "0.002",
        "critic.optim.clip_grad": "1.0",
        "critic.optim.lr_scheduler_type": "cosine",
        "critic.optim.min_lr_ratio": "0.5",
        "critic.cliprange_value": "2.0",
        "critic.loss_agg_mode": "seq-mean-token-mean",
    }
    assert not any(key.startswith("critic.") for key in values())


def test_text_that_means_something_to_hydra_is_quoted() -> None:
    found = values(model="a b/$X,{y}", environment_options={"families": ["pick"], "seed": 3})
    assert found["actor_rollout_ref.model.path"] == '"a b/$X,{y}"'
    assert found["+data.stepcredit.environment_options"] == "{families:[pick],seed:3}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "tiny"}, "'model'"),
        ({"constrained": True}, "constrained = false"),
        ({"demonstrations": {"pick": 3}}, "'demonstrations'"),
        ({"root": "fitted", "branch": "fitted"}, "'random' branches in a session"),
        ({"objective": "tsbpo", "objective_options": {"tangent_bound": 5.0}}, "only 10 fits"),
        ({"objective": "graft", "objective_options": {"dual_clip": 3.0}}, "'off'"),
        ({"update_options": {"minibatch": 8}}, "verl counts rows"),
    ],
)
def test_what_verl_cannot_do_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        values(**changes)


def test_dry_run_prints_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('model = "models/base"\nconstrained = false\nmethod = "gaca"\n', encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(recipe), "--engine", "verl", "--dry-run", "--horizon", "9", "--out", str(tmp_path / "out"),
              "data.max_prompt_length=2048", "+data.stepcredit.processes=4"])  # fmt: skip
    assert not stopped.value.code
    printed = capsys.readouterr().out
    assert printed.startswith("python -m verl.trainer.main_ppo \\\n    algorithm.adv_estimator=stepcredit_gaca")
    lines = [line.strip(" \\") for line in printed.splitlines()]
    assert lines[-2:] == ["data.max_prompt_length=2048", "+data.stepcredit.processes=4"]
    assert "+data.stepcredit.horizon=9" in lines
    assert f"trainer.rollout_data_dir={tmp_path / 'out' / 'rollouts'}" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry-run"], "--engine verl"),
        (["--engine", "verl", "--resume", "runs/a"], "continues by itself"),
        (["--engine", "verl", "--model", "x", "--constrained", "false", "--methd", "gaca"], "Did you mean 'method'"),
    ],
)
def test_wrong_command_lines_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_running_needs_verl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "installed", lambda self: None)
    with pytest.raises(MissingExtraError, match=r"verl>=0\.9,<0\.10"):
        launch.run(["python"])
    monkeypatch.setattr(Engine, "installed", lambda self: "0.10.1")
    with pytest.raises(OptionError, match=r"0\.10\.1 is installed"):
        launch.run(["python"])


@pytest.mark.parametrize(
    ("engine", "version", "fits"),
    [
        (VERL, "0.9.0", True),
        (VERL, "0.9.1+cpu", True),
        (VERL, "0.8.3", False),
        (VERL, "0.10.0", False),
        (TRL, "1.16.0", True),
        (TRL, "0.29.1", False),
        (TRL, "2.0", False),
    ],
)
def test_supported_versions(engine: Engine, version: str, fits: bool) -> None:
    if fits:
        check_version(engine, version)
    else:
        with pytest.raises(OptionError, match=re.escape(engine.supported)):
            check_version(engine, version)


def test_doctor_without_engines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Engine, "installed", lambda self: None)
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", "--json"])
    assert not stopped.value.code
    found = json.loads(capsys.readouterr().out)
    assert [engine["name"] for engine in found["engines"]] == ["verl", "trl"]
    assert all(engine["installed"] is None and not engine["problems"] for engine in found["engines"])


def test_doctor_is_loud_about_a_broken_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed.Engine, "installed", lambda self: "0.8.0" if self is VERL else None)

    def broken(engine: Engine) -> str:
        raise ImportError("no such thing")

    monkeypatch.setitem(examine._CHECKS, "verl", (broken,))
    with pytest.raises(SystemExit) as stopped:
        main(["doctor"])
    assert stopped.value.code == 1
    printed = capsys.readouterr().out
    assert "PROBLEM: OptionError: verl 0.8.0 is installed" in printed
    assert "PROBLEM: ImportError: no such thing" in printed


def test_verl_and_trl_in_one_environment_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "installed", lambda self: "1.16.0" if self is TRL else "0.9.1")
    monkeypatch.setitem(examine._CHECKS, "verl", (examine._alone,))
    (problem,) = examine.examine(VERL).problems
    assert "use two environments" in problem


def test_settings_refuse_what_they_do_not_know() -> None:
    with pytest.raises(OptionError, match="Did you mean 'suffixes'"):
        environment_settings({"sufixes": 2})
    with pytest.raises(OptionError, match=r"data\.stepcredit\.processes: got 0"):
        environment_settings({"processes": 0})


def test_the_page_lists_every_setting() -> None:
    page = (DOCS / "verl.md").read_text(encoding="utf-8")
    for name, field in EnvironmentSettings.model_fields.items():
        assert re.search(rf"^\| `{name}` \| .* \| {re.escape(str(field.description))} \|$", page, re.MULTILINE), name
