"""Tuning: the learning rate by hand, the split, and that a held-out loss falls when there is something to learn."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import numpy as np
import pytest

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import InputError, OptionError
from stepcredit.policy.settings import ImitateSettings
from stepcredit.rollouts.types import Rollout
from stepcredit.training.chats import Chat
from stepcredit.training.fine_tuning import TuningSettings, fine_tune, rate, split_chats
from stepcredit.training.monitor import Silent


def chats(tasks: int, each: int = 2) -> list[Chat]:
    return [
        Chat(f"t{task}/{turn}", f"t{task}", ("q",), (f"{task} {turn}",), (1.0,))
        for task in range(tasks)
        for turn in range(each)
    ]


class Recorder:
    """Learns nothing and remembers what it was taught; some steps, by number from 1, break or have nothing to learn."""

    def __init__(self, broken: Container[int] = (), empty: Container[int] = ()) -> None:
        self.broken, self.empty = broken, empty
        self.seen: list[tuple[list[str], float]] = []
        self.measured: list[list[str]] = []

    def imitate(
        self, rollouts: Sequence[Rollout], weight: FloatArray, settings: ImitateSettings, seed: Sequence[int]
    ) -> dict[str, float]:
        assert len(weight) == sum(len(rollout.responses) for rollout in rollouts)
        assert settings.minibatch == len(rollouts)
        assert settings.observation_weight == 0.0
        self.seen.append(([one.episode.episode for one in rollouts], settings.lr))
        nothing = {"response_nll": 0.0, "tokens": float(len(self.seen) not in self.empty), "skipped_steps": 0.0}
        if len(self.seen) in self.broken:
            return {**nothing, "skipped_steps": 1.0}
        return nothing if not nothing["tokens"] else {**nothing, "response_nll": float(len(self.seen))}

    def response_nll(self, rollouts: Sequence[Rollout], weight: FloatArray) -> float:
        self.measured.append([one.episode.episode for one in rollouts])
        return 10.0 - len(self.measured)


def test_the_rate_rises_and_falls_along_a_cosine() -> None:
    settings = TuningSettings(lr=2.0, warmup=0.2)
    rates = [rate(step, 20, settings) for step in range(20)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4:] == pytest.approx(
        [2.0 * (0.1 + 0.9 * (1 + math.cos(math.pi * place / 16)) / 2) for place in range(16)]
    )
    assert rate(12, 20, settings) == pytest.approx(2.0 * 0.55)
    assert [rate(0, 1, TuningSettings(lr=2.0, warmup=share)) for share in (0.0, 0.5)] == [2.0, 2.0]


def test_tasks_are_held_out_whole() -> None:
    learnt, held = split_chats(chats(10), 0.3, seed=4)
    assert len({chat.task for chat in held}) == 3
    assert not {chat.task for chat in held} & {chat.task for chat in learnt}
    assert sorted([*learnt, *held], key=lambda chat: chat.id) == sorted(chats(10), key=lambda chat: chat.id)
    assert split_chats(chats(10), 0.3, seed=4) == (learnt, held)
    assert split_chats(chats(10), 0.3, seed=5) != (learnt, held)
    assert len({chat.task for chat in split_chats(chats(3), 0.01, 0)[1]}) == 1
    assert split_chats(chats(1), 0.5, 0)[1] == []
    assert split_chats(chats(5), 0.0, 0) == (chats(5), [])


def test_every_conversation_is_learnt_once_an_epoch() -> None:
    pupil, settings = Recorder(), TuningSettings(epochs=2, lr=1.0, warmup=0.0, minibatch=5, held_out=0.2)
    lines = fine_tune(pupil, chats(6), settings, Silent())
    learnt, held = split_chats(chats(6), 0.2, 0)
    for epoch in (pupil.seen[:2], pupil.seen[2:]):
        assert sorted(name for names, _ in epoch for name in names) == [chat.id for chat in learnt]
        assert [len(names) for names, _ in epoch] == [5, 5]
    assert pupil.seen[0][0] != pupil.seen[2][0]
    assert [lr for _, lr in pupil.seen] == [rate(step, 4, settings) for step in range(4)]
    assert pupil.measured == [[chat.id for chat in held]] * 3
    assert lines == [
        {"epoch": 0, "steps": 0, "held_out_nll": 9.0},
        {"epoch": 1, "steps": 2, "response_nll": 1.5, "skipped_steps": 0.0, "held_out_nll": 8.0},
        {"epoch": 2, "steps": 4, "response_nll": 3.5, "skipped_steps": 0.0, "held_out_nll": 7.0},
    ]


def test_steps_that_were_not_taken_are_in_no_mean() -> None:
    settings = TuningSettings(epochs=3, minibatch=5, held_out=0.0)  # four steps an epoch
    lines = fine_tune(Recorder(broken={2, 9, 10, 11, 12}, empty={7}), chats(10), settings, Silent())
    assert lines[1:] == [
        {"epoch": 1, "steps": 4, "response_nll": pytest.approx((1 + 3 + 4) / 3), "skipped_steps": 1.0},
        {"epoch": 2, "steps": 8, "response_nll": pytest.approx((5 + 6 + 8) / 3), "skipped_steps": 0.0},
        {"epoch": 3, "steps": 12, "skipped_steps": 4.0},
    ]


def test_nothing_to_learn_is_said() -> None:
    masked = [Chat("a", "a", ("q",), ("a",), (0.0,))]
    with pytest.raises(InputError, match="No answer of the demonstrations has a weight above 0"):
        fine_tune(Recorder(), masked, TuningSettings(), Silent())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", 0, "epochs is 0; expected at least 1."),
        ("seed", -1, "seed is -1; expected at least 0."),
        ("held_out", 1.0, "held_out is 1.0; expected a share from 0 up to, not including, 1."),
        ("warmup", -0.1, "warmup is -0.1"),
        ("lr", float("nan"), "lr is nan; expected a finite number above 0."),
    ],
)
def test_settings_are_checked(field: str, value: float, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        TuningSettings(**{field: value})  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_lines_are_plain_numbers() -> None:
    lines = fine_tune(Recorder(), chats(4), TuningSettings(epochs=1), Silent())
    assert {type(value) for line in lines for value in line.values()} <= {int, float}
    assert np.isfinite([value for line in lines for value in line.values()]).all()
