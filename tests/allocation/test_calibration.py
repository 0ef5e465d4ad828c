"""Brier score and reliability bins by hand."""

from __future__ import annotations

import pytest

from stepcredit.allocation.calibration import Calibration


def test_summary_by_hand() -> None:
    calibration = Calibration()
    calibration.add([(0.25, False), (0.25, True), (1.0, True)])
    calibration.add([])
    calibration.add([(0.95, True)])
    summary = calibration.summary()
    assert summary["count"] == 4
    assert summary["brier"] == pytest.approx((0.0625 + 0.5625 + 0 + 0.0025) / 4)
    assert summary["predicted"] == pytest.approx(2.45 / 4)
    assert summary["observed"] == 0.75
    assert summary["bins"] == [
        {"low": 0.2, "high": 0.3, "count": 2, "predicted": 0.25, "observed": 0.5},
        {"low": 0.9, "high": 1.0, "count": 2, "predicted": pytest.approx(0.975), "observed": 1.0},
    ]


def test_without_predictions_nothing_is_claimed() -> None:
    assert Calibration().summary() == {"count": 0, "brier": None, "predicted": None, "observed": None, "bins": []}


def test_only_the_latest_predictions_are_kept() -> None:
    calibration = Calibration()
    calibration.add([(0.0, True)] * 10)
    calibration.add([(1.0, True)] * 100_000)
    assert calibration.summary()["count"] == 100_000
    assert calibration.summary()["brier"] == 0


def test_state_round_trip() -> None:
    calibration, copy = Calibration(), Calibration()
    calibration.add([(0.3, True)])
    copy.load(calibration.state())
    calibration.add([(0.9, False)])
    assert copy.summary()["predicted"] == 0.3
