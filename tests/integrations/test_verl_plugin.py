"""Inside verl, without a run: what the plugin registers, its losses, its data set, and what it refuses."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="needs verl: scripts/test-engines verl")

import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo import core_algos

from stepcredit.core.episodes import Episode, Turn
from stepcredit.core.errors import InputError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import METHODS, assign
from stepcredit.integrations.engines import examine
from stepcredit.integrations.engines.installed import VERL
from stepcredit.integrations.engines.rows import credit_rows, episode_rows
from stepcredit.integrations.verl import advantage, losses, plugin
from stepcredit.integrations.verl.recipe import overrides
from stepcredit.integrations.verl.tasks import TaskDataset
from stepcredit.policy.losses import policy_loss, reference_penalty, token_weights
from stepcredit.policy.settings import OBJECTIVES
from stepcredit.training.config import make_config

SETTINGS = {"environment_options": {"families": ["pick"], "train": 6, "valid_seen": 1, "valid_unseen": 1}}


def batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """Three rows of responses, one of them padding."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    return {
        "old_log_prob": torch.randn(3, 4, generator=draw) - 1,
        "log_prob": (torch.randn(3, 4, generator=draw) - 1).requires_grad_(),
        "advantages": torch.tensor([[1.5], [-0.7], [9.0]]).expand(3, 4),
        "response_mask": mask,
    }


class Actor(dict[str, Any]):
    """The part of verl's actor configuration that a loss reads."""

    clip_ratio, clip_ratio_c = 0.2, 3.0

    def __init__(self) -> None:
        super().__init__(clip_ratio_low=0.2, clip_ratio_high=0.2)
        self.global_batch_info: dict[str, Any] = {}


def expected(name: str, data: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss of our own trainer on the same tokens."""
    mask = data["response_mask"].bool()
    turn = mask.nonzero()[:, 0]
    aggregation = "seq-mean-token-mean" if name == "graft" else "seq-mean-token-sum"
    loss, _ = policy_loss(
        OBJECTIVES[name].__class__(
            surrogate=OBJECTIVES[name].surrogate, aggregation=aggregation, dual_clip=OBJECTIVES[name].dual_clip
        ),
        logprob=data["log_prob"][mask],
        old=data["old_log_prob"][mask],
        advantage=data["advantages"][mask],
        turn=turn,
        turns=2,
        weight=token_weights(turn, 2, aggregation),
        entropy=torch.zeros(len(turn)),
    )
    return loss


@pytest.mark.parametrize(
    ("loss", "objective", "aggregation"),
    [
        (losses.turn_clip, "graft", "seq-mean-token-mean"),
        (losses.complete_turn, "tsbpo", "seq-mean-token-sum"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_losses_are_those_of_our_own_trainer(loss: Any, objective: str, aggregation: str, seed: int) -> None:
    data = batch(seed)
    value, metrics = loss(**data, loss_agg_mode=aggregation, config=Actor())
    wanted = expected(objective, data)
    torch.testing.assert_close(value, wanted, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(one, data["log_prob"], retain_graph=True)[0] for one in (value, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    assert not gradients[0][2].any()  # padding
    assert set(metrics) == {"actor/pg_clipfrac", "actor/ppo_kl"}


def test_rollout_correction_weighs_tokens() -> None:
    data = batch()
    weights = torch.full((3, 4), 0.5)
    half, _ = losses.turn_clip(**data, loss_agg_mode="seq-mean-token-mean", config=Actor(), rollout_is_weights=weights)
    torch.testing.assert_close(half, expected("graft", data) / 2)


def test_a_loss_refuses_an_aggregation_that_it_does_not_mean() -> None:
    with pytest.raises(OptionError, match="loss_agg_mode=seq-mean-token-sum"):
        losses.complete_turn(**batch(), loss_agg_mode="token-mean", config=Actor())


def test_tangent_penalty_is_known_to_verl_and_the_others_still_are() -> None:
    own, reference = torch.tensor([-1.0, -9.0]), torch.tensor([-1.5, -0.5])
    got = core_algos.kl_penalty(own, reference, "stepcredit_tangent")
    torch.testing.assert_close(got, reference_penalty(own, reference, "tangent"))
    torch.testing.assert_close(core_algos.kl_penalty(own, reference, "k1"), own - reference)
    from verl.workers.utils import losses as workers

    assert workers.kl_penalty is core_algos.kl_penalty


def test_every_method_and_loss_is_registered() -> None:
    for name in METHODS:
        assert core_algos.get_adv_estimator_fn(f"stepcredit_{name}")
    assert core_algos.get_policy_loss_fn("stepcredit_turn_clip") is losses.turn_clip
    assert core_algos.get_policy_loss_fn("stepcredit_complete_turn") is losses.complete_turn
    report = examine.examine(VERL)
    assert report.problems == ()
    assert report.version is not None


def test_a_failing_plugin_is_loud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="taken"):
        plugin._fail(ValueError("taken"))
    assert "The stepcredit plugin of verl is not registered: taken" in caplog.text


def test_an_unregistered_plugin_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(core_algos.ADV_ESTIMATOR_REGISTRY, "stepcredit_graft")
    (problem,) = examine.examine(VERL).problems
    assert "verl has not registered stepcredit_graft" in problem


def test_other_trainers_are_refused() -> None:
    estimator = core_algos.get_adv_estimator_fn("stepcredit_gigpo")
    with pytest.raises(OptionError, match="V1 trainer"):
        estimator(token_level_rewards=torch.zeros(1, 2), response_mask=torch.ones(1, 2), config=None)


def config(**changes: Any) -> Any:
    values = {
        "algorithm": {"adv_estimator": "stepcredit_graft", "use_kl_in_reward": False, "stepcredit": {"lam": 0.8}},
        "data": {"dataloader_num_workers": 0, "train_files": "train", "train_batch_size": 2, "stepcredit": SETTINGS},
        "trainer": {"v1": {"trainer_mode": "sync"}},
        "critic": {"enable": None},
    }
    return OmegaConf.merge(OmegaConf.create(values), OmegaConf.create(changes))


def changed_trainer() -> type[Any]:
    """A trainer class that computes our advantages; what is stock says so."""

    class Trainer:
        def __init__(self, config: Any) -> None:
            self.config = config

        def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
            return "stock", plugin.replaced.get()

    advantage.change(Trainer)
    return Trainer


def test_options_are_read_like_those_of_the_command_line() -> None:
    assert advantage.method_of(config().algorithm) == ("graft", {"lam": 0.8})
    off = config(algorithm={"adv_estimator": "stepcredit_gigpo", "stepcredit": {"lam": None}}).algorithm
    del off.stepcredit.lam
    assert advantage.method_of(off) == ("gigpo", {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"adv_estimator": "stepcredit_grapht"}}, "Did you mean 'graft'"),
        ({"algorithm": {"stepcredit": {"lamb": 1}}}, "Did you mean 'lam'"),
        ({"algorithm": {"stepcredit": {"lam": 2}}}, "lam"),
        ({"algorithm": {"use_kl_in_reward": True}}, "use_kl_loss"),
        ({"algorithm": {"adv_estimator": "stepcredit_gae"}}, "set critic.enable=True"),
        (
            {
                "algorithm": {"adv_estimator": "stepcredit_hcapo", "stepcredit": None},
                "data": {"custom_cls": {"path": "pkg://stepcredit.integrations.verl.tasks"}},
            },
            "agent loop of your own",
        ),
        ({"data": {"dataloader_num_workers": 8, "stepcredit": {"root": "fitted"}}}, "dataloader_num_workers=0"),
        ({"data": {"stepcredit": {"root": "fitted"}}, "trainer": {"v1": {"trainer_mode": "separate_async"}}}, "sync"),
    ],
)
def test_a_configuration_is_refused_before_anything_is_rolled_out(changes: dict[str, Any], message: str) -> None:
    trainer = changed_trainer()
    trainer(config())
    with pytest.raises(OptionError, match=message):
        trainer(config(**changes))


@pytest.mark.parametrize(
    ("method", "objective", "refused"),
    [("graft", "graft", ""), ("tsbpo", "tsbpo", ""), ("gae", "ppo", ""), ("hcapo", "gigpo", "agent loop of your own")],
)
def test_recipes_fit_verls_own_configuration(method: str, objective: str, refused: str) -> None:
    recipe = {"model": "models/base", "constrained": False, "method": method, "objective": objective}
    arguments = overrides(make_config({**recipe, "learning_rate": 1e-6, "update_options": {"max_grad_norm": 0.5}}))
    with initialize_config_module("verl.trainer.config", version_base=None):
        composed = compose("ppo_trainer", overrides=arguments)
    assert composed.actor_rollout_ref.actor.optim.clip_grad == 0.5
    assert composed.critic.optim.lr == 1e-5
    assert composed.critic.enable is (True if method == "gae" else None)
    with pytest.raises(OptionError, match=refused) if refused else nullcontext():
        advantage.check_config(composed)


def test_stock_estimators_are_untouched() -> None:
    trainer = changed_trainer()(config(algorithm={"adv_estimator": "grpo", "use_kl_in_reward": True}))
    assert trainer._compute_advantage("batch", {}) == ("stock", False)


def episode(name: str, states: str, won: bool, stop: str = "won") -> Episode:
    turns = tuple(Turn(state, f"go {state}", reward=10.0 * (won and state == states[-1]), nll=0.5) for state in states)
    return Episode("t", name, turns, "end", won, stop=stop)


def test_padding_and_failed_episodes_never_weigh(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A batch as verl holds it: rows shuffled, a padding row that copies a real one, an episode that failed."""
    good = [episode("a", "xyz", won=True), episode("b", "xw", won=False, stop="lost")]
    broken = episode("c", "xy", won=False, stop="error")
    rows = [row for one in [*good, broken] for row in episode_rows(one)]
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    shuffled = [rows[index] for index in order] + [rows[0]]
    tags = [{}] * len(rows) + [{"is_padding": True}]
    masks = [torch.ones(2 + index % 3, dtype=torch.int64) for index in range(len(rows))] + [torch.zeros(3).long()]
    held = {
        "extra_fields": [{"stepcredit": row} for row in shuffled],
        "response_mask": torch.nested.as_nested_tensor(masks, layout=torch.jagged),
        "loss_mask": torch.nested.as_nested_tensor(masks, layout=torch.jagged),
    }
    written: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(advantage.tq, "kv_batch_get", lambda **_: held)

    def put(keys: list[str], partition_id: str, fields: TensorDict) -> None:
        written.update(fields.items())

    monkeypatch.setattr(advantage.tq, "kv_batch_put", put)
    observed: list[Episode] = []
    trainer = SimpleNamespace(
        config=OmegaConf.merge(config(), {"trainer": {"rollout_data_dir": str(tmp_path)}}),
        global_steps=7,
        parameter_sync_step=1,
        train_dataset=SimpleNamespace(curriculum=SimpleNamespace(observe=observed.extend)),
    )
    metrics: dict[str, Any] = {}
    keys = [f"key{index}" for index in range(len(shuffled))]
    meta = SimpleNamespace(keys=keys, tags=tags, partition_id="train")
    advantage.replace_advantages(trainer, meta, metrics)
    turns = Turns.from_episodes(good)
    credit = assign(turns, "graft", lam=0.8)
    wanted = {
        (turns.episode_names[turns.episode[row]], int(turns.turn[row])): value
        for row, value in enumerate(credit.advantage)
    }
    assert any(abs(value) > 0.1 for value in wanted.values())
    for place, row in enumerate(shuffled):
        own, mask = written["advantages"][place], written["response_mask"][place]
        assert torch.equal(mask, written["loss_mask"][place])
        if place == len(rows) or row["episode"] == "c":
            assert not own.any()
            assert not mask.any()
        else:
            np.testing.assert_allclose(own, wanted[row["episode"], row["turn"]], atol=1e-6)
            assert torch.equal(mask, masks[place])
    assert metrics["stepcredit/padding_rows"] == 1
    assert metrics["stepcredit/unscored_rows"] == 3
    assert metrics["stepcredit/episodes"] == 3
    assert sorted(one.episode for one in observed) == ["a", "b", "c"]
    assert (tmp_path / "stepcredit" / "000007.jsonl").exists()


def test_rows_without_a_turn_are_named() -> None:
    meta = SimpleNamespace(keys=["u_0_0"], tags=[{}])
    with pytest.raises(InputError, match="Row u_0_0 has no turn"):
        advantage.batch_rows(meta, [{"turn_scores": []}])


def test_the_actors_entropy_fills_rows_that_have_none() -> None:
    (row,) = episode_rows(episode("a", "x", won=True))
    entropy, mask = torch.tensor([1.0, 3.0, 100.0]), torch.tensor([1, 1, 0])
    (filled, known, padding) = advantage.with_entropy([row, {**row, "entropy": 0.25}, None], [entropy] * 3, [mask] * 3)
    assert filled is not None
    assert filled["entropy"] == 2.0
    assert known is not None
    assert known["entropy"] == 0.25
    assert padding is None


def test_the_critics_value_of_a_turn_knows_its_prompt_alone() -> None:
    """A_t + P_t + V_t is what the critic learns, by hand with γ = λ = 1: the rest of the episode's rewards."""
    turns = (Turn("x", "go", reward=1.0, penalty=0.5), Turn("y", "go", reward=4.0))
    rows = episode_rows(Episode("t", "a", turns, "end", True, stop="won"))
    mask, first_is_seen = torch.tensor([1, 1]), torch.tensor([0, 1])
    values = [torch.tensor([2.0, 9.0]), torch.tensor([9.0, 3.0]), torch.zeros(2)]
    filled = advantage.with_values([*rows, None], values, [mask, first_is_seen, torch.zeros(2).long()])
    assert [row and row["value"] for row in filled] == [2.0, 3.0, None]
    credit = credit_rows(filled, "gae", {"gamma": 1.0, "lam": 1.0})
    np.testing.assert_allclose(credit.advantage[:2], [5.0 - 2.0 - 0.5, 4.0 - 3.0])
    np.testing.assert_allclose(advantage.critic_targets(filled, credit.advantage)[:2], [5.0, 4.0])


def test_methods_with_a_column_run_where_something_supplies_it() -> None:
    trainer = changed_trainer()
    with_critic = {"algorithm": {"adv_estimator": "stepcredit_gae"}, "critic": {"enable": True}}
    own_loop = {"algorithm": {"adv_estimator": "stepcredit_hcapo", "stepcredit": None}}
    for changes in (with_critic, own_loop):
        assert trainer(config(**changes)).config.algorithm.adv_estimator.startswith("stepcredit_")


def test_dataset_yields_the_tasks_of_a_split() -> None:
    data = config().data
    tasks = TaskDataset("train", None, None, data)
    assert len(tasks) == 6
    item = tasks[3]
    assert item["agent_name"] == "stepcredit"
    assert item["index"] == 3
    assert item["data_source"] == "household/pick"
    assert item["raw_prompt"][0]["content"] == item["reward_model"]["ground_truth"]
    assert len(TaskDataset(["valid_seen", "valid_unseen"], None, None, data)) == 2
    assert len(TaskDataset("train", None, None, data, max_samples=2)) == 2
    branching = config(data={"stepcredit": {"suffixes": 2}}).data
    assert TaskDataset("train", None, None, branching)[0]["stepcredit_suffixes"] == 2
    assert TaskDataset("valid_seen", None, None, branching)[0]["stepcredit_suffixes"] == 0
    with pytest.raises(OptionError, match="Did you mean 'horizon'"):
        TaskDataset("train", None, None, config(data={"stepcredit": {"horizont": 3}}).data)


def test_curriculum_chooses_tasks_and_quotas_from_outcomes() -> None:
    data = config(data={"stepcredit": {"root": "fitted", "group_size": 4}}).data
    dataset = TaskDataset("train", None, None, data)
    assert TaskDataset("valid_seen", None, None, data).curriculum is None
    assert dataset.curriculum is not None
    for _ in range(3):
        items = [dataset[0] for _ in range(2)]
        assert sum(item["__rollout_n__"] for item in items) == 8
        names = [item["stepcredit_task"] for item in items]
        assert len(set(names)) == 2
        episodes = [
            Episode(item["stepcredit_task"], f"{item['stepcredit_task']}#{k}", (Turn("x", "y"),), "", k == 0)
            for item in items
            for k in range(item["__rollout_n__"])
        ]
        dataset.curriculum.observe(episodes)
    assert dataset.curriculum._allocator.diagnostics()["root"]["count"] == 6
    wrong = {"root": "fitted", "group_size": 4, "allocation_options": {"pol": 3}}
    with pytest.raises(OptionError, match="Did you mean 'pool'"):
        TaskDataset("train", None, None, config(data={"stepcredit": wrong}).data)
    with pytest.raises(OptionError, match="group_size is None"):
        TaskDataset("train", None, None, config(data={"stepcredit": {"root": "fitted"}}).data)
